"""The invariants of one lake table: its versions, instants, open writers and blocks refer to each other correctly."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa
from google.protobuf.message import DecodeError

from lakemark_core.errors import LakemarkError, TableNotFound
from lakemark_core.types import Schema
from lakemark_proto.store.v1.store_pb2 import HeadRecord, InstantRecord, StagedTotals, VersionRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.arrow import texts
from lakemark_server.file_index.pages import blocks
from lakemark_server.kv import Store, keys_below
from lakemark_server.store.keyspace import (
    ALIVE,
    BLOCKS,
    HEADS,
    INSTANTS,
    LAST_INSTANT,
    MAIN,
    REMOVED,
    STAGED_SLICES,
    VERSION_TIMES,
    VERSIONS,
)
from lakemark_server.timeline import records
from lakemark_server.timeline.branches import retention
from lakemark_server.timeline.instants.alive import Alive
from lakemark_server.timeline.lineage import OF_MAIN, Lineage
from lakemark_server.verify.buckets import check_buckets
from lakemark_server.verify.references import check_merges, check_references, lineages, references_of
from lakemark_server.verify.schemas import check_versions, schemas_of

Problems: TypeAlias = list[str]
PAGE_BLOCKS: Final = 20
_NO_COLUMNS: Final = Schema(())
_OPEN: Final = frozenset({pb.REQUESTED, pb.INFLIGHT})


def check_table(store: Store, table_id: int, name: str) -> Problems:
    """A sentence for each violation; none for a table that was dropped meanwhile."""
    try:
        table = store.read(lambda tx: lake.load(tx, table_id, or_dropped=True))
    except TableNotFound:
        return []
    look = _Look(store, table)
    look.schemas()
    look.branches()
    look.instants()
    look.living()
    look.blocks()
    look.buckets()
    return [f"{name}: {problem}" for problem in look.problems]


@dataclass
class _Content:
    """What was read of a version's entries."""

    blocks: int = 0
    totals: StagedTotals = field(default_factory=StagedTotals)
    partitions: set[str] = field(default_factory=set)
    removed_blocks: int = 0
    removed_files: int = 0

    def remove(self, block: bytes, what: str, tell: Callable[[str], None]) -> None:
        try:
            self.removed_files += blocks.decode(block, _NO_COLUMNS).num_rows
        except (LakemarkError, pa.ArrowException, ValueError, OSError) as error:
            tell(f"{what} cannot be read: {error}")

    def add(self, batch: pa.RecordBatch) -> None:
        self.totals.files += batch.num_rows
        for row_count, size_bytes in zip(
            batch.column("row_count").to_pylist(), batch.column("size_bytes").to_pylist(), strict=True
        ):
            self.totals.rows += row_count or 0
            self.totals.bytes += size_bytes or 0
        self.partitions.update(texts(batch.column("partition")))


