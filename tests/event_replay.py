"""The log of events, replayed: it leads to the metadata that the store has, and each version is told once, in order."""

from __future__ import annotations

from typing import Any

from lakemark_proto.v1 import catalog_pb2
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.catalog import databases, definitions, lake, tables, warehouse_records
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.events.log import EventLog
from lakemark_server.kv import Store, keys_below
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.store.keyspace import FUNCTIONS, INSTANTS
from lakemark_server.timeline import records
from lakemark_server.timeline.service import Timeline

CREATED = {pb.TABLE_CREATED, pb.TABLE_UNDROPPED}
CHANGED = {pb.TABLE_ALTERED, pb.TABLE_RENAMED, pb.SCHEMA_CHANGED, pb.TABLE_TRUNCATED}


class Replay:
    """What the events say that there is. ``problems``: events that cannot follow those before them."""

    def __init__(self) -> None:
        self.databases: dict[str, str] = {}  # by name: the description
        self.tables: dict[int, tuple[catalog_pb2.Table, bytes]] = {}
        self.partitions: dict[int, set[tuple[str, ...]]] = {}
        self.functions: dict[tuple[str, str], bytes] = {}
        self.heads: dict[tuple[int, str], int] = {}  # by table id and branch
        self.tags: dict[tuple[int, str], int] = {}
        self.rolled_back: set[tuple[int, int]] = set()  # table ids and instants
        self.committed: set[tuple[int, int]] = set()
        self.problems: list[str] = []

    def apply(self, event: pb.Event) -> None:
        detail = event.WhichOneof("detail")
        if detail is not None:
            getattr(self, f"_{detail}", lambda _: None)(event)

    def _expect(self, right: bool, event: pb.Event, what: str) -> None:
        if not right:
            self.problems.append(f"event {event.offset} ({pb.EventKind.Name(event.kind)} {event.table}): {what}")

    def _database_change(self, event: pb.Event) -> None:
        there = event.database in self.databases
        self._expect(there == (event.kind != pb.DATABASE_CREATED), event, "the database")
        if event.kind == pb.DATABASE_DROPPED:
            self.databases.pop(event.database, None)
        else:
            self.databases[event.database] = event.database_change.after.description

    def _table_change(self, event: pb.Event) -> None:
        change, table_id = event.table_change, event.table_id
        there = table_id in self.tables
        if event.kind in CREATED:
            self._expect(not there, event, "it is there")
            if event.kind == pb.TABLE_CREATED and change.after.kind == catalog_pb2.LAKE:
                self.heads[table_id, "main"] = 0
        elif event.kind in CHANGED or event.kind == pb.TABLE_DROPPED:
            self._expect(there, event, "it is not there")
            if there:
                before = self.tables[table_id]
                told = (change.before, change.hive_before)
                self._expect(_same(before[0], told[0]) and before[1] == told[1], event, "it was not so before")
        if event.kind == pb.TABLE_TRUNCATED:
            unchanged = change.before == change.after and change.hive_before == change.hive_after
            self._expect(unchanged, event, "it changed more than files")
        if event.kind == pb.TABLE_DROPPED:
            self.tables.pop(table_id, None)
            self.partitions.pop(table_id, None)
        elif event.kind != pb.TABLE_PURGED:
            self.tables[table_id] = (change.after, change.hive_after)
        else:
            self._expect(not there, event, "it was not dropped")
            for known in (self.heads, self.tags):
                for key in [key for key in known if key[0] == table_id]:
                    del known[key]

    def _partitions_change(self, event: pb.Event) -> None:
        known = self.partitions.setdefault(event.table_id, set())
        self._expect(event.table_id in self.tables, event, "its table is not there")
        for change in event.partitions_change.partitions:
            values = tuple(change.values)
            before = tuple(change.values_before) or values
            self._expect((before in known) == change.HasField("before"), event, f"the partition {before}")
            if event.kind == pb.PARTITIONS_TRUNCATED:
                self._expect(change.before == change.after, event, f"the partition {before} changed more than files")
            if change.HasField("before"):
                known.discard(before)
            if change.HasField("after"):
                known.add(values)

    def _function_change(self, event: pb.Event) -> None:
        change = event.function_change
        if change.name_before:
            stored = self.functions.pop((event.database, change.name_before), None)
            self._expect(stored == change.hive_before, event, "the function")
        if change.name_after:
            self.functions[event.database, change.name_after] = change.hive_after

    def _commit(self, event: pb.Event) -> None:
        detail = event.commit
        head = self.heads.get((event.table_id, detail.branch))
        self._expect(head is not None and detail.version == head + 1, event, f"version {detail.version} behind {head}")
        self._expect((event.table_id, detail.instant) not in self.committed, event, "its instant was committed before")
        self.heads[event.table_id, detail.branch] = detail.version
        self.committed.add((event.table_id, detail.instant))

    def _rollback(self, event: pb.Event) -> None:
        instant = event.table_id, event.rollback.instant
        self._expect(instant not in self.rolled_back | self.committed, event, "its instant was ended before")
        self.rolled_back.add(instant)

    def _reference(self, event: pb.Event) -> None:
        reference, key = event.reference, (event.table_id, event.reference.name)
        known = self.heads if reference.kind == catalog_pb2.BRANCH else self.tags
        if event.kind in (pb.BRANCH_CREATED, pb.TAG_CREATED):
            self._expect(key not in known, event, f"{reference.name} is there")
            known[key] = reference.version
        else:
            self._expect(known.pop(key, None) == reference.version, event, f"{reference.name} at {reference.version}")


