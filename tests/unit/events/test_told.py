"""Each change tells its event, with the change and once; what is refused or asked again tells nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lakemark_core.errors import AlreadyExists, CommitConflict, NotFound, TableNotFound
from lakemark_core.evolution import AddColumn
from lakemark_core.types import BIGINT, Field
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, LakeTableRecord
from lakemark_proto.store.v1.warehouse_pb2 import ConstraintRecord
from lakemark_proto.v1 import admin_pb2, catalog_pb2
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.catalog import events as catalog_events
from lakemark_server.catalog import warehouse_partitions
from lakemark_server.catalog.clean_schedule import Retention
from lakemark_server.catalog.events import NewConstraint
from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.catalog.warehouse_records import HiveTable, Partition, new_partition
from lakemark_server.catalog.warehouse_tables import TableChange, TableDefinition
from lakemark_server.events.log import EventLog
from lakemark_server.kv import blob
from lakemark_server.store.keyspace import EVENTS, HIVE_TABLES
from lakemark_server.store.mutations import Mutation
from lakemark_server.timeline.jobs.alteration import AlterJob
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.publication.commits import CommitDraft
from lakemark_server.timeline.references import MergeDraft, ReferenceDraft
from tests.event_replay import replay_problems
from tests.lakes import FLAT, Lake, file, profile

HIVE = "hive"


class Told:
    """The events of a catalog that were not looked at yet."""

    def __init__(self, lake: Lake) -> None:
        self._log = EventLog(lake.store)
        self._position = self._log.end(HIVE)

    def __call__(self) -> list[pb.Event]:
        events = []
        while True:
            page = self._log.page(HIVE, self._position)
            self._position = page.position
            events += page.events
            if page.whole:
                return events

    def one(self) -> pb.Event:
        (event,) = self()
        return event

    def kinds(self) -> list[str]:
        return [pb.EventKind.Name(event.kind) for event in self()]


@pytest.fixture
def told(lake: Lake) -> Told:
    return Told(lake)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where warehouse tables own their data."""
    return tmp_path / "warehouse"


@pytest.fixture
def warehouse(lake: Lake) -> Warehouse:
    return Warehouse(lake.catalog)


def definition(place: Path, name: str = "w", hive: bytes = b"thrift") -> TableDefinition:
    return TableDefinition(name, hive, "MANAGED_TABLE", f"file:{place}/{name}", True, [("p", "string")])


@pytest.fixture
def hive_table(warehouse: Warehouse, place: Path) -> HiveTable:
    return warehouse.tables.create(warehouse.catalog.get_database(HIVE, "default"), definition(place))


def row(table: HiveTable, value: str, head: bytes = b"head") -> Partition:
    return new_partition(table, (value,), f"{table.record.location}/p={value}", head, b"tail", located=True)


# -- databases and lake tables ----------------------------------------------------------------------------------------


def test_databases(lake: Lake, warehouse: Warehouse, told: Told) -> None:
    lake.catalog.create_database(DatabaseRecord(name="sales", description="d"), request_id="r1")
    lake.catalog.create_database(DatabaseRecord(name="sales", description="d"), request_id="r1")
    created = told.one()
    assert (created.kind, created.database, created.request_id) == (pb.DATABASE_CREATED, "sales", "r1")
    assert created.database_change.after.description == "d"
    assert not created.database_change.HasField("before")

    def describe(record: DatabaseRecord) -> DatabaseRecord:
        record.description = "other"
        return record

    warehouse.alter_database(HIVE, "sales", describe)
    altered = told.one()
    change = altered.database_change
    assert (altered.kind, change.before.description, change.after.description) == (pb.DATABASE_ALTERED, "d", "other")
    lake.catalog.drop_database(HIVE, "sales")
    dropped = told.one()
    assert (dropped.kind, dropped.database_change.before.name) == (pb.DATABASE_DROPPED, "sales")
    assert not dropped.database_change.HasField("after")


