"""Partition values as Hive writes them: as text in the metastore, and escaped in paths (``month=1/origin=JFK``).

The texts and the set of escaped characters are those of Hive's and Spark's own path utilities. So Lakemark reads the
paths that they write, and they read those of Lakemark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from lakemark_core.errors import InvalidArgument
from lakemark_core.types.model import ColumnValue, Field, Type
from lakemark_core.types.schema import Schema
from lakemark_core.types.text import format_type
from lakemark_core.types.values import CODECS

T = TypeVar("T")

DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
"""The text of null. Hive and Spark write the empty string as null, too."""

# ASCII control characters, DEL, and what means something in a path, a URL or a glob.
_ESCAPED = frozenset([*map(chr, range(0x20)), "\x7f", *"\"#%'*/:=?\\{[]^"])
_TO_ESCAPE = re.compile("[" + re.escape("".join(sorted(_ESCAPED))) + "]")
_ESCAPE_SEQUENCE = re.compile("%([0-9A-Fa-f]{2})")


def escape_path_name(text: str) -> str:
    """One column name or value as a part of a path; the empty string becomes the default partition."""
    return _TO_ESCAPE.sub(lambda match: f"%{ord(match.group()):02X}", text) if text else DEFAULT_PARTITION


def unescape_path_name(text: str) -> str:
    """The inverse of ``escape_path_name``; a ``%`` without two hexadecimal digits stays as it is."""
    return _ESCAPE_SEQUENCE.sub(lambda match: chr(int(match.group(1), 16)), text)


def partition_name(columns: Sequence[str], values: Sequence[str | None]) -> str:
    """``month=1/origin=JFK``: a partition's name and its path below the table. Values are texts, or None for null."""
    if len(columns) != len(values):
        raise InvalidArgument(
            f"{len(values)} partition values for the {len(columns)} partition columns {list(columns)}"
        )
    pairs = zip(columns, values, strict=True)
    return "/".join(f"{escape_path_name(column)}={escape_path_name(value or '')}" for column, value in pairs)


def parse_partition_name(name: str) -> list[tuple[str, str]]:
    """Columns and texts of the values, unescaped, in order; null is the text of the default partition."""
    pairs: list[tuple[str, str]] = []
    for part in name.strip("/").split("/"):
        column, equals, value = part.partition("=")
        if not equals or not column:
            raise InvalidArgument(f"partition name '{name}': '{part}' is not of the form column=value")
        pairs.append((unescape_path_name(column), unescape_path_name(value) or DEFAULT_PARTITION))
    return pairs


def partition_texts(name: str, columns: Sequence[str]) -> tuple[str, ...] | None:
    """The texts of the values in a partition's name; None unless it names these columns, in any case, in this order.

    The name of the one partition of an unpartitioned table is "".
    """
    pairs = parse_partition_name(name) if name else []
    if [column.lower() for column, _ in pairs] != [column.lower() for column in columns]:
        return None
    return tuple(text for _, text in pairs)


def in_column_order(given: Mapping[str, T], columns: Sequence[str]) -> list[T] | None:
    """What is given for each column, by its name in any case; None unless exactly these columns are named."""
    by_name = {name.lower(): value for name, value in given.items()}
    names = [column.lower() for column in columns]
    return [by_name[name] for name in names] if set(by_name) == set(names) else None


def values_of_partition(name: str, schema: Schema) -> tuple[ColumnValue, ...]:
    """The values in a partition's name, ``month=1/origin=JFK``. Raises InvalidArgument for the name of no partition."""
    texts = partition_texts(name, schema.partition_columns)
    if texts is None:
        raise InvalidArgument(f"partition {name!r} does not name the columns {', '.join(schema.partition_columns)}")
    pairs = zip(texts, schema.partition_fields, strict=True)
    return tuple(partition_value_from_string(text, field.type) for text, field in pairs)


def name_of_partition(values: Sequence[ColumnValue], schema: Schema) -> str:
    """``month=1/origin=JFK``: a partition's name and path. Raises InvalidArgument for values that do not fit."""
    fields = schema.partition_fields
    if len(values) != len(fields):
        raise InvalidArgument(f"{len(values)} partition values for the {len(fields)} partition columns of the table")
    texts = [partition_value_to_string(value, field.type) for value, field in zip(values, fields, strict=True)]
    return partition_name([field.name for field in fields], texts)


def partition_value_to_string(value: ColumnValue, column_type: Type) -> str:
    """The text of a value: what Spark writes in a session whose time zone is UTC.

    Dates are ``2013-01-31``, instants ``2013-01-31 12:00:00[.fraction]`` in UTC, decimals have all digits of their
    scale. Raises InvalidArgument if the value is not one of the type, and for the text that stands for null.
    """
    if value is None or value == "":
        return DEFAULT_PARTITION
    if column_type.kind is None:
        raise _not_of_type(value, column_type)
    try:
        text = CODECS[column_type.kind].to_text(value, column_type)
    except TypeError:
        raise _not_of_type(value, column_type) from None
    if value == DEFAULT_PARTITION:
        raise InvalidArgument(
            f"the text {value!r} stands for null in the names of partitions, and no partition has it as a value"
        )
    return text


def partition_value_from_string(text: str, column_type: Type) -> ColumnValue:
    """The value that a partition's text stands for; ``timestamp`` texts are taken as UTC.

    Raises InvalidArgument if the text is not a value of the type.
    """
    if text == DEFAULT_PARTITION:
        return None
    try:
        if column_type.kind is not None:
            return CODECS[column_type.kind].from_text(text, column_type)
    except (ValueError, ArithmeticError, InvalidArgument):
        pass
    raise InvalidArgument(f"partition value '{text}' is not a value of type {format_type(column_type)}")


def partition_field_value(text: str, field: Field) -> ColumnValue:
    """Like ``partition_value_from_string``; the error names the column."""
    try:
        return partition_value_from_string(text, field.type)
    except InvalidArgument as error:
        raise InvalidArgument(f"partition column {field.name}: {error.message}", column=field.name) from None


def _not_of_type(value: ColumnValue, column_type: Type) -> InvalidArgument:
    return InvalidArgument(f"{value!r} is not a value of type {format_type(column_type)}")
