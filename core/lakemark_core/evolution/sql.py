"""Columns of data files as a later schema's columns, in Spark SQL."""

from __future__ import annotations

from lakemark_core.evolution.file_schemas import read_alike, source_of
from lakemark_core.types import Field, ListOf, MapOf, Struct, Type, format_type, is_textual


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def column_sql(expression: str, old: Type, new: Type) -> str:
    """``expression``, of type ``old`` in a file, as a value of type ``new``.

    Nested fields are found by id, under the name that they have in ``old``; those that did not exist are null.
    """
    return _value(expression, old, new, 0)


def scanned_sql(column: Field, scanned: Field | None) -> str:
    """``column`` from what a scan of files asks for (``scanned_columns``)."""
    if scanned is None:
        return missing_sql(column.type)
    return column_sql(quoted(scanned.name), scanned.type, column.type)


def missing_sql(new: Type) -> str:
    """A column that the files do not have."""
    return f"CAST(NULL AS {type_sql(new)})"


def type_sql(column_type: Type) -> str:
    """As Spark's CAST takes it: names are quoted, texts are strings whatever their declared length."""
    match column_type:
        case Struct(fields):
            return "STRUCT<" + ", ".join(f"{quoted(field.name)}: {type_sql(field.type)}" for field in fields) + ">"
        case ListOf(element):
            return f"ARRAY<{type_sql(element)}>"
        case MapOf(key, value):
            return f"MAP<{type_sql(key)}, {type_sql(value)}>"
    return "STRING" if is_textual(column_type) else format_type(column_type).upper()


def _value(expression: str, old: Type, new: Type, depth: int) -> str:
    if read_alike(old, new):
        return expression
    variable = f"lakemark_{depth}"
    match old, new:
        case Struct(stored), Struct(fields):
            pairs = ", ".join(_named(expression, source_of(field, stored), field, depth) for field in fields)
            return f"IF({expression} IS NULL, NULL, named_struct({pairs}))"
        case ListOf(element), ListOf(wanted):
            return f"transform({expression}, {variable} -> {_value(variable, element, wanted, depth + 1)})"
        case MapOf(_, value), MapOf(_, wanted):
            entry = _value(variable, value, wanted, depth + 1)
            return f"transform_values({expression}, (lakemark_key_{depth}, {variable}) -> {entry})"
    return f"CAST({expression} AS {type_sql(new)})"


def _named(struct: str, source: Field | None, field: Field, depth: int) -> str:
    name = "'" + field.name.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if source is None:
        return f"{name}, {missing_sql(field.type)}"
    return f"{name}, {_value(f'{struct}.{quoted(source.name)}', source.type, field.type, depth)}"
