"""The columns that Spark keeps in a table's properties, with their case and its own types.

Spark writes the JSON of its StructType as ``spark.sql.sources.schema``, long ones in parts; the column list of the
Metastore beside it is in lower case, and a placeholder where Hive has no such type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from lakemark_core.errors import InvalidSchema
from lakemark_core.types import Field, parse_type
from lakemark_core.types.model import ListOf, MapOf, Struct, Type

_SCHEMA: Final = "spark.sql.sources.schema"
_SIMPLE: Final = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


def spark_columns(parameters: Mapping[str, str]) -> list[Field] | None:
    """The columns with id 0, or None if there are none. Raises InvalidSchema for what cannot be read."""
    text = _schema_text(parameters)
    if text is None:
        return None
    try:
        return [_field(field) for field in json.loads(text)["fields"]]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidSchema(f"the table property {_SCHEMA} cannot be read: {error!r}") from error


def _schema_text(parameters: Mapping[str, str]) -> str | None:
    whole = parameters.get(_SCHEMA)
    if whole is not None:
        return whole
    count = parameters.get(f"{_SCHEMA}.numParts")
    if count is None:
        return None
    parts = [parameters.get(f"{_SCHEMA}.part.{at}") for at in range(int(count))]
    if None in parts:
        raise InvalidSchema(f"of the table properties {_SCHEMA}.part.* some are missing")
    return "".join(part for part in parts if part is not None)


def _field(json_field: Mapping[str, Any]) -> Field:
    metadata = json_field.get("metadata") or {}
    # Texts of fixed or bounded length are kept as string, with the declared type beside it.
    declared = metadata.get("__CHAR_VARCHAR_TYPE_STRING")
    column_type = parse_type(declared) if declared else _type(json_field["type"])
    return Field(
        0, json_field["name"], column_type, nullable=bool(json_field["nullable"]), comment=metadata.get("comment") or ""
    )


def _type(json_type: Any) -> Type:
    if isinstance(json_type, str):
        return parse_type(_SIMPLE.get(json_type, json_type))
    match json_type["type"]:
        case "struct":
            return Struct(tuple(_field(field) for field in json_type["fields"]))
        case "array":
            return ListOf(_type(json_type["elementType"]), element_nullable=bool(json_type["containsNull"]))
        case "map":
            return MapOf(
                _type(json_type["keyType"]),
                _type(json_type["valueType"]),
                value_nullable=bool(json_type["valueContainsNull"]),
            )
    raise InvalidSchema(f"Spark type {json_type['type']!r} is not supported in lake tables")
