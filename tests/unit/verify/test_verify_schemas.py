"""What the checker reports of schemas that do not fit each other or the versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from lakemark_core.evolution.statements import parse_changes
from lakemark_core.types import INT, Field, Schema
from lakemark_proto.store.v1.schema_pb2 import SchemaVersionRecord
from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_server.catalog import lake as lakes
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.kv import Transaction
from lakemark_server.store.keyspace import SCHEMA_VERSIONS, SCHEMAS, VERSIONS
from lakemark_server.timeline.jobs.alteration import AlterJob
from lakemark_server.verify import verify
from tests.lakes import Lake

Damage = Callable[[Transaction, LakeTable], object]


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    """Versions: files, a change that drops a column, files, a change that adds one."""
    made = lake.table()
    lake.put(made, [1])
    lake.timeline.alter_schema(made.table_id, AlterJob(tuple(parse_changes("DROP COLUMN name"))))
    lake.put(made, [2])
    return lake.timeline.alter_schema(made.table_id, AlterJob(tuple(parse_changes("ADD COLUMN tip INT"))))


def rewritten(schema_id: int, change: Callable[[Schema], Schema]) -> Damage:
    def damage(tx: Transaction, table: LakeTable) -> None:
        lakes.put_schema(tx, table.table_id, change(lakes.get_schema(tx, table.table_id, schema_id)))

    return damage


def with_column(column: Field) -> Callable[[Schema], Schema]:
    return lambda schema: Schema.build([*schema.columns, column], schema.partition_columns, schema.schema_id)


def narrower(schema: Schema) -> Schema:
    columns = [replace(one, type=INT) if one.name == "id" else one for one in schema.columns]
    return Schema.build(columns, schema.partition_columns, schema.schema_id)


def version(number: int, **fields: int) -> Damage:
    def damage(tx: Transaction, table: LakeTable) -> None:
        key = VERSIONS.key(table.table_id, "main", number)
        record = VersionRecord.FromString(tx.get(key) or b"")
        for name, value in fields.items():
            setattr(record, name, value)
        tx.set(key, record.SerializeToString())

    return damage


def came(schema_id: int, number: int) -> Damage:
    record = SchemaVersionRecord(version=number).SerializeToString()
    return lambda tx, table: tx.set(SCHEMA_VERSIONS.key(table.table_id, schema_id), record)


DAMAGES: list[tuple[str, Damage]] = [
    ("schema 2 of table id", lambda tx, table: tx.clear_range(*SCHEMAS.space(table.table_id, 2).range())),
    ("uses ids of dropped columns again: [3]", rewritten(3, with_column(Field(3, "name2", INT)))),
    ("has column id 99; the last is", rewritten(3, with_column(Field(99, "far", INT)))),
    ("schema 2: column 'id' was bigint and is int now", rewritten(2, narrower)),
    ("schemas [3] came with versions; the latest is 3", lambda tx, t: tx.clear(SCHEMA_VERSIONS.key(t.table_id, 2))),
    ("operation and schemas do not agree", came(3, 3)),
    ("version 3 has schema 1", version(3, schema_id=1)),
    ("files of schema 3", version(3, file_schema_id=3)),
]


def test_healthy(lake: Lake, table: LakeTable) -> None:
    assert table.record.schema_id == 3
    assert verify(lake.store) == []


@pytest.mark.parametrize(("problem", "damage"), DAMAGES, ids=[problem for problem, _ in DAMAGES])
def test_damage_is_told(lake: Lake, table: LakeTable, problem: str, damage: Damage) -> None:
    lake.store.transact(lambda tx: damage(tx, table))
    assert any(problem in told for told in verify(lake.store)), verify(lake.store)