def test_lake_tables_from_creation_to_deletion(lake: Lake, told: Told) -> None:
    table = lake.table("a")
    created = told.one()
    assert (created.kind, created.database, created.table) == (pb.TABLE_CREATED, "default", "a")
    assert created.table_id == table.table_id
    assert [column.name for column in created.table_change.after.schema.columns] == ["id", "x", "name", "place", "m"]

    lake.catalog.set_properties(HIVE, "default", "a", {"owner_team": "x"})
    altered = told.one()
    assert altered.kind == pb.TABLE_ALTERED
    assert "owner_team" not in altered.table_change.before.properties
    assert altered.table_change.after.properties["owner_team"] == "x"

    lake.catalog.rename_lake_table(HIVE, "default", "a", "", "b")
    renamed = told.one()
    assert (renamed.kind, renamed.table) == (pb.TABLE_RENAMED, "b")
    assert (renamed.table_change.before.name.table, renamed.table_change.after.name.table) == ("a", "b")

    lake.timeline.alter_schema(table.table_id, AlterJob((AddColumn(Field(0, "y", BIGINT)),)))
    committed, changed = told()
    assert (committed.kind, committed.commit.operation) == (pb.COMMITTED, t.ALTER_SCHEMA)
    before, after = changed.table_change.before.schema, changed.table_change.after.schema
    assert (changed.kind, len(after.columns) - len(before.columns)) == (pb.SCHEMA_CHANGED, 1)

    lake.catalog.dropped.drop(HIVE, "default", "b")
    lake.catalog.dropped.undrop(HIVE, "default", "b", new_name="c")
    lake.catalog.dropped.drop(HIVE, "default", "c", delete_files=False)
    lake.catalog.dropped.purge(HIVE, "default", "c")
    events = told()
    assert [event.kind for event in events] == [
        pb.TABLE_DROPPED, pb.TABLE_UNDROPPED, pb.TABLE_DROPPED, pb.TABLE_PURGED,
    ]  # fmt: skip
    assert [event.table for event in events] == ["b", "c", "c", "c"]
    assert {event.table_id for event in events} == {table.table_id}
    assert [event.table_change.files_kept for event in events] == [False, False, True, True]


def test_a_drop_at_once_is_a_drop_and_a_deletion(lake: Lake, told: Told) -> None:
    lake.table("a")
    told()
    lake.catalog.dropped.drop(HIVE, "default", "a", now=True)
    assert told.kinds() == ["TABLE_DROPPED", "TABLE_PURGED"]


def test_a_dropped_table_whose_time_is_over(lake: Lake, told: Told) -> None:
    lake.table("a")
    lake.catalog.dropped.drop(HIVE, "default", "a")
    told()
    lake.clock.advance(8 * 86_400_000)
    assert lake.catalog.dropped.purge_due() == ["default.a"]
    assert told.one().kind == pb.TABLE_PURGED


# -- timelines --------------------------------------------------------------------------------------------------------


def test_commits(lake: Lake, told: Told) -> None:
    table = lake.table()
    told()
    instant = lake.open(table, t.APPEND, profile(1), owner="etl")
    lake.stage(table, instant, 1, [file(instant, "a", 1, rows=3), file(instant, "b", 1, rows=4)])
    assert told() == []  # nothing is visible yet
    draft = CommitDraft(instant, None, metadata={"job": "7"}, by=lambda: "ann@host")
    committed = lake.timeline.commit(table, draft)
    event = told.one()
    detail = event.commit
    assert (event.kind, event.by, event.table, event.time_ms) == (pb.COMMITTED, "ann@host", "t", lake.clock())
    assert (detail.branch, detail.version, detail.instant) == ("main", committed.version, instant)
    assert (detail.operation, detail.read_version, list(detail.partitions)) == (t.APPEND, 0, ["m=1"])
    assert (detail.added_files, detail.added_rows, detail.added_bytes) == (2, 7, 20)
    assert (dict(detail.metadata), detail.owner) == ({"job": "7"}, "etl")
    lake.timeline.commit(table, draft)  # asked again
    assert told() == []


def test_a_refused_commit_is_a_rollback(lake: Lake, told: Told) -> None:
    table = lake.table()
    mine = lake.open(table, t.OVERWRITE_PARTITIONS, profile(1))
    lake.timeline.restore(table, lake.put(table, [2]).version)
    told()
    with pytest.raises(CommitConflict):
        lake.commit(table, mine, [file(mine, "a", 1)])
    event = told.one()
    assert (event.kind, event.rollback.instant, event.rollback.branch) == (pb.INSTANT_ROLLED_BACK, mine, "main")
    assert "refused" in event.rollback.reason


