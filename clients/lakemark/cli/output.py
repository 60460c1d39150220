"""Results on standard output: one JSON document, or tables for people."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import json
import math
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakemark_core.types import Schema

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_NOTHING: Final = "–"
_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\.\d{3}")
_INDENT: Final = "    "
_GAP: Final = "  "
# The width of a table's lines: padding beside each cell, and the last line.
_PADDING: Final = 3
_BORDER: Final = 1


def show_json(value: Any) -> None:
    """Prints one document. Values that JSON lacks become texts."""
    sys.stdout.write(json.dumps(plain(value), indent=2, ensure_ascii=False) + "\n")


def show_rows(
    headings: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str = "", below: int | None = None
) -> None:
    """Prints a table, with numbers right-aligned.

    Numbers and times are never wrapped; other cells are if they are too long. ``below``: if the terminal is too narrow
    for the whole table, the columns from this one on (or from an earlier one, if necessary) are printed on a line of
    their own under each row, with their headings, unless they are empty.
    """
    console = _console()
    cells = [[cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    numeric = [_is_numeric([row[at] for row in rows]) for at in range(len(headings))]
    if below is not None and _BORDER + sum(width + _PADDING for width in widths) > console.width:
        _show_narrow(console, headings, cells, widths, numeric, below)
        return
    table = Table(title=Text(title) if title else None, title_justify="left", header_style="bold")
    for heading, right, column in zip(headings, numeric, zip(*cells, strict=True) if cells else headings, strict=False):
        whole = right or all(text == _NOTHING or _TIME.fullmatch(text) for text in column)
        table.add_column(heading, justify="right" if right else "left", overflow="fold", no_wrap=whole)
    for row_cells in cells:
        # As Text, because brackets in names and reasons are not markup.
        table.add_row(*map(Text, row_cells))
    console.print(table)


def _show_narrow(
    console: Console,
    headings: Sequence[str],
    cells: Sequence[Sequence[str]],
    widths: Sequence[int],
    numeric: Sequence[bool],
    below: int,
) -> None:
    while below > 1 and sum(widths[:below]) + len(_GAP) * (below - 1) > console.width:
        below -= 1

    def line(texts: Sequence[str]) -> Text:
        aligned = zip(texts[:below], widths, numeric, strict=False)
        return Text(
            _GAP.join(text.rjust(width) if right else text.ljust(width) for text, width, right in aligned).rstrip()
        )

    heading = line(headings)
    heading.stylize("bold")
    console.print(heading)
    for row in cells:
        console.print(line(row))
        told = [f"{name}: {text}" for name, text in zip(headings[below:], row[below:], strict=True) if text]
        details = "; ".join(text for text in told if not text.endswith(f": {_NOTHING}"))
        for text in textwrap.wrap(details, console.width - len(_INDENT), break_on_hyphens=False):
            console.print(Text(_INDENT + text, style="dim"))


def _is_numeric(column: Sequence[Any]) -> bool:
    numbers = [isinstance(value, int | float) for value in column if value is not None]
    return bool(numbers) and all(numbers)


def show_fields(fields: Mapping[str, Any]) -> None:
    """Prints names and values, one per line. Empty values are left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if value not in (None, "", {}, ()):
            table.add_row(name, Text(cell(value)))
    _console().print(table)


def show_done(text: str) -> None:
    """Prints one line that says what happened."""
    _console().print(text, style="green", markup=False, highlight=False)


def cell(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return _NOTHING
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(cell(item) for item in value)
    return str(value)


def time_text(milliseconds: int) -> str:
    """The time in UTC; "–" for 0."""
    if not milliseconds:
        return _NOTHING
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def size_text(size_bytes: int) -> str:
    """The size in powers of 1000, like ``12.3 MB``."""
    size = float(size_bytes)
    for unit in _UNITS:
        if size < 1000 or unit == _UNITS[-1]:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError


def counted(count: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def plain(value: Any) -> Any:
    """The value in types that JSON has."""
    if isinstance(value, Schema):
        return value.as_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.date | decimal.Decimal):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _console() -> Console:
    # Lines for a pipe are read by programs such as grep and must not be wrapped.
    console = Console()
    return console if console.is_terminal else Console(width=10_000, soft_wrap=True)
