"""What versions changed, read from the store: added and removed entries, restores and merges."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, Protocol

import pyarrow as pa

from lakemark_core.errors import CorruptStore
from lakemark_core.types import Schema
from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_proto.v1 import timeline_pb2
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.arrow import AnyArray
from lakemark_server.file_index.pages import blocks
from lakemark_server.file_index.pages.blocks import page_of
from lakemark_server.file_index.pages.contents import PageRef, StoredEntries, with_version
from lakemark_server.file_index.pages.source import PageSource, SnapshotGone
from lakemark_server.file_index.parts.fold import Snapshot, VersionEdit, restoring
from lakemark_server.file_index.parts.part import PART_FILES_MAX, Part, in_memory
from lakemark_server.kv import ReadTransaction, Space, Store
from lakemark_server.store.keyspace import BLOCKS, REMOVED
from lakemark_server.timeline import records
from lakemark_server.timeline.branches import forks, retention
from lakemark_server.timeline.conflicts.changes import Run, replays_of
from lakemark_server.timeline.lineage import Lineage

VERSIONS_A_READ: Final = 2_000
BLOCKS_A_READ: Final = 64
# Commits of at least this many files stay in the store until their columns are asked for.
STORED_FILES_MIN: Final = 2_048

Load = Callable[[Lineage, int], Snapshot]


class Schemas(Protocol):
    """The schemas of one table, by id."""

    def __call__(self, schema_id: int) -> Schema:
        """The schema with this id. Raises CorruptStore."""


class History:
    """The edits of one table's versions. ``load`` gives the snapshots that restores refer to."""

    def __init__(self, source: PageSource, table: LakeTable, schemas: Schemas, load: Load) -> None:
        self._source, self._store = source, source.store
        self._table, self._schemas, self._load = table, schemas, load

    def records(self, lineage: Lineage, after: int, upto: int) -> list[VersionRecord]:
        """The records of all versions ``after < version <= upto``.

        Raises CorruptStore, TableNotFound (dropped), SnapshotGone.
        """
        table_id = self._table.table_id
        versions = self._store.read(lambda tx: records.versions(tx, table_id, lineage, after, upto))
        if [record.version for record in versions] != list(range(after + 1, upto + 1)):
            self._require_table()
            present = {record.version for record in versions}
            first = next(version for version in range(after + 1, upto + 1) if version not in present)
            if self._store.read(lambda tx: retention.cleaned(tx, table_id, lineage.owner(first))).trimmed >= first:
                raise SnapshotGone(f"version {first} of {self._table.name} was cleaned meanwhile; ask again")
            raise CorruptStore(f"versions {after + 1} to {upto} of {self._table.name} are not complete")
        return versions

    def changes(self, lineage: Lineage, record: VersionRecord) -> list[VersionEdit]:
        """What a version did, as edits in order."""
        edits: list[VersionEdit] = []
        if record.restored_version:
            edits.append(VersionEdit(record.version, restored=self._load(lineage, record.restored_version)))
        edits += self.replayed(replays_of(record), record.version)
        edits.append(self._own(record, record.version))
        return edits

    def replayed(self, runs: Iterable[Run], version: int) -> Iterator[VersionEdit]:
        """What other branches did in these runs, as edits of ``version``."""
        for run in runs:
            lineage = self._store.read(lambda tx, key=run.branch: forks.lineage(tx, self._table.table_id, key))  # type: ignore[misc]
            for first in range(run.after, run.upto, VERSIONS_A_READ):
                for record in self.records(lineage, first, min(first + VERSIONS_A_READ, run.upto)):
                    if not record.HasField("merged"):
                        yield from self._replayed(lineage, record, version)

    def _replayed(self, lineage: Lineage, record: VersionRecord, version: int) -> Iterator[VersionEdit]:
        if record.restored_version:
            # A restore replays as the change that it made on its own branch: the content before it may differ here.
            before, target = self._load(lineage, record.version - 1), self._load(lineage, record.restored_version)
            edit = restoring(before.parts, target.parts, version)
            yield VersionEdit(version, removed=edit.removed, added=edit.added, unless_live=True)
        yield self._own(record, version)

    def _own(self, record: VersionRecord, version: int) -> VersionEdit:
        return VersionEdit(
            version,
            everything=record.operation == timeline_pb2.OVERWRITE_TABLE,
            partitions=frozenset(record.partitions if record.operation == timeline_pb2.OVERWRITE_PARTITIONS else ()),
            removed=self._removed(record),
            added=tuple(self._added(record, version)),
        )

    def _added(self, record: VersionRecord, version: int) -> Iterator[Part]:
        """The entries in staged blocks and in the version's own record. Many blocks are read only on demand."""
        if not record.staged.blocks and not record.inline_block:
            return
        schema = self._schemas(record.file_schema_id or record.schema_id)
        group: list[PageRef] = []
        for number, key, block in self._blocks(BLOCKS, record, record.staged.blocks):
            page = page_of(block) if record.staged.files >= STORED_FILES_MIN else None
            if page is None:
                yield from self._stored(group, schema)
                yield in_memory(with_version(self._small(key, block, schema), version), schema)
                group = []
                continue
            if sum(other.entries for other in group) + page.entries > PART_FILES_MAX:
                yield from self._stored(group, schema)
                group = []
            self._source.remember(key, page)
            group.append(PageRef(self._table.table_id, record.instant, number, page.entries, version, block=True))
        yield from self._stored(group, schema)
        if record.inline_block:
            name = "inline", self._table.table_id, record.instant
            batch = self._small(name, record.inline_block, schema)
            if batch.num_rows:
                yield in_memory(with_version(batch, version), schema)

    def _small(self, name: Hashable, block: bytes, schema: Schema) -> pa.RecordBatch:
        """Few entries, cached in a form that is fast to read and, unlike arrays, small in memory."""
        if page_of(block) is not None:
            return blocks.decode(block, schema)
        known = self._source.kept(("small", name), lambda: blocks.packed(blocks.decode(block, schema)), len)
        return blocks.unpacked(known, schema)

    def _stored(self, pages: list[PageRef], schema: Schema) -> Iterator[Part]:
        if pages:
            yield Part(StoredEntries(pages, schema, self._source))

    def _removed(self, record: VersionRecord) -> AnyArray | None:
        if not record.removed.blocks and not record.inline_removed:
            return None
        batches = [blocks.decode_fixed(block) for *_, block in self._blocks(REMOVED, record, record.removed.blocks)]
        if record.inline_removed:
            batches.append(blocks.decode_fixed(record.inline_removed))
        return pa.concat_arrays([batch.column("path") for batch in batches])

    def _blocks(self, space: Space, record: VersionRecord, count: int) -> Iterator[tuple[int, bytes, bytes]]:
        """The number, key and value of each block."""
        for first in range(0, count, BLOCKS_A_READ):
            numbers = range(first, min(first + BLOCKS_A_READ, count))
            keys = [space.key(self._table.table_id, record.instant, number) for number in numbers]
            for number, key, block in zip(numbers, keys, self._read(keys), strict=True):
                if block is None:
                    self._require_table()
                    raise CorruptStore(
                        f"block {number} of version {record.version} of {self._table.name} is missing",
                        table=self._table.name,
                    )
                yield number, key, block

    def _read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._store.read(lambda tx: tx.get_many(keys))

    def _require_table(self) -> None:
        """Raises TableNotFound if the table was dropped while it was read."""
        require_table(self._store, self._table.table_id)


def require_table(store: Store, table_id: int) -> None:
    """Raises TableNotFound if the table was dropped."""

    def body(tx: ReadTransaction) -> None:
        lake.get_record(tx, table_id)

    store.read(body)