def test_rollbacks(lake: Lake, told: Told) -> None:
    table = lake.table()
    asked, lost = lake.open(table), lake.open(table, timeout_ms=10_000)
    told()
    lake.timeline.rollback(table, asked, "no more")
    lake.timeline.rollback(table, asked, "no more")
    lake.clock.advance(20_000)
    assert lake.timeline.roll_back_expired() == [(table.table_id, lost)]
    assert [event.rollback.instant for event in told()] == [asked, lost]


def test_commits_of_one_batch_are_events_of_their_own(lake: Lake, told: Told) -> None:
    one, other = lake.table("one", schema=FLAT), lake.table("other", schema=FLAT)
    instants = [lake.open(table) for table in (one, other)]
    told()
    drafts = [(table, CommitDraft(instant)) for table, instant in zip((one, other), instants, strict=True)]
    lake.timeline.commit_together(drafts)
    assert [event.table for event in told()] == ["one", "other"]


def test_branches_tags_merges_savepoints_restores_and_cleans(lake: Lake, told: Told) -> None:
    table = lake.table()
    lake.put(table, [1])
    told()
    references = lake.timeline.references
    references.create(table, ReferenceDraft("dev", catalog_pb2.BRANCH))
    references.create(table, ReferenceDraft("first", catalog_pb2.TAG, request_id="tag"))
    branch, tag = told()
    assert (branch.kind, branch.reference.name, branch.reference.fork_version) == (pb.BRANCH_CREATED, "dev", 1)
    assert (tag.kind, tag.reference.name, tag.request_id) == (pb.TAG_CREATED, "first", "tag")
    references.drop(table, "first")
    references.drop(table, "dev")
    assert told.kinds() == ["TAG_DROPPED", "BRANCH_DROPPED"]
    references.create(table, ReferenceDraft("soon", catalog_pb2.TAG, retain_ms=1_000))
    lake.clock.advance(2_000)
    references.drop_expired()
    assert told.kinds() == ["TAG_CREATED", "TAG_DROPPED"]

    lake.put(table, [2])
    lake.timeline.savepoints.create(table, 1)
    lake.timeline.savepoints.drop(table, 1)
    lake.timeline.restore(table, 1)
    kinds = told()
    assert [event.kind for event in kinds] == [
        pb.COMMITTED, pb.SAVEPOINT_CREATED, pb.SAVEPOINT_DROPPED, pb.COMMITTED,
    ]  # fmt: skip
    assert kinds[1].savepoint.version == 1
    assert (kinds[3].commit.operation, kinds[3].commit.restored_version) == (t.RESTORE_VERSION, 1)
    lake.put(table, [1], t.OVERWRITE_TABLE)
    lake.clock.advance(10_000)
    told()
    cleaned = lake.cleaner.clean(table, Retention(versions=1))
    event = told.one()
    assert (event.kind, event.clean.instant) == (pb.CLEANED, cleaned.instant)
    assert (event.clean.deleted_files, event.clean.earliest_version) == (cleaned.files, cleaned.earliest_version)


def test_merges(lake: Lake, told: Told) -> None:
    table = lake.table()
    lake.put(table, [1])
    lake.timeline.references.create(table, ReferenceDraft("dev", catalog_pb2.BRANCH))
    opened = lake.timeline.open(table.table_id, OpenJob(operation=t.APPEND, branch="dev", profile=profile(2)))
    instant = opened.record.instant
    told()
    lake.commit(table, instant, [file(instant, "a", 2)])
    lake.timeline.references.merge(table, MergeDraft("dev"))
    on_dev, merged = told()
    assert (on_dev.commit.branch, merged.commit.branch) == ("dev", "main")
    assert (merged.commit.operation, merged.commit.merged_branch) == (t.MERGE_BRANCH, "dev")
    assert merged.commit.added_files == 1


# -- warehouse --------------------------------------------------------------------------------------------------------


