"""Spark's types and those of lake tables, and a DataFrame's columns as those of a table."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql import types as T  # noqa: N812

from lakemark_core.errors import InvalidSchema
from lakemark_core.evolution.sql import quoted, type_sql
from lakemark_core.types import (
    PRIMITIVES,
    TIMESTAMP,
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
    is_nested,
)
from lakemark_spark.assignment import assigned_sql, misfits
from lakemark_spark.queries import Value, named


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


def columns_for(given: T.StructType, schema: Schema, table: str) -> list[Value]:
    """The values of ``values_for`` under the names of the table's columns. Raises InvalidSchema with every misfit."""
    values = values_for(given, schema, table)
    return [named(value, field.name) for field, value in zip(schema.columns, values, strict=True)]


def values_for(given: T.StructType, schema: Schema, table: str) -> list[Value]:
    """A DataFrame's columns as the table's: by name whatever the case, cast as Spark's INSERT casts.

    A nullable column that the DataFrame does not have is null; a value that does not fit fails the job. Raises
    InvalidSchema with every misfit.
    """
    by_name: dict[str, T.StructField] = {}
    reasons = []
    for given_field in given.fields:
        name = given_field.name.lower()
        if name in by_name:
            reasons.append(f"the DataFrame has column '{given_field.name}' twice (case does not matter)")
        by_name[name] = given_field
    values: list[Value] = []
    for field in schema.columns:
        source = by_name.pop(field.name.lower(), None)
        if source is None:
            if not field.nullable or schema.is_partition(field.name):
                reasons.append(f"column '{field.name}' is missing in the DataFrame")
            values.append(_cast("NULL", field.type))
            continue
        value, unfit = value_for(source, field)
        reasons += unfit
        values.append(value)
    reasons += [f"column '{left.name}' of the DataFrame is not in the table" for left in by_name.values()]
    if reasons:
        raise InvalidSchema(f"the DataFrame does not fit {table}: {'; '.join(reasons)}", table=table)
    return values


def value_for(given: T.StructField, field: Field) -> tuple[Value, list[str]]:
    """A DataFrame's column as that of a table, cast as Spark's INSERT casts, and why it does not fit (words)."""
    text = quoted(given.name)
    unfit: list[str] = []
    if not isinstance(given.dataType, T.NullType):
        given_type = from_spark(given.dataType)
        if given_type is None:
            unfit = [f"column '{field.name}' is {given.dataType.simpleString()}, a type that lake tables do not have"]
        else:
            unfit = misfits(given_type, field.type, field.name)
            if not unfit:
                text = assigned_sql(text, given_type, field.type, field.name)
    return _cast(text, field.type), unfit


def _cast(text: str, column_type: Type) -> Value:
    # SQL does not say whether what is inside may be null, and what a timestamp is depends on the session.
    if is_nested(column_type) or column_type == TIMESTAMP:
        return F.expr(text).cast(to_spark(column_type))
    return f"CAST({text} AS {type_sql(column_type)})"
