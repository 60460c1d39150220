"""The sequence of a lake table's schemas, inside a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from lakemark_core.errors import FailedPrecondition
from lakemark_core.evolution import SchemaChange
from lakemark_core.file_layout import CLUSTERING_COLUMNS_PROPERTY
from lakemark_core.partition_ttl import COLUMN_PROPERTY as TTL_COLUMN_PROPERTY
from lakemark_core.table_kind import KEY_PROPERTY, ORDERING_PROPERTY
from lakemark_core.types import Schema
from lakemark_proto.store.v1.schema_pb2 import SchemaVersionRecord
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord
from lakemark_server.catalog import engine_names, lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.catalog.schema_changes import ColumnUse, apply_changes, describe
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.store.keyspace import SCHEMA_VERSIONS

CHANGES_KEPT: Final = 100
CHANGE_CHARS_KEPT: Final = 300

COLUMN_PROPERTIES: Final[Mapping[str, bool]] = {
    KEY_PROPERTY: True,
    ORDERING_PROPERTY: False,
    CLUSTERING_COLUMNS_PROPERTY: False,
    TTL_COLUMN_PROPERTY: False,
}
"""Table properties that name columns, separated by commas; and whether hashes of these columns' values are stored.

A property that is listed here keeps its columns from being dropped and renamed.
"""


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A schema, the version that it came with (0: the table was created with it), its time, and what it changed."""

    schema: Schema
    version: int
    committed_ms: int
    changes: tuple[str, ...] = ()


def changed(table: LakeTable, changes: Sequence[SchemaChange], expected_schema_id: int = 0) -> LakeTable:
    """The table with its next schema; the same table if the changes make no difference. Pure.

    Raises InvalidSchema with every change that is refused and why, LimitExceeded, and FailedPrecondition if the latest
    schema is not the expected one (0: any).
    """
    latest = table.record.schema_id
    if expected_schema_id not in (0, latest):
        raise FailedPrecondition(
            f"{table.name} has schema {latest} by now, not {expected_schema_id}: look at it and try again",
            table=table.name,
            schema_id=str(expected_schema_id),
            latest_schema_id=str(latest),
        )
    schema, last_id = apply_changes(
        table.schema, table.record.last_column_id, changes, uses_of(table.record.properties)
    )
    if schema == table.schema:
        return table
    engine_names.check_columns(schema, table.schema)
    record = LakeTableRecord()
    record.CopyFrom(table.record)
    record.schema_id, record.last_column_id = latest + 1, last_id
    return LakeTable(record, replace(schema, schema_id=latest + 1))


def uses_of(
    properties: Mapping[str, str], column_properties: Mapping[str, bool] = COLUMN_PROPERTIES
) -> dict[str, ColumnUse]:
    """The columns that a table's properties name, by name in lower case."""
    return {
        column.strip().lower(): ColumnUse(name, exact)
        for name, exact in column_properties.items()
        for column in properties.get(name, "").split(",")
        if column.strip()
    }


def put(tx: Transaction, table: LakeTable, changes: Sequence[SchemaChange], version: int, committed_ms: int) -> None:
    """Writes the table that ``changed`` returned, with the number and the time of the version that it comes with."""
    lake.put(tx, table.record)
    lake.put_schema(tx, table.table_id, table.schema)
    words = [describe(change)[:CHANGE_CHARS_KEPT] for change in changes[:CHANGES_KEPT]]
    record = SchemaVersionRecord(version=version, committed_ms=committed_ms, changes=words)
    tx.set(SCHEMA_VERSIONS.key(table.table_id, table.schema.schema_id), record.SerializeToString())


def all_of(tx: ReadTransaction, table: LakeTable) -> list[SchemaVersion]:
    """All schemas of the table, the latest one last."""
    first = lake.get_schema(tx, table.table_id, 1)
    versions = [SchemaVersion(first, 0, table.record.created_ms)]
    for key, value in tx.get_range(*SCHEMA_VERSIONS.range(table.table_id)):
        record = SchemaVersionRecord.FromString(value)
        schema = lake.get_schema(tx, table.table_id, cast(int, SCHEMA_VERSIONS.unpack(key)[-1]))
        versions.append(SchemaVersion(schema, record.version, record.committed_ms, tuple(record.changes)))
    return versions