def test_warehouse_tables(warehouse: Warehouse, told: Told, place: Path) -> None:
    warehouse.tables.create(warehouse.catalog.get_database(HIVE, "default"), definition(place))
    created = told.one()
    assert (created.kind, created.table, created.table_change.hive_after) == (pb.TABLE_CREATED, "w", b"thrift")
    tables = warehouse.tables
    change = definition(place, hive=b"new")
    tables.alter(HIVE, "default", "w", lambda old: TableChange(old.database, change))
    altered = told.one()
    assert altered.kind == pb.TABLE_ALTERED
    assert (altered.table_change.hive_before, altered.table_change.hive_after) == (b"thrift", b"new")
    moved = definition(place, "v")
    tables.alter(HIVE, "default", "w", lambda old: TableChange(old.database, moved))
    assert told.one().kind == pb.TABLE_RENAMED
    tables.drop(HIVE, "default", "v", delete_data=True)
    dropped = told.one()
    assert (dropped.kind, dropped.table, dropped.table_change.files_kept) == (pb.TABLE_DROPPED, "v", False)
    assert not dropped.table_change.HasField("after")


def test_partitions(warehouse: Warehouse, hive_table: HiveTable, told: Told) -> None:
    told()
    partitions = warehouse.partitions
    partitions.add(hive_table, [row(hive_table, "1"), row(hive_table, "2")])
    with pytest.raises(AlreadyExists):
        partitions.add(hive_table, [row(hive_table, "1"), row(hive_table, "3")])
    partitions.add(hive_table, [row(hive_table, "1")], if_not_exists=True)
    added = told.one()
    change = added.partitions_change
    assert (added.kind, change.count, list(change.columns)) == (pb.PARTITIONS_ADDED, 2, ["p"])
    first = change.partitions[0]
    assert (list(first.values), first.after.location) == (["1"], f"{hive_table.record.location}/p=1")
    assert (first.after.head, first.after.tail) == (b"head", b"tail")

    partitions.alter(hive_table, {(n,): lambda old: old._replace(head=b"other") for n in ("1", "2")})
    altered = told()
    assert [event.kind for event in altered] == [pb.PARTITIONS_ALTERED] * 2  # one each, as in Hive
    state = altered[0].partitions_change.partitions[0]
    assert (state.before.head, state.after.head) == (b"head", b"other")

    partitions.rename(hive_table, ("1",), lambda old: row(hive_table, "9", old.head))
    renamed = told.one()
    state = renamed.partitions_change.partitions[0]
    assert (renamed.kind, list(state.values_before), list(state.values)) == (pb.PARTITIONS_ALTERED, ["1"], ["9"])
    partitions.drop(hive_table, [("9",), ("2",)], delete_data=False, if_exists=False)
    dropped = told.one()
    assert (dropped.kind, dropped.partitions_change.count) == (pb.PARTITIONS_DROPPED, 2)


def test_truncation_is_told_when_the_files_are_gone(
    lake: Lake, warehouse: Warehouse, hive_table: HiveTable, told: Told, place: Path
) -> None:
    plain = TableDefinition("plain", b"thrift", "MANAGED_TABLE", f"file:{place}/plain", True)
    table = warehouse.tables.create(warehouse.catalog.get_database(HIVE, "default"), plain)
    warehouse.partitions.add(hive_table, [row(hive_table, value) for value in ("1", "2", "3")])
    files = [place / "plain" / "f", *(place / "w" / f"p={value}" / "f" for value in ("1", "2"))]
    for one in files:
        one.write_text("x")
    told()
    warehouse.tables.truncate(table)
    event = told.one()
    change = event.table_change
    assert (event.kind, event.table, change.hive_before, change.hive_after) == (
        pb.TABLE_TRUNCATED, "plain", b"thrift", b"thrift",
    )  # fmt: skip
    rows = warehouse.partitions.all(hive_table).rows[:2]
    warehouse.partitions.drop(hive_table, [("2",)], delete_data=False, if_exists=False)
    told()
    warehouse.tables.truncate(hive_table, rows)
    event = told.one()  # the other one is not there any more
    (one,) = event.partitions_change.partitions
    assert (event.kind, list(one.values), one.before == one.after) == (pb.PARTITIONS_TRUNCATED, ["1"], True)
    assert not any(one.exists() for one in files)
    assert replay_problems(lake.store) == []


def test_many_truncated_partitions_are_one_event(
    warehouse: Warehouse, hive_table: HiveTable, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_events, "ALTERED_ONE_BY_ONE_MAX", 2)
    warehouse.partitions.add(hive_table, [row(hive_table, str(n)) for n in range(3)])
    told()
    warehouse.tables.truncate(hive_table, warehouse.partitions.all(hive_table).rows[:2])
    assert told.kinds() == ["PARTITIONS_TRUNCATED"] * 2
    warehouse.tables.truncate(hive_table, warehouse.partitions.all(hive_table).rows)
    assert told.one().partitions_change.count == 3


