"""Names that mean something to engines which read a lake table: properties, and what they substitute in texts.

Engines see a lake table as a view or as files, with a definition that the service makes. A property of theirs in it
would have them read something else: another query, another format, other settings of the session.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from lakemark_core.errors import InvalidArgument, InvalidSchema
from lakemark_core.types import Field, ListOf, MapOf, Schema, Struct, Type

_PREFIXES: Final = ("spark.sql.", "view.", "stats_generated", "column_stats_accurate")
_NAMES: Final = frozenset(
    {
        # Spark and Hive keep these for themselves.
        "external", "external.table.purge", "transient_lastddltime", "numfiles", "totalsize", "numrows", "rawdatasize",
        "bucketing_version", "last_modified_by", "last_modified_time", "storage_handler", "transactional",
        "transactional_properties",
        # These make an Iceberg or a Delta table of it.
        "table_type", "metadata_location", "previous_metadata_location",
        "presto_view",
        # The service tells these.
        "lakemark.version", "lakemark.schema", "lakemark.location",
    }
)  # fmt: skip
# As Spark's parser and Hive's look for variables, in every text of SQL.
_VARIABLE: Final = re.compile(r"\$\{")


def is_of_engines(name: str) -> bool:
    """Whether a property belongs to engines, or to what the service shows them, and is none of a lake table's own."""
    lowered = name.lower()
    return lowered in _NAMES or lowered.startswith(_PREFIXES)


def own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Those that are a lake table's own. Engines send theirs with every definition."""
    return {name: value for name, value in properties.items() if not is_of_engines(name)}


def check_set(names: Iterable[str]) -> None:
    """Raises InvalidArgument for a property that a client asks for and that belongs to engines."""
    for name in names:
        if is_of_engines(name):
            raise InvalidArgument(
                f"property {name[:200]!r} cannot be set on a lake table: it belongs to the engines that read the "
                "table, or to what the service tells them; choose another name",
                property=name[:200],
            )


def check_columns(schema: Schema, known: Schema | None = None) -> None:
    """Refuses new columns and fields that Spark would rename as it reads the table.

    Spark replaces ``${env:NAME}`` and the like wherever they stand in a view's text, also within backquotes. ``known``:
    the schema before a change, whose names are kept. Raises InvalidSchema.
    """
    before = set(_names(known.columns)) if known is not None else set()
    for name in _names(schema.columns):
        if name not in before and _VARIABLE.search(name):
            raise InvalidSchema(
                f"column name {name!r} has '${{' in it, which Spark and Hive take for the beginning of a variable and "
                "replace in every query; choose another name",
                column=name,
            )


def _names(fields: Iterable[Field]) -> Iterable[str]:
    for field in fields:
        yield field.name
        yield from _names_in(field.type)


def _names_in(column_type: Type) -> Iterable[str]:
    match column_type:
        case Struct(fields):
            yield from _names(fields)
        case ListOf(element):
            yield from _names_in(element)
        case MapOf(key, value):
            yield from _names_in(key)
            yield from _names_in(value)
