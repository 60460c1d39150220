"""Answers on standard output: one JSON document, or tables for people."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakemark.types import Schema, format_type

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def show_json(value: Any) -> None:
    """One document; values that JSON does not have are texts."""
    sys.stdout.write(json.dumps(plain(value), indent=2, ensure_ascii=False) + "\n")


def show_rows(headings: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str = "") -> None:
    """A table; numbers stand at the right. What is longer than the terminal is wide is wrapped, not cut."""
    table = Table(title=Text(title) if title else None, title_justify="left", header_style="bold")
    for index, heading in enumerate(headings):
        numeric = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        # As Text: brackets in names and reasons are no markup.
        table.add_row(*(Text(cell(one)) for one in row))
    _console().print(table)


def show_fields(fields: Mapping[str, Any]) -> None:
    """Names and values of one thing, one a line; empty values are left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if value not in (None, "", {}, ()):
            table.add_row(name, Text(cell(value)))
    _console().print(table)


def show_done(text: str) -> None:
    """One line that says what happened."""
    _console().print(text, style="green", markup=False, highlight=False)


def cell(value: Any) -> str:
    """One value as people read it."""
    if value is None:
        return "–"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={one}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(cell(one) for one in value)
    return str(value)


def time_text(milliseconds: int) -> str:
    """UTC; "–" for 0."""
    if not milliseconds:
        return "–"
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def size_text(size_bytes: int) -> str:
    """Powers of 1000, as in ``12.3 MB``."""
    size = float(size_bytes)
    for unit in _UNITS:
        if size < 1000 or unit == _UNITS[-1]:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError


def schema_json(schema: Schema) -> dict[str, Any]:
    columns = [
        {
            "id": column.id,
            "name": column.name,
            "type": format_type(column.type),
            "nullable": column.nullable,
            "comment": column.comment,
        }
        for column in schema.columns
    ]
    return {"schema_id": schema.schema_id, "columns": columns, "partition_columns": list(schema.partition_columns)}


def plain(value: Any) -> Any:
    """What JSON has."""
    if isinstance(value, Schema):
        return schema_json(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.date | decimal.Decimal):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _console() -> Console:
    # Through a pipe, lines are for programs such as grep and must not be broken.
    console = Console()
    return console if console.is_terminal else Console(width=10_000, soft_wrap=True)
