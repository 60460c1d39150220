"""Which tables no Hive Metastore accepts. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from lakemark_core import storage
from lakemark_core.errors import InvalidArgument
from lakemark_hms.errors import NotGiven
from lakemark_hms.given import given_name, short
from lakemark_thrift.ttypes import FieldSchema, Table

_FROM_SERDE: Final = "<derived from deserializer>"
_TYPES: Final = frozenset(
    (
        *("void", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal"),
        *("string", "varchar", "char", "binary"),
        *("date", "datetime", "timestamp", "interval_year_month", "interval_day_time"),
        *("array", "map", "struct", "uniontype"),
    )
)
_FIRST_WORD: Final = re.compile(r"\w+")


def check_table(table: Table) -> None:
    """Raises NotGiven for what must not be null, InvalidArgument for what must not be so."""
    if not given_name("table", table.tableName):
        raise InvalidArgument("the table has no name")
    label = f"table {short(table.tableName)}"
    if table.sd is None or table.sd.cols is None:
        missing = "storage descriptor" if table.sd is None else "column list"
        raise NotGiven(f"{label} has no {missing}: give one")
    seen: set[str] = set()
    for column in columns_of(table):
        name = (column.name or "").lower()
        if not name:
            raise InvalidArgument(f"{label} has a column without a name")
        if column.type is None:
            raise NotGiven(f"column {short(name)} of {label} has no type: give one")
        if name in seen:
            raise InvalidArgument(f"{label} has the column {short(name)} twice")
        seen.add(name)


def check_stored_as(table: Table, accepted: Collection[str] = ()) -> None:
    """Like ``check_table``, of what only warehouse tables have. ``accepted``: types that the table has already.

    As in Hive, only the first word of a type counts. Raises NotGiven, InvalidArgument.
    """
    label = f"table {short(table.tableName)}"
    if table.sd is not None and table.sd.serdeInfo is None:
        raise NotGiven(f"{label} has no SerDe (serdeInfo is null): give one, which may be empty")
    for column in columns_of(table):
        if not is_known_type(column.type or "") and column.type not in accepted:
            raise InvalidArgument(
                f"column {short(column.name)} of {label} has the type {short(column.type)}, which Hive "
                "does not have: use one such as int, decimal(10,2), string, timestamp, array<int> or struct<a:int>"
            )
    location = (table.sd.location if table.sd is not None else None) or ""
    if location.strip() and not urlsplit(storage.normal_uri(location)).path.strip("/"):
        raise InvalidArgument(f"{table.tableName} location must not be root path")  # tests of Hive compare the text


def is_known_type(text: str) -> bool:
    """Whether Hive has a type that begins with the first word of the text."""
    word = _FIRST_WORD.match(text)
    return text == _FROM_SERDE or (word is not None and word[0].lower() in _TYPES)


def columns_of(table: Table) -> list[FieldSchema]:
    """Columns, those of partitions last."""
    return [*((table.sd.cols if table.sd is not None else None) or ()), *(table.partitionKeys or ())]