def _same(one: catalog_pb2.Table, other: catalog_pb2.Table) -> bool:
    """Versions are told by commits."""
    both = []
    for table in (one, other):
        copy = catalog_pb2.Table()
        copy.CopyFrom(table)
        copy.version = 0
        both.append(copy)
    return both[0] == both[1]


def replayed(store: Store, catalog: str = "hive") -> Replay:
    """The state to which the log of the catalog leads."""
    log, replay = EventLog(store), Replay()
    position = log.begin(catalog, 0)
    while True:
        page = log.page(catalog, position)
        for event in page.events:
            replay.apply(event)
        if page.whole:
            return replay
        position = page.position


def replay_problems(store: Store, catalog: str = "hive") -> list[str]:
    """How the metadata differ from those to which the catalog's log leads. Nobody may write meanwhile."""
    replay = replayed(store, catalog)
    wrong = list(replay.problems)

    def compare(what: str, told: Any, stored: Any) -> None:
        if told != stored:
            wrong.append(f"{what}: the events say {told}, the store has {stored}")

    owners = store.read(lambda tx: databases.listed(tx, catalog))
    compare("databases", replay.databases, {owner.name: owner.description for owner in owners})
    names: set[tuple[str, str, int]] = set()
    for owner in owners:
        for name, entry in store.read(lambda tx, owner=owner: tables.listed(tx, owner.database_id)):  # type: ignore[misc]
            names.add((owner.name, name, entry.table_id))
            if entry.table_id not in replay.tables:
                continue
            if entry.kind == catalog_pb2.WAREHOUSE:
                _compare_warehouse_table(store, replay, owner, name, entry, compare)
            else:
                _compare_lake_table(store, replay, entry.table_id, compare)
        functions = {
            (owner.name, str(items[-1])): value for items, value in keys_below(store, FUNCTIONS, owner.database_id)
        }
        told = {key: value for key, value in replay.functions.items() if key[0] == owner.name}
        compare(f"functions of {owner.name}", told, functions)
    live = {(told.name.database, told.name.table, table_id) for table_id, (told, _) in replay.tables.items()}
    compare("tables", live, names)
    return wrong


def _compare_warehouse_table(store: Store, replay: Replay, owner: Any, name: str, entry: Any, compare: Any) -> None:
    table = store.read(lambda tx: warehouse_records.table_of_entry(tx, owner, name, entry))
    compare(name, replay.tables[entry.table_id], (definitions.warehouse_table(table), table.record.hive))
    begin, end = warehouse_records.partition_range(entry.table_id, ())
    rows = store.read(lambda tx: warehouse_records.partitions_in(tx, entry.table_id, begin, end))
    compare(f"partitions of {name}", replay.partitions.get(entry.table_id, set()), {row.values for row in rows})


def _compare_lake_table(store: Store, replay: Replay, table_id: int, compare: Any) -> None:
    table: LakeTable = store.read(lambda tx: lake.load(tx, table_id))
    told = replay.tables[table_id][0]
    if not _same(told, definitions.lake_table(table)):
        compare(table.name, told, definitions.lake_table(table))
    references = Timeline(store, Snapshots(store)).references.find(table)
    for kind, known in ((catalog_pb2.BRANCH, replay.heads), (catalog_pb2.TAG, replay.tags)):
        mine = {name: version for (at, name), version in known.items() if at == table_id}
        compare(
            f"branches and tags of {table.name}",
            mine,
            {reference.name: reference.version for reference in references if reference.kind == kind},
        )
    for items, value in keys_below(store, INSTANTS, table_id):
        record = records.parse_instant(value, int(str(items[0])))
        if record.state == t.ROLLED_BACK and record.operation != t.MAKE_SAVEPOINT:
            compare(f"instant {record.instant} rolled back", (table_id, record.instant) in replay.rolled_back, True)
