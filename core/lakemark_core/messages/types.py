"""Types, columns and schemas as the protobuf messages of ``lakemark.v1``, and back."""

from __future__ import annotations

from lakemark_core.errors import InvalidSchema
from lakemark_core.types import Field, ListOf, MapOf, Schema, Struct, Type, format_type, parse_type
from lakemark_proto.v1 import types_pb2 as pb


def type_from_proto(message: pb.Type) -> Type:
    match message.WhichOneof("kind"):
        case "primitive":
            return parse_type(message.primitive)
        case "struct":
            return Struct(tuple(field_from_proto(field) for field in message.struct.fields))
        case "list":
            element = message.list.element
            return ListOf(type_from_proto(element.type), element.id, not element.required)
        case "map":
            key, value = message.map.key, message.map.value
            return MapOf(type_from_proto(key.type), type_from_proto(value.type), key.id, value.id, not value.required)
        case _:
            raise InvalidSchema("a column has no type")


def type_to_proto(column_type: Type) -> pb.Type:
    match column_type:
        case Struct(fields):
            return pb.Type(struct=pb.StructType(fields=[field_to_proto(field) for field in fields]))
        case ListOf(element, element_id, nullable):
            return pb.Type(list=pb.ListType(element=field_to_proto(Field(element_id, "element", element, nullable))))
        case MapOf(key, value, key_id, value_id, nullable):
            return pb.Type(
                map=pb.MapType(
                    key=field_to_proto(Field(key_id, "key", key, nullable=False)),
                    value=field_to_proto(Field(value_id, "value", value, nullable)),
                )
            )
        case _:
            return pb.Type(primitive=format_type(column_type))


def field_from_proto(message: pb.Column) -> Field:
    try:
        column_type = type_from_proto(message.type)
    except InvalidSchema as error:
        raise InvalidSchema(f"column {message.name!r}: {error.message}") from error
    return Field(message.id, message.name, column_type, not message.required, message.comment)


def field_to_proto(field: Field) -> pb.Column:
    return pb.Column(
        id=field.id,
        name=field.name,
        type=type_to_proto(field.type),
        required=not field.nullable,
        comment=field.comment,
    )


def schema_from_proto(message: pb.Schema) -> Schema:
    """A checked schema. Raises InvalidSchema."""
    columns = [field_from_proto(column) for column in message.columns]
    return Schema.build(columns, list(message.partition_columns), message.schema_id)


def schema_to_proto(schema: Schema) -> pb.Schema:
    return pb.Schema(
        schema_id=schema.schema_id,
        columns=[field_to_proto(column) for column in schema.columns],
        partition_columns=schema.partition_columns,
    )
