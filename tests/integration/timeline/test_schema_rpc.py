"""AlterSchema and ListSchemas over gRPC, with writers and plans of several schemas."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import snapshot_pb2 as s
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.process import Service
from lakemark_server.verify import verify
from tests.lakes import Clock, file, stat, whole
from tests.wire import Wire, refused

Change = c.SchemaChange


@pytest.fixture(autouse=True)
def healthy(service: Service) -> object:
    """Whatever a test did, the store's invariants hold."""
    yield
    assert verify(service.store) == []


def add(name: str, kind: str = "int") -> Change:
    return Change(add=Change.AddColumn(column=p.Column(name=name, type=p.Type(primitive=kind))))


def rename(column: str, new_name: str) -> Change:
    return Change(rename=Change.RenameColumn(column=column, new_name=new_name))


def drop(column: str) -> Change:
    return Change(drop=Change.DropColumn(column=column))


def widen(column: str, kind: str) -> Change:
    return Change(widen=Change.WidenColumn(column=column, type=p.Type(primitive=kind)))


def alter(wire: Wire, *changes: Change, **more: Any) -> c.Table:
    return wire.catalog.AlterSchema(c.AlterSchemaRequest(name=wire.table, changes=changes, **more))


def schemas(wire: Wire) -> list[c.SchemaVersion]:
    return list(wire.catalog.ListSchemas(c.ListSchemasRequest(name=wire.table)).schemas)


def names(schema: p.Schema) -> list[str]:
    return [column.name for column in schema.columns]


def columns(wire: Wire, **at: Any) -> list[str]:
    return names(wire.snapshot(**at).schema)


def test_a_change_is_a_version_with_its_own_schema(wire: Wire, clock: Clock) -> None:
    wire.create()
    wire.commit(wire.open().instant)
    clock.advance(1_000)
    table = alter(wire, rename("x", "fare"), add("tip"))
    assert (table.version, table.schema.schema_id, names(table.schema)) == (2, 2, ["id", "fare", "name", "tip", "m"])
    clock.advance(1_000)
    assert alter(wire, drop("name")).version == 3
    assert columns(wire) == ["id", "fare", "tip", "m"]
    assert columns(wire, version=2) == ["id", "fare", "name", "tip", "m"]
    assert columns(wire, version=1) == ["id", "x", "name", "m"]
    assert columns(wire, timestamp_ms=clock() - 1) == ["id", "fare", "name", "tip", "m"]

    first, second, third = schemas(wire)
    assert [one.schema.schema_id for one in (first, second, third)] == [1, 2, 3]
    assert [one.version for one in (first, second, third)] == [0, 2, 3]
    assert third.committed_ms - second.committed_ms == 1_000
    assert list(second.changes) == ["rename column x to fare", "add column tip int"]
    assert {column.name: column.id for column in third.schema.columns} == {"id": 1, "fare": 2, "tip": 5, "m": 4}

    (version,) = wire.timeline.ListVersions(t.ListVersionsRequest(table=wire.table, after_version=2)).versions
    assert (version.operation, version.schema_id, version.added_files) == (t.ALTER_SCHEMA, 3, 0)
    assert dict(version.metadata) == {"changes": "drop column name"}
    assert wire.get(version.instant).action == t.SCHEMA


def test_all_or_none(wire: Wire) -> None:
    wire.create()
    with refused("invalid_schema", "drop column m: it is a partition column", "widen column id to int"):
        alter(wire, add("tip"), drop("m"), widen("id", "int"))
    assert (wire.snapshot().version, len(schemas(wire))) == (0, 1)
    with refused("invalid_argument", "no change"):
        alter(wire)
    with refused("invalid_argument", "is empty"):
        alter(wire, Change())
    with refused("invalid_argument", "belongs to the table"):
        alter(wire, add("tip"), branch="dev")


def test_the_expected_schema_is_compared(wire: Wire) -> None:
    wire.create()
    assert alter(wire, add("a"), expected_schema_id=1).schema.schema_id == 2
    with refused("failed_precondition", "has schema 2 by now") as error:
        alter(wire, add("b"), expected_schema_id=1)
    assert error().detail.details["latest_schema_id"] == "2"
    assert columns(wire)[-2:] == ["a", "m"]


def test_asked_again_it_happens_once(wire: Wire) -> None:
    wire.create()
    first = alter(wire, add("a"), request_id="schema-once")
    assert alter(wire, add("a"), request_id="schema-once") == first
    assert len(schemas(wire)) == 2
    with refused("invalid_schema", "case does not matter"):
        alter(wire, add("A"))


def test_a_dry_run_says_what_would_be(wire: Wire) -> None:
    wire.create()
    would_be = alter(wire, add("a"), rename("x", "y"), dry_run=True)
    assert (would_be.schema.schema_id, names(would_be.schema)) == (2, ["id", "y", "name", "a", "m"])
    with refused("invalid_schema", "drop column m"):
        alter(wire, drop("m"), dry_run=True)
    assert (columns(wire), len(schemas(wire))) == (["id", "x", "name", "m"], 1)


def test_what_changes_nothing_makes_no_version(wire: Wire) -> None:
    wire.create()
    relax = Change(relax=Change.RelaxColumn(column="id"))
    assert (alter(wire, relax).version, len(schemas(wire))) == (0, 1)


