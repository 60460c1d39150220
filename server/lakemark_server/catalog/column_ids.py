"""Column ids are given out by the service: ids that come with a client's schema do not count."""

from __future__ import annotations

from dataclasses import replace

from lakemark_core.types import Field, ListOf, MapOf, Schema, Struct, Type


def without_ids(schema: Schema) -> Schema:
    """The same schema, checked, with id 0 everywhere. Raises InvalidSchema."""
    return Schema.build([_field(column) for column in schema.columns], schema.partition_columns)


def _field(field: Field) -> Field:
    return replace(field, id=0, type=_type(field.type))


def _type(column_type: Type) -> Type:
    match column_type:
        case Struct(fields):
            return Struct(tuple(_field(field) for field in fields))
        case ListOf():
            return replace(column_type, element=_type(column_type.element), element_id=0)
        case MapOf():
            return replace(
                column_type, key=_type(column_type.key), value=_type(column_type.value), key_id=0, value_id=0
            )
        case _:
            return column_type