def test_truncation_of_a_table_that_is_gone_tells_nothing(
    warehouse: Warehouse, hive_table: HiveTable, told: Told
) -> None:
    warehouse.tables.drop(HIVE, "default", "w", delete_data=False)
    told()
    with pytest.raises(TableNotFound):
        warehouse.tables.truncate(hive_table)
    assert told() == []


def test_a_change_of_all_partitions_with_their_table_is_that_of_the_table(
    warehouse: Warehouse, hive_table: HiveTable, told: Told, place: Path
) -> None:
    warehouse.partitions.add(hive_table, [row(hive_table, "1")])
    told()
    change = definition(place, hive=b"new")
    warehouse.tables.alter(
        HIVE,
        "default",
        "w",
        lambda old: TableChange(old.database, change),
        lambda old, new: lambda partition: partition._replace(head=b"new"),
    )
    assert told.kinds() == ["TABLE_ALTERED"]


@pytest.fixture(params=["whole", "named", "counted"])
def limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "whole":
        monkeypatch.setattr(catalog_events, "WHOLE_BYTES_MAX", 100)
    if request.param == "counted":
        monkeypatch.setattr(catalog_events, "LISTED_BYTES_MAX", 10)
    return str(request.param)


def test_many_partitions(warehouse: Warehouse, hive_table: HiveTable, told: Told, limits: str) -> None:
    told()
    warehouse.partitions.add(hive_table, [row(hive_table, str(n)) for n in range(30)])
    change = told.one().partitions_change
    assert change.count == 30
    assert len(change.partitions) == (0 if limits == "counted" else 30)
    assert [state.after.head for state in change.partitions[:1]] == {
        "whole": [b"head"], "named": [b""], "counted": [],
    }[limits]  # fmt: skip


def test_a_batch_in_several_transactions_is_one_event(
    warehouse: Warehouse, hive_table: HiveTable, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warehouse_partitions, "BATCH_BYTES_MAX", 5_000)
    told()
    warehouse.partitions.add(hive_table, [row(hive_table, str(n)) for n in range(30)])
    assert [event.partitions_change.count for event in told()] == [30]


def constraint(kind: ConstraintRecord.Kind.ValueType, name: str, parent: HiveTable | None = None) -> NewConstraint:
    record = ConstraintRecord(
        kind=kind,
        name=name,
        columns=["a"],
        hive=[b"thrift"],
        parent_id=parent.table_id if parent else 0,
        parent_columns=["a"] if parent else [],
    )
    return NewConstraint(record, parent)


def test_constraints_that_are_created_with_their_table(warehouse: Warehouse, place: Path, told: Told) -> None:
    checks = [constraint(ConstraintRecord.CHECK, name) for name in ("c1", "c2")]
    made = [*checks, constraint(ConstraintRecord.PRIMARY_KEY, "pk")]
    database = warehouse.catalog.get_database(HIVE, "default")
    warehouse.tables.create(database, definition(place), decide=lambda *_: made)
    created, *added = told()
    assert (created.kind, created.table) == (pb.TABLE_CREATED, "w")
    assert [(event.kind, event.table_id) for event in added] == [(pb.CONSTRAINTS_ADDED, created.table_id)] * 2
    changes = [event.constraints_change.constraints for event in added]
    assert [[(one.type, one.name) for one in change] for change in changes] == [
        [("PRIMARY_KEY", "pk")],
        [("CHECK", "c1"), ("CHECK", "c2")],
    ]
    assert changes[0][0] == pb.Constraint(type="PRIMARY_KEY", name="pk", columns=["a"], hive=[b"thrift"])