def test_a_writer_of_the_older_schema_commits_after_the_change(wire: Wire) -> None:
    wire.create()
    old = wire.open()
    alter(wire, drop("x"), rename("name", "who"), widen("id", "decimal(20,0)"))
    new = wire.open()
    assert (old.schema.schema_id, new.schema.schema_id) == (1, 2)
    # Its files have column x, its bounds are those of a bigint.
    given = file(old.instant, "a", 1, stats=[stat(1, 5, 9, 0), p.ColumnStatistics(column_id=2, null_count=1)])
    wire.stage(old.instant, 1, given)
    assert wire.commit(old.instant, file(old.instant, "b", 1, stats=[stat(1, 10, 19)])).version == 2
    decimal = p.ColumnStatistics(column_id=1, min=p.Value(decimal="20"), max=p.Value(decimal="29"))
    assert wire.commit(new.instant, file(new.instant, "c", 1, stats=[decimal])).version == 3
    assert wire.snapshot(version=2).schema.schema_id == 2
    assert [path[-10:] for path in planned(wire, "id < 10")] == ["a/a.parquet"[-10:]]
    assert len(planned(wire, "id BETWEEN 10 AND 25")) == 2
    with refused("invalid_file", "column id 2"):
        instant = wire.open().instant
        wire.commit(instant, file(instant, "d", 1, stats=[p.ColumnStatistics(column_id=2, null_count=1)]))


def planned(wire: Wire, sql: str) -> list[str]:
    answer = wire.plan(sql, encoding=s.PROTOBUF)
    return [one.path for one in answer.files.list.files]


def test_a_writer_that_begins_again_gets_the_schema_that_it_began_with(wire: Wire) -> None:
    wire.create()
    opened = wire.open(start=False, request_id="begins-twice")
    alter(wire, rename("name", "who"))
    again = wire.open(start=False, request_id="begins-twice")
    assert (again.instant, names(again.schema), again.schema.schema_id) == (opened.instant, names(opened.schema), 1)
    assert wire.start(opened.instant).schema.schema_id == 1
    assert wire.open().schema.schema_id == 2


def test_the_schema_that_a_commit_names_counts(wire: Wire) -> None:
    wire.create()
    instant = wire.open().instant
    alter(wire, widen("m", "bigint"), add("tip"))
    with refused("invalid_schema", "no schema 3; its schemas are 1 to 2"):
        wire.commit(instant, file(instant, "a", 1), schema_id=3)
    tip = p.ColumnStatistics(column_id=5, min=whole(1), max=whole(3))
    with refused("invalid_file", "column id 5"):
        wire.commit(instant, file(instant, "a", 1, stats=[tip]))
    assert wire.commit(instant, file(instant, "a", 1, stats=[tip]), schema_id=2).version == 2
    assert len(planned(wire, "tip = 2")) == 1
    assert planned(wire, "tip = 4") == []
    instant = wire.open().instant
    wire.stage(instant, 1, file(instant, "a", 1))
    with refused("invalid_schema", "were staged with schema 2"):
        wire.commit(instant, schema_id=1)


def test_columns_of_one_name_are_kept_apart(wire: Wire) -> None:
    wire.create()
    instant = wire.open().instant
    wire.commit(instant, file(instant, "a", 1, stats=[stat(1, 5, 9, 0)]))
    alter(wire, drop("id"))
    alter(wire, add("id", "bigint"))
    assert planned(wire, "id = 7") == []
    assert len(planned(wire, "id IS NULL")) == 1
    at = s.SnapshotReference(version=1)
    assert wire.plan("id = 7", at).summary.files_planned == 1
    assert wire.plan("id = 4", at).summary.files_planned == 0


def test_a_branch_has_the_schema_from_its_next_commit_on(wire: Wire) -> None:
    wire.create()
    instant = wire.open().instant
    wire.commit(instant, file(instant, "a", 1, stats=[stat(1, 5, 9, 0)]))
    wire.catalog.CreateReference(c.CreateReferenceRequest(table=wire.table, name="dev", kind=c.BRANCH))
    alter(wire, rename("id", "key"), drop("x"))
    assert columns(wire, branch="dev") == ["id", "x", "name", "m"]
    instant = wire.open(branch="dev").instant
    wire.commit(instant, file(instant, "b", 1, stats=[stat(1, 15, 19, 0)]))
    assert columns(wire, branch="dev") == columns(wire) == ["key", "name", "m"]
    found = wire.plan("key = 7", s.SnapshotReference(branch="dev"), encoding=s.PROTOBUF).files.list.files
    assert [(one.path[-13:], one.schema_id) for one in found] == [("m=1/a/a.parquet"[-13:], 1)]
    merged = wire.catalog.MergeBranch(c.MergeBranchRequest(table=wire.table, branch="dev", into="main"))
    assert merged.version == 3
    assert [len(planned(wire, sql)) for sql in ("key = 7", "key = 17", "key IS NULL")] == [1, 1, 0]


def test_changes_and_commits_at_once(wire: Wire) -> None:
    """Every version has the schema of the last change before it, in whatever order they came."""
    wire.create()
    failures: list[BaseException] = []

    def run(work: Any) -> None:
        try:
            for number in range(8):
                work(number)
        except BaseException as error:
            failures.append(error)

    def commit(number: int) -> None:
        instant = wire.open().instant
        wire.commit(instant, file(instant, f"f{number}", 1))

    workers = [
        threading.Thread(target=run, args=(work,)) for work in (commit, commit, lambda n: alter(wire, add(f"c{n}")))
    ]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert failures == []
    versions = list(wire.timeline.ListVersions(t.ListVersionsRequest(table=wire.table)).versions)
    assert len(versions) == 24
    expected, found = 1, []
    for version in versions:
        expected += version.operation == t.ALTER_SCHEMA
        found.append(version.schema_id == expected)
    assert all(found)
    assert [one.version for one in schemas(wire)[1:]] == [v.version for v in versions if v.operation == t.ALTER_SCHEMA]
    assert len(wire.paths()) == 16
