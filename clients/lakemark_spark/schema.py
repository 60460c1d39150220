"""Spark's types and those of lake tables, and a DataFrame's columns as those of a table."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql import types as T  # noqa: N812

from lakemark_core.errors import InvalidSchema
from lakemark_core.evolution import why_not_widen
from lakemark_core.types import (
    PRIMITIVES,
    Char,
    Decimal,
    Field,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
    Varchar,
    format_type,
    is_textual,
)


def _spark_type(name: str) -> T.DataType:
    """The type that Spark's JSON of schemas calls ``name``."""
    field = {"name": name, "type": name, "nullable": True, "metadata": {}}
    return T.StructType.fromJson({"type": "struct", "fields": [field]})[0].dataType


_PRIMITIVES: dict[str, T.DataType] = {name: _spark_type(record.spark_name) for name, record in PRIMITIVES.items()}
_FROM_SPARK: dict[type[T.DataType], Type] = {type(spark): Primitive(name) for name, spark in _PRIMITIVES.items()}


def to_spark(column_type: Type) -> T.DataType:
    """The Spark type in which a column is read and written; varchar and char are strings there."""
    match column_type:
        case Varchar() | Char():
            return T.StringType()
        case Decimal(precision, scale):
            return T.DecimalType(precision, scale)
        case ListOf(element, _, nullable):
            return T.ArrayType(to_spark(element), nullable)
        case MapOf(key, value, _, _, nullable):
            return T.MapType(to_spark(key), to_spark(value), nullable)
        case Struct(fields):
            return struct_of(fields)
        case Primitive(name):
            return _PRIMITIVES[name]


def struct_of(fields: Sequence[Field]) -> T.StructType:
    """These columns as Spark's schema."""
    return T.StructType([T.StructField(field.name, to_spark(field.type), field.nullable) for field in fields])


def from_spark(data_type: T.DataType) -> Type | None:
    """The column type of a Spark type; None for one that lake tables do not have (intervals, variants …)."""
    match data_type:
        case T.VarcharType():
            return Varchar(data_type.length)
        case T.CharType():
            return Char(data_type.length)
        case T.DecimalType():
            return Decimal(data_type.precision, data_type.scale)
        case T.ArrayType():
            element = from_spark(data_type.elementType)
            return None if element is None else ListOf(element, 0, data_type.containsNull)
        case T.MapType():
            key, value = from_spark(data_type.keyType), from_spark(data_type.valueType)
            return None if key is None or value is None else MapOf(key, value, 0, 0, data_type.valueContainsNull)
        case T.StructType():
            fields = []
            for field in data_type.fields:
                column_type = from_spark(field.dataType)
                if column_type is None:
                    return None
                fields.append(Field(0, field.name, column_type, field.nullable))
            return Struct(tuple(fields))
        case _:
            return _FROM_SPARK.get(type(data_type))


def columns_for(given: T.StructType, schema: Schema, table: str) -> list[Column]:
    """A DataFrame's columns as the table's: by name whatever the case, cast where nothing can be lost.

    A nullable column that the DataFrame does not have is null. Raises InvalidSchema with every misfit.
    """
    by_name: dict[str, T.StructField] = {}
    reasons = []
    for given_field in given.fields:
        name = given_field.name.lower()
        if name in by_name:
            reasons.append(f"the DataFrame has column '{given_field.name}' twice (case does not matter)")
        by_name[name] = given_field
    columns: list[Column] = []
    for field in schema.columns:
        source = by_name.pop(field.name.lower(), None)
        if source is None:
            if not field.nullable or schema.is_partition(field.name):
                reasons.append(f"column '{field.name}' is missing in the DataFrame")
            columns.append(F.lit(None).cast(to_spark(field.type)).alias(field.name))
            continue
        column = _quoted(source.name)
        if isinstance(field.type, Varchar | Char) and isinstance(source.dataType, T.StringType):
            column = _of_length(column, field, field.type)
        else:
            reasons += _misfits(field.type, source.dataType, field.name)
        columns.append(column.cast(to_spark(field.type)).alias(field.name))
    reasons += [f"column '{left.name}' of the DataFrame is not in the table" for left in by_name.values()]
    if reasons:
        raise InvalidSchema(f"the DataFrame does not fit {table}: {'; '.join(reasons)}", table=table)
    return columns


def _quoted(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _of_length(column: Column, field: Field, column_type: Varchar | Char) -> Column:
    """Strings that are too long fail the job, as in Spark's own INSERT; char(n) is padded, as there."""
    message = f"a value of column '{field.name}' is longer than {format_type(column_type)}: "
    checked = F.when(
        F.length(column) > column_type.length, F.raise_error(F.concat(F.lit(message), column)).cast("string")
    ).otherwise(column)
    return F.rpad(checked, column_type.length, " ") if isinstance(column_type, Char) else checked


def _misfits(wanted: Type, given: T.DataType, name: str) -> list[str]:
    if isinstance(given, T.NullType):
        return []
    given_type = from_spark(given)
    if given_type is None:
        return [f"column '{name}' is {given.simpleString()}, a type that lake tables do not have"]
    return _type_misfits(wanted, given_type, name)


def _type_misfits(wanted: Type, given: Type, name: str) -> list[str]:
    match wanted, given:
        case Struct(fields), Struct(others):
            # A cast matches fields by position: names and order must agree.
            ours, theirs = [one.name.lower() for one in fields], [one.name.lower() for one in others]
            if ours != theirs:
                return [f"struct '{name}' has the fields {', '.join(theirs)}; the table has {', '.join(ours)}"]
            pairs = zip(fields, others, strict=True)
            return [text for a, b in pairs for text in _type_misfits(a.type, b.type, f"{name}.{a.name}")]
        case ListOf(element), ListOf(other):
            return _type_misfits(element, other, f"{name}.element")
        case MapOf(key, value), MapOf(other_key, other_value):
            return _type_misfits(key, other_key, f"{name}.key") + _type_misfits(value, other_value, f"{name}.value")
    if _widens(given, wanted):
        return []
    advice = "" if is_textual(wanted) else "; cast it yourself if that is what you want"
    return [f"column '{name}' is {format_type(given)}; the table has {format_type(wanted)}{advice}"]


def _widens(given: Type, wanted: Type) -> bool:
    """Whether every value of one type is one of the other."""
    if isinstance(given, Decimal) and isinstance(wanted, Decimal):
        # A file keeps its scale; a cast may add zeros.
        return wanted.scale >= given.scale and wanted.precision - wanted.scale >= given.precision - given.scale
    return not why_not_widen(given, wanted)