def test_constraints(warehouse: Warehouse, place: Path, hive_table: HiveTable, told: Told) -> None:
    database = warehouse.catalog.get_database(HIVE, "default")
    warehouse.tables.create(database, definition(place, "x"))
    told()
    constraints = warehouse.constraints
    key = constraint(ConstraintRecord.UNIQUE, "u")
    constraints.add(HIVE, "default", "w", lambda *_: [key])
    with pytest.raises(AlreadyExists):
        constraints.add(HIVE, "default", "w", lambda *_: [key])
    reference = constraint(ConstraintRecord.FOREIGN_KEY, "fk", hive_table)
    constraints.add(HIVE, "default", "x", lambda *_: [reference])
    constraints.drop(HIVE, "default", "w", "FK")
    constraints.drop(HIVE, "default", "w", "u")
    with pytest.raises(NotFound):
        constraints.drop(HIVE, "default", "w", "u")
    unique, foreign, *dropped = told()
    assert [(event.kind, event.table) for event in (unique, foreign)] == [
        (pb.CONSTRAINTS_ADDED, "w"),
        (pb.CONSTRAINTS_ADDED, "x"),
    ]
    (told_key,) = foreign.constraints_change.constraints
    assert (told_key.parent_table_id, told_key.parent_columns) == (hive_table.table_id, ["a"])
    assert (told_key.parent_database, told_key.parent_table) == ("default", "w")
    assert [(event.kind, event.table, event.table_id) for event in dropped] == [
        (pb.CONSTRAINT_DROPPED, "x", foreign.table_id),
        (pb.CONSTRAINT_DROPPED, "w", hive_table.table_id),
    ]
    assert [list(event.constraints_change.constraints) for event in dropped] == [
        [pb.Constraint(type="FOREIGN_KEY", name="fk")],
        [pb.Constraint(type="UNIQUE", name="u")],
    ]


def test_foreign_keys_are_told_that_are_lost_with_their_parent(
    warehouse: Warehouse, place: Path, hive_table: HiveTable, told: Told
) -> None:
    database = warehouse.catalog.get_database(HIVE, "default")
    for name in ("x", "y"):
        warehouse.tables.create(database, definition(place, name))
    for child, keys in (("x", "ab"), ("y", "c"), ("w", "d")):
        made = [constraint(ConstraintRecord.FOREIGN_KEY, name, hive_table) for name in keys]
        warehouse.constraints.add(HIVE, "default", child, lambda *_, made=made: made)
    warehouse.tables.alter(HIVE, "default", "y", lambda old: TableChange(database, definition(place, "z")))
    told()
    warehouse.tables.drop(HIVE, "default", "w", delete_data=False)
    *lost, dropped = told()
    assert (dropped.kind, dropped.table) == (pb.TABLE_DROPPED, "w")
    assert {event.kind for event in lost} == {pb.CONSTRAINT_DROPPED}
    assert all(event.constraints_change.with_parent for event in lost)
    assert [(event.table, [one.name for one in event.constraints_change.constraints]) for event in lost] == [
        ("x", ["a", "b"]), ("z", ["c"]),
    ]  # fmt: skip


def test_a_key_of_a_table_whose_names_are_not_known_is_told_by_its_parent(
    warehouse: Warehouse, place: Path, hive_table: HiveTable, told: Told
) -> None:
    database = warehouse.catalog.get_database(HIVE, "default")
    child = warehouse.tables.create(database, definition(place, "x"))
    key = constraint(ConstraintRecord.FOREIGN_KEY, "fk", hive_table)
    warehouse.constraints.add(HIVE, "default", "x", lambda *_: [key])
    told()

    def forget(mutation: Mutation) -> None:  # as an earlier build wrote it
        blob.put(mutation.tx, HIVE_TABLES.space(child.table_id), child.record.SerializeToString())

    warehouse.catalog.mutations.run(forget)
    warehouse.constraints.drop(HIVE, "default", "w", "fk")
    (dropped,) = told()
    assert (dropped.kind, dropped.table) == (pb.CONSTRAINT_DROPPED, "w")


def test_functions(warehouse: Warehouse, told: Told) -> None:
    functions = warehouse.functions
    functions.create(HIVE, "default", "F", b"1")
    functions.alter(HIVE, "default", "f", "default", "g", lambda old: old + b"2")
    functions.drop(HIVE, "default", "g")
    created, altered, dropped = told()
    assert [event.kind for event in (created, altered, dropped)] == [
        pb.FUNCTION_CREATED, pb.FUNCTION_ALTERED, pb.FUNCTION_DROPPED,
    ]  # fmt: skip
    change = altered.function_change
    assert (change.name_before, change.hive_before, change.name_after, change.hive_after) == ("f", b"1", "g", b"12")
    assert (dropped.function_change.name_before, dropped.function_change.name_after) == ("g", "")


