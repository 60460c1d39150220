"""Tells whether a client of the Metastore protocol asks for a lake table, or seems to mean one without saying so."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from lakemark_core import storage
from lakemark_core.errors import InvalidArgument
from lakemark_hms.objects import MANAGED, sent_location, table_type
from lakemark_server.catalog.lake import PROPERTIES, TYPE_PROPERTY
from lakemark_thrift.ttypes import Table

_OURS: Final = "lakemark."
_WAY: Final = f"TBLPROPERTIES ('{TYPE_PROPERTY}'='lake')"


def is_lake(table: Table) -> bool:
    """Whether a client asks for a lake table."""
    return (table.parameters or {}).get(TYPE_PROPERTY, "").strip().lower() == "lake"


def check_not_meant(table: Table, before: Table | None = None) -> None:
    """Raises InvalidArgument if a warehouse table has properties or options of lake tables.

    ``before`` is the table before a change, None for a new one. With a mistyped property, a table that was meant to be
    a lake table would be made without commits, which only its first reader would notice.
    """
    label = f"{table.dbName}.{table.tableName}"
    known = set(before.parameters or {}) if before is not None else set()
    named = _ours(set(table.parameters or {}) - known)
    if named:
        name, value = named[0], (table.parameters or {})[named[0]]
        raise InvalidArgument(f"{label}: {_what_is_wrong(name, value)}", property=name)
    options = _ours(_options(table) - (_options(before) if before is not None else set()))
    if options:
        left = "" if before is not None else _left(table)
        raise InvalidArgument(
            f"{label}: {options[0]} is given as an option of the files (OPTIONS, DataFrameWriter.option), and not as a "
            f"property of the table: create the table by SQL with {_WAY}, then write it by INSERT INTO "
            f"{table.tableName}__append{left}",
            property=options[0],
        )


def files_left(location: str) -> str:
    """What to tell of a directory whose files may come from a statement that is refused.

    Spark writes the rows of CREATE TABLE … AS SELECT and of saveAsTable before it asks for the table. Its request looks
    like one for a directory that holds somebody's data, so nothing is deleted here.
    """
    return (
        f"the directory {location} has files in it, which Spark wrote before it asked for the table if this was CREATE "
        "TABLE … AS SELECT or saveAsTable. They are not deleted, since they could be somebody's data, and Spark "
        "refuses the name as long as they are there: delete the directory if it holds nothing else"
    )


def _left(table: Table) -> str:
    """What to tell of files that Spark has written to the place of a managed table; "" if there are none."""
    serde = table.sd.serdeInfo if table.sd is not None else None
    location = sent_location(table) or ((serde.parameters if serde is not None else None) or {}).get("path", "")
    if not location or table_type(table) != MANAGED:
        return ""
    location = storage.normal_uri(location)
    return "" if storage.is_empty(location) else f". And {files_left(location)}"


def _what_is_wrong(name: str, value: str) -> str:
    if name == TYPE_PROPERTY:
        return (
            f"{TYPE_PROPERTY} = {value!r} is not a type of table: the only one is 'lake'; tables without it are Hive's"
        )
    if name in PROPERTIES:
        return f"property {name!r} is only for lake tables, and this is not one: add {_WAY}, or leave it out"
    near = difflib.get_close_matches(name.lower(), PROPERTIES, n=1)
    guess = f"; did you mean {near[0]!r}?" if near else ""
    return f"property {name!r} is not known{guess} Those that begin with '{_OURS}' are: {', '.join(PROPERTIES)}"


def _ours(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.lower().startswith(_OURS))


def _options(table: Table) -> set[str]:
    """The options of the table's data source, which Spark keeps with the serde, and Hive's SERDEPROPERTIES."""
    serde = table.sd.serdeInfo if table.sd is not None else None
    return set((serde.parameters if serde is not None else None) or {})
