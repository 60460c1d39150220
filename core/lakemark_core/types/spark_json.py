"""Columns as the JSON of Spark's StructType, which keeps the case of names and the nullability of nested fields.

Texts of a fixed or bounded length are ``string`` there; the field's metadata has the declared type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from lakemark_core.errors import InvalidSchema
from lakemark_core.types.model import Char, Decimal, Field, ListOf, MapOf, Primitive, Struct, Type, Varchar
from lakemark_core.types.text import format_type, parse_type

_DECLARED_TEXT: Final = "__CHAR_VARCHAR_TYPE_STRING"


def columns_to_spark_json(columns: Sequence[Field]) -> str:
    """Spark's JSON of a struct type with these fields."""
    return json.dumps(_struct_to_json(columns), separators=(",", ":"))


def columns_from_spark_json(text: str) -> list[Field]:
    """The fields of Spark's JSON of a struct type; their ids are 0.

    Raises InvalidSchema for a type that no lake table has, ValueError, KeyError or TypeError for other JSON.
    """
    return [_field_from_json(field) for field in json.loads(text)["fields"]]


def _struct_to_json(fields: Sequence[Field]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {
                "name": field.name,
                "type": _type_to_json(field.type),
                "nullable": field.nullable,
                "metadata": _metadata(field),
            }
            for field in fields
        ],
    }


def _metadata(field: Field) -> dict[str, str]:
    metadata = {"comment": field.comment} if field.comment else {}
    if isinstance(field.type, Varchar | Char):
        metadata[_DECLARED_TEXT] = format_type(field.type)
    return metadata


def _type_to_json(column_type: Type) -> Any:
    match column_type:
        case Primitive():
            return column_type.record.spark_name
        case Decimal():
            return format_type(column_type)
        case Varchar() | Char():
            return "string"
        case Struct(fields):
            return _struct_to_json(fields)
        case ListOf(element, _, nullable):
            return {"type": "array", "elementType": _type_to_json(element), "containsNull": nullable}
        case MapOf(key, value, _, _, nullable):
            return {
                "type": "map",
                "keyType": _type_to_json(key),
                "valueType": _type_to_json(value),
                "valueContainsNull": nullable,
            }


def _field_from_json(field: Mapping[str, Any]) -> Field:
    metadata = field.get("metadata") or {}
    declared = metadata.get(_DECLARED_TEXT)
    column_type = parse_type(declared) if declared else _type_from_json(field["type"])
    return Field(0, field["name"], column_type, bool(field["nullable"]), metadata.get("comment") or "")


def _type_from_json(json_type: Any) -> Type:
    if isinstance(json_type, str):
        return parse_type(json_type)  # which knows Spark's names as aliases
    match json_type["type"]:
        case "struct":
            return Struct(tuple(_field_from_json(field) for field in json_type["fields"]))
        case "array":
            return ListOf(_type_from_json(json_type["elementType"]), element_nullable=bool(json_type["containsNull"]))
        case "map":
            return MapOf(
                _type_from_json(json_type["keyType"]),
                _type_from_json(json_type["valueType"]),
                value_nullable=bool(json_type["valueContainsNull"]),
            )
    raise InvalidSchema(f"Spark type {json_type['type']!r} is not supported in lake tables")
