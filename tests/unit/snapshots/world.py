"""A lake table whose versions tests write straight into a store, with a plain model of their content.

The timeline takes no part, so versions may do what conflict rules would refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lakemark_core.types import BIGINT, INT, Field, Schema
from lakemark_proto.store.v1.store_pb2 import (
    BranchRecord,
    HeadRecord,
    LakeTableRecord,
    Merged,
    RemovedTotals,
    Replayed,
    StagedTotals,
    VersionRecord,
)
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.catalog import lake
from lakemark_server.file_index.arrow import texts
from lakemark_server.file_index.entries.columns import FIXED, from_messages
from lakemark_server.file_index.pages import blocks
from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_server.kv import Store, Transaction, open_store
from lakemark_server.snapshots.base_builds import Folding, Thresholds
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.store.keyspace import BLOCKS, MAIN, REMOVED
from lakemark_server.timeline import records
from lakemark_server.timeline.branches import forks
from lakemark_server.timeline.lineage import OF_MAIN, Lineage

TABLE = 7
FIRST = 1_800_000_000_000
# Schema 1, then: id widened and x added; then x dropped and y added.
SCHEMAS = [
    Schema.build([Field(1, "id", INT), Field(2, "m", INT)], ["m"], 1),
    Schema.build([Field(1, "id", BIGINT), Field(3, "x", INT), Field(2, "m", INT)], ["m"], 2),
    Schema.build([Field(1, "id", BIGINT), Field(4, "y", INT), Field(2, "m", INT)], ["m"], 3),
]


@dataclass(frozen=True)
class Entry:
    """What the model knows of a file."""

    path: str
    partition: str
    added: int
    schema_id: int
    low: int


Content = dict[str, Entry]


@dataclass
class Branch:
    lineage: Lineage
    head: int
    merged: int  # up to here its versions are in its parent


@dataclass
class World:
    """``contents``: by branch key and version. ``steps``: how to replay each version."""

    store: Store
    schema_id: int = 1
    clock: int = FIRST
    contents: dict[tuple[str, int], Content] = field(default_factory=dict)
    records: dict[tuple[str, int], VersionRecord] = field(default_factory=dict)
    branches: dict[str, Branch] = field(default_factory=lambda: {MAIN: Branch(OF_MAIN, 0, 0)})

    @classmethod
    def open(cls, directory: Path) -> World:
        world = cls(open_store(f"sqlite:///{directory}/world.db"))
        world.contents[MAIN, 0] = {}

        def body(tx: Transaction) -> None:
            lake.put(tx, LakeTableRecord(table_id=TABLE, database="default", name="t", location="file:/t", schema_id=1))
            for schema in SCHEMAS:
                lake.put_schema(tx, TABLE, schema)

        world.store.transact(body)
        return world

    @property
    def table(self) -> lake.LakeTable:
        return self.store.read(lambda tx: lake.load(tx, TABLE))

    def content(self, lineage: Lineage, version: int) -> Content:
        return self.contents[lineage.owner(version), version] if version else {}

    def versions(self) -> list[tuple[Lineage, int]]:
        """Every version of every branch."""
        return [(one.lineage, version) for one in self.branches.values() for version in range(one.head + 1)]

    # -- what happens -------------------------------------------------------------------------------------------------

    def alter(self, name: str) -> None:
        """The next schema of the table, as a version of a branch."""
        self.schema_id = min(self.schema_id + 1, len(SCHEMAS))
        record = LakeTableRecord(
            table_id=TABLE, database="default", name="t", location="file:/t", schema_id=self.schema_id
        )
        self.store.transact(lambda tx: lake.put(tx, record))
        self.commit(name, t.ALTER_SCHEMA)

    def commit(
        self,
        name: str,
        operation: t.Operation.ValueType,
        months: Sequence[int] = (),
        *,
        removed: Sequence[str] = (),
        staged: bool = False,
        file_schema_id: int = 0,
        restored: int = 0,
        merged: Merged | None = None,
    ) -> int:
        """A version with a file in each of the months. ``staged``: its entries in blocks of their own."""
        branch = self.branches[name]
        self.clock += 1
        written = SCHEMAS[(file_schema_id or self.schema_id) - 1]
        version = branch.head + 1
        files = [self._file(self.clock, number, month, written) for number, month in enumerate(months)]
        partitions = sorted({f"m={month}" for month in months})
        record = VersionRecord(
            version=version,
            instant=self.clock,
            committed_ms=self.clock,
            operation=operation,
            read_version=branch.head,
            schema_id=self.schema_id,
            file_schema_id=file_schema_id,
            partitions=partitions,
            restored_version=restored,
            merged=merged,
            staged=StagedTotals(files=len(files), rows=5 * len(files), bytes=10 * len(files)),
        )
        before = self.content(branch.lineage, branch.head)
        gone = [before[path] for path in removed]
        blocks_, listed = blocks.encode(from_messages(files, written)), blocks.encode_list(p.DataFileList(files=files))
        removals = blocks.encode(_fixed(gone))
        record.removed.CopyFrom(RemovedTotals(files=len(gone)))
        if staged:
            record.staged.blocks, record.removed.blocks = len(blocks_), len(removals)
        else:
            record.inline_block = (listed or b"") if files else b""
            record.inline_removed = removals[0] if removals else b""

        def body(tx: Transaction) -> None:
            if staged:
                for space, encoded in ((BLOCKS, blocks_), (REMOVED, removals)):
                    for number, block in enumerate(encoded):
                        tx.set(space.key(TABLE, record.instant, number), block)
            records.put_version(tx, TABLE, branch.lineage.key, record)
            records.put_head(tx, TABLE, branch.lineage.key, HeadRecord(version=version, committed_ms=self.clock))

        self.store.transact(body)
        entries = {
            one.path: Entry(one.path, f"m={month}", version, written.schema_id, index)
            for index, (one, month) in enumerate(zip(files, months, strict=True))
        }
        content = dict(before)
        if restored:
            target = self.content(branch.lineage, restored)
            content = {
                path: content[path] if path in content else replace(entry, added=version)
                for path, entry in target.items()
            }
        if merged:
            content = self._replayed(content, merged, version)
        self.contents[branch.lineage.key, version] = _applied(content, record, {one.path for one in gone}, entries)
        self.records[branch.lineage.key, version] = record
        branch.head = version
        return version

    def fork(self, parent: str, version: int) -> str:
        name = f"b{len(self.branches)}"
        record = BranchRecord(
            name=name, key=f"{name}#1", parent_key=self.branches[parent].lineage.at(version).key, fork_version=version
        )
        above = self.branches[parent].lineage.at(version)
        lineage = self.store.transact(lambda tx: forks.put_branch(tx, TABLE, record, above))
        self.branches[name] = Branch(lineage, version, version)
        return name

    def fold(self, name: str) -> None:
        """A base of a branch, made by a new process. It may refuse to share what a newer base replaced."""
        snapshots = Snapshots(self.store)
        folding = Folding(self.store, snapshots, lambda: self.clock, Thresholds())
        folding.fold(self.table, self.branches[name].lineage)

    def merge(self, name: str, into: str) -> None:
        """Replays what is new on a branch; nothing is merged twice."""
        source = self.branches[name]
        if source.merged < source.head:
            key = source.lineage.key
            merged = Merged(branch=key, name=name, after_version=source.merged, upto_version=source.head)
            for number in range(source.merged + 1, source.head + 1):
                own = Replayed(branch=key, after_version=number - 1, upto_version=number)
                merged.replayed.extend(self.records[key, number].merged.replayed or [own])
            source.merged = source.head
            self.commit(into, t.MERGE_BRANCH, merged=merged)

    def _replayed(self, content: Content, merged: Merged, version: int) -> Content:
        for run in merged.replayed:
            lineage = next(one.lineage for one in self.branches.values() if one.lineage.key == run.branch)
            number = run.upto_version
            record = self.records[run.branch, number]
            before, after = self.content(lineage, number - 1), self.content(lineage, number)
            if record.restored_version:
                gone, fresh = before.keys() - after.keys(), after.keys() - before.keys() - content.keys()
                content = {path: entry for path, entry in content.items() if path not in gone}
                content |= {path: replace(after[path], added=version) for path in sorted(fresh)}
                continue
            own = {path: entry for path, entry in after.items() if path.startswith(f"{record.instant}/")}
            named = blocks.decode_fixed(record.inline_removed) if record.inline_removed else None
            gone = set(texts(named.column("path"))) if named else self._staged_removals(record)
            own = {path: replace(entry, added=version) for path, entry in own.items()}
            content = _applied(content, record, gone, own)
        return content

    def _staged_removals(self, record: VersionRecord) -> set[str]:
        begin, end = REMOVED.range(TABLE, record.instant)
        stored = self.store.read(lambda tx: tx.get_range(begin, end))
        return {path for _, value in stored for path in texts(blocks.decode_fixed(value).column("path"))}

    def _file(self, instant: int, number: int, month: int, schema: Schema) -> p.DataFile:
        statistic = p.ColumnStatistics(column_id=1, null_count=0)
        statistic.min.integer, statistic.max.integer = number, number + 3
        return p.DataFile(
            path=f"{instant}/m={month}/g{number}/f.parquet",
            file_group=f"g{number}",
            kind=p.BASE,
            format="parquet",
            size_bytes=10,
            row_count=5,
            partition=[p.Value(integer=month)],
            statistics=[statistic],
        )

    # -- what is seen -------------------------------------------------------------------------------------------------

    def check(self, snapshots: Snapshots, lineage: Lineage, version: int) -> None:
        """The version in these snapshots equals the model."""
        read = snapshots.again(lambda: found(snapshots.load(self.table, lineage, version)))
        assert read == self.content(lineage, version), f"version {version} of {lineage.key}"


def found(snapshot: Snapshot) -> Content:
    """The files of a snapshot; each is there once."""
    result: Content = {}
    for part in snapshot.parts:
        entries = part.live_entries()
        lows = entries.column("min.1").to_pylist()
        for row, low in zip(entries.to_pylist(), lows, strict=True):
            path = row["path"]
            assert path not in result, f"{path} is there twice"
            result[path] = Entry(path, row["partition"], row["added_version"], part.schema.schema_id, low)
    return result


def _applied(content: Content, record: VersionRecord, gone: set[str], added: Content) -> Content:
    if record.operation == t.OVERWRITE_TABLE:
        content = {}
    if record.operation == t.OVERWRITE_PARTITIONS:
        content = {path: entry for path, entry in content.items() if entry.partition not in record.partitions}
    return {path: entry for path, entry in content.items() if path not in gone} | added


def _fixed(gone: Sequence[Entry]):  # type: ignore[no-untyped-def]
    files = [
        p.DataFile(path=one.path, file_group="g", row_count=5, partition=[p.Value(integer=int(one.partition[2:]))])
        for one in gone
    ]
    return from_messages(files, SCHEMAS[0]).select(FIXED.names)