class _Look:
    """One walk over a table. Each step needs the steps before it."""

    def __init__(self, store: Store, table: LakeTable) -> None:
        self.store, self.table, self.table_id = store, table, table.table_id
        self.problems: Problems = []
        self._schemas: dict[int, Schema] = {}
        self._lineages: dict[str, Lineage] = {}
        self._by_branch: dict[str, dict[int, VersionRecord]] = {}
        self._by_instant: dict[int, VersionRecord] = {}
        self._states: dict[int, InstantRecord] = {}
        self._content: dict[int, _Content] = {}
        self._trimmed: dict[str, int] = {}  # by branch: up to this version only pinned versions have records

    def schemas(self) -> None:
        """Every schema exists and can read the files of all earlier ones."""
        self._schemas, problems = schemas_of(self.store, self.table)
        self.problems += problems

    def branches(self) -> None:
        """Every branch forks from a version of its parent; tags and merges refer to existing versions."""
        branches, tags, problems = references_of(self.store, self.table_id)
        self.problems += problems
        self._lineages = {MAIN: OF_MAIN} | lineages(branches, self._tell)
        cleaned = dict(self.store.read(lambda tx: retention.all_cleaned(tx, self.table_id)))
        self._trimmed = {key: record.trimmed for key, record in cleaned.items()}
        for key in self._lineages:
            self._versions(key)
            missing = set(cleaned[key].pinned) - self._by_branch[key].keys() if key in cleaned else set()
            self._tell_each(f"versions of {key!r} that something keeps are not there", missing)
            self._head_and_times(key)
        self.problems += check_versions(self.store, self.table, self._by_branch[MAIN])
        self.problems += check_references(branches, tags, self._lineages, self._by_branch, self._trimmed)
        self.problems += check_merges(self.store, self.table_id, self._lineages, self._by_branch, self._trimmed)

    def _versions(self, key: str) -> None:
        """Versions after the fork have no gap and are in order of time.

        Each has an instant of its own, and its read version is older than itself.
        """
        lineage, versions = self._lineages[key], self._by_branch.setdefault(key, {})
        last, trimmed = self._fork(lineage), self._trimmed.get(key, 0)
        of = "" if key == MAIN else f" of branch {key!r}"
        for (number,), value in keys_below(self.store, VERSIONS, self.table_id, key, page=PAGE_BLOCKS):
            record = VersionRecord.FromString(value)
            where = f"version {number}{of}"
            if record.version != number:
                self._tell(f"{where} has the record of version {record.version}")
            if record.version != last.version + 1 and record.version - 1 > trimmed:
                self._tell(f"{where} follows version {last.version}: there is a gap")
            if record.committed_ms < last.committed_ms:
                self._tell(f"{where} was committed at {record.committed_ms} ms, before version {last.version}")
            if not 0 <= record.read_version < record.version:
                self._tell(f"{where} has the read version {record.read_version}")
            if record.instant in self._by_instant:
                self._tell(f"{where} and version {self._by_instant[record.instant].version} are of one instant")
            content = self._content[record.instant] = _Content()
            if record.inline_block:
                self._decode(record, record.inline_block, f"the block in {where}", content)
            if record.inline_removed:
                content.remove(record.inline_removed, f"the removed files in {where}", self._tell)
            record.inline_block = record.inline_removed = b""
            versions[record.version] = self._by_instant[record.instant] = last = record

    def _fork(self, lineage: Lineage) -> VersionRecord:
        """The version that a branch forks from."""
        fork = lineage.forks[0][1]
        if lineage.key == MAIN or not fork:
            return VersionRecord()
        record = self.store.read(lambda tx: records.version(tx, self.table_id, lineage, fork))
        if record is None:
            self._tell(f"branch {lineage.key!r} forks at version {fork}, which is not there")
        return record or VersionRecord(version=fork)

    def _head_and_times(self, key: str) -> None:
        """The head is the last version, and every version can be found by its time."""
        of = "" if key == MAIN else f" of branch {key!r}"
        stored = self.store.read(lambda tx: tx.get(HEADS.key(self.table_id, key)))
        head = HeadRecord.FromString(stored) if stored else HeadRecord()
        versions = self._by_branch[key]
        latest = versions[max(versions)] if versions else self._fork(self._lineages[key])
        trimmed = self._trimmed.get(key, 0)
        if not 0 < head.version <= trimmed and (head.version, head.committed_ms) != (
            latest.version,
            latest.committed_ms,
        ):
            self._tell(
                f"the head{of} is version {head.version} of {head.committed_ms} ms; the last version is "
                f"{latest.version} of {latest.committed_ms} ms"
            )
        times = {(ms, version) for (ms, version), _ in keys_below(self.store, VERSION_TIMES, self.table_id, key)}
        wanted: set[tuple[object, object]] = {(record.committed_ms, record.version) for record in versions.values()}
        without = {time for time in times - wanted if isinstance(time[1], int) and time[1] > trimmed}
        self._tell_each(f"times without their version{of}", without)
        self._tell_each(f"versions{of} that cannot be found by their time", wanted - times)

    def instants(self) -> None:
        """Completed instants and versions correspond one to one."""
        stored = self.store.read(lambda tx: tx.get(LAST_INSTANT.key(self.table_id)))
        last = int.from_bytes(stored, "big") if stored else 0
        for (number,), value in keys_below(self.store, INSTANTS, self.table_id):
            record = InstantRecord.FromString(value)
            if record.instant != number or record.instant > last:
                self._tell(f"instant {number} has the record of {record.instant}; the last one given out is {last}")
            self._states[record.instant] = record
            version = self._by_instant.get(record.instant)
            quiet = record.operation in (pb.CLEAN_FILES, pb.MAKE_SAVEPOINT)
            if record.state == pb.COMPLETED and not quiet and (version is None or version.version != record.version):
                self._tell(f"instant {number} is completed as version {record.version}, which is not there")
            if record.state != pb.COMPLETED and version is not None:
                state = pb.InstantState.Name(record.state)
                self._tell(f"instant {number} is {state}, but is version {version.version}")
        self._tell_each("versions without their instant", self._by_instant.keys() - self._states.keys())

    def living(self) -> None:
        """Exactly the open instants have a heartbeat."""
        living = set()
        for (number,), value in keys_below(self.store, ALIVE, self.table_id):
            record = self._states.get(number) if isinstance(number, int) else None
            if record is None or record.state not in _OPEN:
                self._tell(f"instant {number} has a heartbeat and is not open")
            elif Alive.unpack(record.instant, value).inflight != (record.state == pb.INFLIGHT):
                self._tell(f"instant {number} has the heartbeat of another state")
            living.add(number)
        self._tell_each(
            "open instants without a heartbeat",
            {record.instant for record in self._states.values() if record.state in _OPEN} - living,
        )

    def blocks(self) -> None:
        """Blocks that versions refer to exist, can be read and have the totals that versions state.

        Instants that were rolled back have none.
        """
        for (instant, number), value in keys_below(self.store, BLOCKS, self.table_id, page=PAGE_BLOCKS):
            version = self._by_instant.get(instant) if isinstance(instant, int) else None
            self._check_kept(instant, "blocks")
            if version is not None and isinstance(number, int) and number < version.staged.blocks:
                content = self._content[version.instant]
                content.blocks += 1
                self._decode(version, value, f"block {number} of version {version.version}", content)
        for (instant, number), value in keys_below(self.store, REMOVED, self.table_id, page=PAGE_BLOCKS):
            version = self._by_instant.get(instant) if isinstance(instant, int) else None
            self._check_kept(instant, "removed files")
            if version is not None and isinstance(number, int) and number < version.removed.blocks:
                content = self._content[version.instant]
                content.removed_blocks += 1
                content.remove(value, f"block {number} of files removed by version {version.version}", self._tell)
        for (instant, *_), _ in keys_below(self.store, STAGED_SLICES, self.table_id, page=PAGE_BLOCKS):
            self._check_kept(instant, "slices")
        for instant, content in self._content.items():
            self._check_content(self._by_instant[instant], content)

    def buckets(self) -> None:
        """No two base files may have one key."""
        self.problems += check_buckets(self.store, self.table, self._lineages.values())

    def _check_kept(self, instant: object, what: str) -> None:
        record = self._states.get(instant) if isinstance(instant, int) else None
        if record is None or record.state not in _OPEN | {pb.COMPLETED}:
            self._tell(f"instant {instant} is not there or was rolled back, but has staged {what}")

    def _check_content(self, version: VersionRecord, content: _Content) -> None:
        where, staged = f"version {version.version}", version.staged
        if content.blocks != staged.blocks:
            self._tell(f"{where} has {content.blocks} of its {staged.blocks} blocks")
        elif (content.totals.files, content.totals.rows, content.totals.bytes) != (
            staged.files,
            staged.rows,
            staged.bytes,
        ):
            self._tell(f"{where} says {staged.files} files of {staged.rows} rows, and has {content.totals.files}")
        if (content.removed_blocks, content.removed_files) != (version.removed.blocks, version.removed.files):
            self._tell(f"{where} removes {version.removed.files} files, and names {content.removed_files}")
        if not version.all_partitions and not content.partitions <= set(version.partitions):
            self._tell(f"{where} has files in partitions that it does not name")

    def _decode(self, version: VersionRecord, block: bytes, what: str, content: _Content) -> None:
        schema = self._schemas.get(version.file_schema_id or version.schema_id)
        if schema is None:
            self._tell(
                f"{what} was written with schema {version.file_schema_id or version.schema_id}, which is missing"
            )
            return
        try:
            content.add(blocks.decode(block, schema))
        except (LakemarkError, DecodeError, pa.ArrowException, ValueError, OSError) as error:
            self._tell(f"{what} cannot be read: {error}")

    def _tell(self, problem: str) -> None:
        self.problems.append(problem)

    def _tell_each(self, problem: str, which: AbstractSet[object]) -> None:
        if which:
            some = ", ".join(map(str, sorted(which, key=str)[:10]))
            self._tell(f"{problem}: {some}" + (" …" if len(which) > 10 else ""))
