"""The invariants of the schemas of a lake table."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import cast

from lakemark_core.errors import LakemarkError
from lakemark_core.evolution import readable_with
from lakemark_core.types import Field, ListOf, MapOf, Schema, Struct, Type
from lakemark_proto.store.v1.schema_pb2 import SchemaVersionRecord
from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.kv import Store
from lakemark_server.store.keyspace import SCHEMA_VERSIONS


def schemas_of(store: Store, table: LakeTable) -> tuple[dict[int, Schema], list[str]]:
    """All schemas by id, and violations: every schema exists, no column id is reused, each can read all earlier
    ones."""
    schemas: dict[int, Schema] = {}
    problems: list[str] = []
    gone: set[int] = set()
    for schema_id in range(1, table.record.schema_id + 1):
        try:
            schema = store.read(lambda tx, schema_id=schema_id: lake.get_schema(tx, table.table_id, schema_id))  # type: ignore[misc]
        except LakemarkError as error:
            problems.append(error.message)
            continue
        before = schemas.get(schema_id - 1)
        ids = _ids(schema)
        if before is not None:
            problems += [f"schema {schema_id}: {reason}" for reason in readable_with(before, schema)]
            gone |= _ids(before) - ids
        if gone & ids:
            problems.append(f"schema {schema_id} uses ids of dropped columns again: {sorted(gone & ids)[:10]}")
        if max(ids) > table.record.last_column_id:
            problems.append(f"schema {schema_id} has column id {max(ids)}; the last is {table.record.last_column_id}")
        schemas[schema_id] = schema
    return schemas, problems


def check_versions(store: Store, table: LakeTable, versions: Mapping[int, VersionRecord]) -> list[str]:
    """A schema belongs to the version of main that changed it, and every version has the schema of the last change."""
    pairs = store.read(lambda tx: tx.get_range(*SCHEMA_VERSIONS.range(table.table_id)))
    came = {
        SchemaVersionRecord.FromString(value).version: cast(int, SCHEMA_VERSIONS.unpack(key)[-1])
        for key, value in pairs
    }
    problems = []
    if sorted(came.values()) != list(range(2, table.record.schema_id + 1)):
        problems.append(f"schemas {sorted(came.values())} came with versions; the latest is {table.record.schema_id}")
    changes = sorted(came)
    for version, record in sorted(versions.items()):
        if (record.operation == pb.ALTER_SCHEMA) != (version in came):
            problems.append(f"version {version}: operation and schemas do not agree on whether it changed the schema")
        last = bisect.bisect_right(changes, version)
        expected = came[changes[last - 1]] if last else 1
        if record.schema_id != expected or record.file_schema_id > expected:
            problems.append(
                f"version {version} has schema {record.schema_id} and files of schema {record.file_schema_id}; the "
                f"last change before it made schema {expected}"
            )
    return problems


def _ids(schema: Schema) -> set[int]:
    return {column_id for column in schema.columns for column_id in _field_ids(column)}


def _field_ids(field: Field) -> set[int]:
    return {field.id} | _type_ids(field.type)


def _type_ids(column_type: Type) -> set[int]:
    match column_type:
        case Struct(fields):
            return {column_id for field in fields for column_id in _field_ids(field)}
        case ListOf(element, element_id):
            return {element_id} | _type_ids(element)
        case MapOf(key, value, key_id, value_id):
            return {key_id, value_id} | _type_ids(key) | _type_ids(value)
    return set()
