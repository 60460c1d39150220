"""Names of tables and columns as users write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from lakemark.arguments import Called
from lakemark_core.errors import InvalidName, InvalidSchema
from lakemark_core.types import Field, Schema, Struct, Type, parse_type
from lakemark_proto.v1.types_pb2 import TableName

Columns: TypeAlias = Annotated[
    Schema | Mapping[str, str | Type] | str,
    Called("a schema, a mapping {'id': 'bigint'}, or a text 'id bigint, name string'"),
]
"""A schema, ``{"id": "bigint", "name": "string"}``, or Spark's ``id bigint NOT NULL, name string COMMENT 'text'``."""


def parse_table_name(text: str) -> TableName:
    """``database.table`` or ``catalog.database.table``; parts may be in backquotes. Raises InvalidName."""
    table, at, snapshot = text.partition("@")
    if at:
        raise InvalidName(
            f"{text!r} names a snapshot where a table is wanted: write {table.strip()!r}; where a snapshot is "
            f"read, choose {snapshot!r} by version, timestamp, branch or tag",
            name=text,
        )
    parts = [part.strip().strip("`") for part in text.split(".")]
    if len(parts) not in (2, 3) or not all(parts):
        raise InvalidName(f"{text!r} is not the name of a table; write database.table", name=text)
    catalog = parts[0] if len(parts) == 3 else ""
    return TableName(catalog=catalog, database=parts[-2], table=parts[-1])


def parse_columns(columns: Columns, partitioned_by: list[str] | tuple[str, ...] = ()) -> Schema:
    """The schema, without column ids. Raises InvalidSchema."""
    if isinstance(columns, Schema):
        return Schema.build(columns.columns, partitioned_by or columns.partition_columns)
    if isinstance(columns, str):
        if not columns.strip():
            raise InvalidSchema("no columns are given; write for instance 'id bigint, name string'")
        try:
            parsed = parse_type(f"struct<{columns}>")
        except InvalidSchema as error:
            raise InvalidSchema(
                f"{columns!r} cannot be read as columns, such as 'id bigint, name string': {error.message}"
            ) from None
        if not isinstance(parsed, Struct):
            raise InvalidSchema(f"{columns!r} is not a list of columns")
        return Schema.build(parsed.fields, partitioned_by)
    fields = [
        Field(0, name, parse_type(column_type) if isinstance(column_type, str) else column_type)
        for name, column_type in columns.items()
    ]
    return Schema.build(fields, partitioned_by)
