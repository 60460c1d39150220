"""The table of primitive types against what core makes of it: a new record has to pass all of these."""

from __future__ import annotations

import pyarrow as pa
import sqlglot

from lakemark_core import types
from lakemark_core.expressions import Compare, Literal, bind, parse_predicate
from lakemark_core.expressions.calls import as_decimal_type
from lakemark_core.expressions.casts import cast
from lakemark_core.expressions.render import literal_sql
from lakemark_core.expressions.sql_values import type_of
from lakemark_core.messages.predicates import literal_from_proto
from lakemark_core.messages.types import type_from_proto, type_to_proto
from lakemark_core.messages.values import value_from_proto, value_to_proto
from lakemark_core.types import (
    CODECS,
    PRIMITIVES,
    STRING,
    Field,
    Primitive,
    Schema,
    ValueKind,
    check_fits,
    check_readable,
    format_type,
    parse_type,
    partition_value_from_string,
    partition_value_to_string,
    schema_to_arrow,
    to_arrow,
)
from lakemark_core.types.spark_json import columns_from_spark_json, columns_to_spark_json
from lakemark_proto.v1 import types_pb2 as pb
from tests.unit.core.types.samples import VALUES, every_primitive


def test_kinds_are_those_of_the_messages() -> None:
    fields = pb.Value.DESCRIPTOR.oneofs_by_name["kind"].fields
    assert [field.name for field in fields] == ["null", *ValueKind]
    assert set(CODECS) == set(ValueKind)


def test_names_and_aliases_are_unique() -> None:
    names = [name for record in PRIMITIVES.values() for name in (record.name, *record.aliases)]
    assert len(set(names)) == len(names)
    spark_names = [record.spark_name for record in PRIMITIVES.values()]
    assert len(set(spark_names)) == len(spark_names)


@every_primitive
def test_names(column_type: Primitive) -> None:
    record = column_type.record
    assert getattr(types, record.name.upper()) == column_type
    for name in (record.name, record.spark_name, *record.aliases):
        assert parse_type(name.upper()) == column_type
        parsed = sqlglot.parse_one(f"CAST(x AS {name})", dialect="spark")
        assert type_of(parsed.args["to"]) == column_type
    assert format_type(column_type) == record.name
    assert type_from_proto(type_to_proto(column_type)) == column_type
    columns = [Field(0, "x", column_type)]
    assert columns_from_spark_json(columns_to_spark_json(columns)) == columns


@every_primitive
def test_values_survive_messages_and_texts(column_type: Primitive) -> None:
    for value in VALUES[column_type.kind]:
        message = value_to_proto(value, column_type)
        assert message.WhichOneof("kind") == column_type.kind
        assert value_from_proto(message, column_type) == value
        literal = literal_from_proto(message)
        assert (literal.value, literal.type and literal.type.kind) == (value, column_type.kind)
        text = partition_value_to_string(value, column_type)
        assert partition_value_from_string(text, column_type) == value
        assert pa.scalar(value, to_arrow(column_type)).as_py() == value


@every_primitive
def test_a_file_with_the_types_own_arrow_type_fits(column_type: Primitive) -> None:
    schema = Schema((Field(1, "x", column_type),))
    assert check_fits(schema, schema_to_arrow(schema)) == []
    assert check_readable(schema, schema_to_arrow(schema)) == []


@every_primitive
def test_constants(column_type: Primitive) -> None:
    """Only the engine may know a constant's text; a comparison with a constant of the column's type is exact."""
    schema = Schema((Field(1, "x", column_type),))
    for value in VALUES[column_type.kind]:
        literal = Literal(value, column_type)
        assert cast(literal, column_type) == literal
        text = cast(literal, STRING)
        assert text is None or (again := cast(text, column_type)) is None or again == literal
        bound = bind(parse_predicate(f"x >= {literal_sql(literal)}"), schema)
        assert isinstance(bound, Compare)
        assert (bound.op, bound.literal.value) == (">=", value)


@every_primitive
def test_integers_have_a_width_and_a_decimal(column_type: Primitive) -> None:
    is_integer = column_type.kind is ValueKind.INTEGER
    assert bool(column_type.record.bits) == is_integer
    assert (as_decimal_type(column_type) is not None) == is_integer
    assert bool(column_type.record.significand_bits) == (column_type.kind is ValueKind.FLOATING)