def test_a_function_that_moves_is_told_of_in_both_databases(warehouse: Warehouse, told: Told) -> None:
    warehouse.catalog.create_database(DatabaseRecord(name="sales"))
    warehouse.functions.create(HIVE, "default", "f", b"1")
    told()
    warehouse.functions.alter(HIVE, "default", "f", "sales", "g", lambda _: b"2")
    assert [(event.kind, event.database) for event in told()] == [
        (pb.FUNCTION_DROPPED, "default"), (pb.FUNCTION_CREATED, "sales"),
    ]  # fmt: skip


def test_statistics(warehouse: Warehouse, hive_table: HiveTable, told: Told) -> None:
    told()
    warehouse.statistics.put(hive_table, "p=1", {"A": b"1", "b": b"2"})
    assert warehouse.statistics.delete(hive_table, "p=1", "a")
    assert not warehouse.statistics.delete(hive_table, "p=1", "a")
    put, deleted = (event.statistics_change for event in told())
    assert (put.partition, list(put.columns), list(put.hive)) == ("p=1", ["a", "b"], [b"1", b"2"])
    assert (list(deleted.columns), deleted.deleted) == (["a"], True)


def test_quotas(lake: Lake, told: Told) -> None:
    lake.catalog.quotas.set(HIVE, admin_pb2.Quota(tables=5), request_id="q")
    lake.catalog.quotas.set(HIVE, admin_pb2.Quota(tables=5), request_id="q")
    event = told.one()
    assert (event.kind, event.quota.own.tables) == (pb.QUOTA_CHANGED, 5)


# -- what is refused --------------------------------------------------------------------------------------------------


def _twice(lake: Lake) -> None:
    lake.table("x")


def _same_name(lake: Lake) -> None:
    lake.catalog.create_database(DatabaseRecord(name="default"))


REFUSED: Sequence[Callable[[Lake], None]] = [_twice, _same_name]


@pytest.mark.parametrize("change", REFUSED)
def test_what_is_refused_tells_nothing(lake: Lake, told: Told, change: Callable[[Lake], None]) -> None:
    lake.table("x")
    told()
    with pytest.raises(AlreadyExists):
        change(lake)
    assert told() == []


def test_catalogs_have_logs_of_their_own(lake: Lake, told: Told) -> None:
    lake.catalog.create_database(DatabaseRecord(catalog="other", name="d"))
    lake.catalog.create_lake_table(LakeTableRecord(catalog="other", database="d", name="t"), FLAT)
    assert told() == []
    log = EventLog(lake.store)
    page = log.page("other", log.begin("other", 0))
    assert [(event.offset, pb.EventKind.Name(event.kind)) for event in page.events] == [
        (1, "DATABASE_CREATED"), (2, "TABLE_CREATED"),
    ]  # fmt: skip


def test_the_log_replayed_is_the_metadata(lake: Lake, warehouse: Warehouse, hive_table: HiveTable, place: Path) -> None:
    """What the replay of other tests looks for, on a bit of everything."""
    lake.catalog.create_database(DatabaseRecord(name="sales"))
    warehouse.partitions.add(hive_table, [row(hive_table, "1"), row(hive_table, "2")])
    warehouse.partitions.drop(hive_table, [("1",)], delete_data=False, if_exists=False)
    warehouse.functions.create(HIVE, "sales", "f", b"1")
    table = lake.table()
    for month in (1, 2):
        lake.put(table, [month])
    lake.timeline.references.create(table, ReferenceDraft("dev", catalog_pb2.BRANCH))
    lake.timeline.references.create(table, ReferenceDraft("first", catalog_pb2.TAG, from_version=1))
    lake.timeline.alter_schema(table.table_id, AlterJob((AddColumn(Field(0, "y", BIGINT)),)))
    lake.timeline.rollback(table, lake.open(table), "no more")
    lake.catalog.rename_lake_table(HIVE, "default", "t", "sales", "t2")
    assert replay_problems(lake.store) == []
    # Without its log, every part of it is missed.
    lake.store.transact(lambda tx: tx.clear_range(*EVENTS.range()))
    problems = "\n".join(replay_problems(lake.store))
    for what in ("databases", "functions of sales", "tables"):
        assert what in problems
