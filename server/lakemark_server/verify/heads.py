"""The data files of the latest versions of a store's lake tables, on all branches: what readers need now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lakemark_core.errors import TableNotFound
from lakemark_proto.v1 import catalog_pb2
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.parts.locate import difference
from lakemark_server.file_index.parts.part import Part
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.timeline import records
from lakemark_server.timeline.branches import forks
from lakemark_server.timeline.lineage import OF_MAIN, Lineage
from lakemark_server.verify.names import Name, names_of
from lakemark_server.verify.orphans import Orphan, find_orphans

_CACHE_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class HeadFiles:
    """The files of one lake table. Each file occurs once, however many branches have it."""

    table_id: int
    name: str
    location: str
    parts: Sequence[Part]

    @property
    def files(self) -> int:
        """How many files there are."""
        return sum(part.files for part in self.parts)

    @property
    def bytes(self) -> int:
        """How many bytes the files have."""
        return sum(part.total("size_bytes") for part in self.parts)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Batches with the columns ``path`` (relative to the location) and ``size_bytes``."""
        for part in self.parts:
            batch = pa.record_batch(
                [part.column(name) for name in ("path", "size_bytes")], names=["path", "size_bytes"]
            )
            yield batch if part.live is None else batch.filter(pa.array(part.live))


class Heads:
    """Reads head files from a store. The store may be in use meanwhile; then tables come from different moments."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots = Snapshots(store, _CACHE_BYTES)

    def orphans(self, table_id: int) -> list[Orphan]:
        """The files that lie below a table's location and that nobody has. Raises CorruptStore, Unavailable."""
        return find_orphans(self._store, self._snapshots, table_id)

    def names(self) -> list[Name]:
        """The names of all tables, warehouse tables included."""
        return names_of(self._store)

    def lake_tables(self) -> list[Name]:
        """The names of all lake tables, in order of database and name."""
        return [name for name in self.names() if name.entry.kind == catalog_pb2.LAKE]

    def files(self, table_id: int) -> HeadFiles | None:
        """The head files of a table; None if it was dropped. Raises CorruptStore."""
        try:
            return self._snapshots.again(lambda: self._files(table_id))
        except TableNotFound:
            return None

    def _files(self, table_id: int) -> HeadFiles:
        table, heads = self._store.read(lambda tx: _heads(tx, table_id))
        parts: list[Part] = []
        for lineage, version in heads:
            head_parts = self._snapshots.load(table, lineage, version).parts
            parts += difference(head_parts, parts) if parts else head_parts
        return HeadFiles(table_id, table.name, table.record.location, parts)


def _heads(tx: ReadTransaction, table_id: int) -> tuple[LakeTable, list[tuple[Lineage, int]]]:
    """The table, and each branch with its latest version, main first."""
    table = lake.load(tx, table_id)
    lineages = [OF_MAIN, *(forks.lineage(tx, table_id, branch.key) for branch in forks.branches(tx, table_id))]
    fork_points = [lineage.forks[0] for lineage in lineages]
    latest = [max(records.head(tx, table_id, key).version, fork) for key, fork in fork_points]
    return table, list(zip(lineages, latest, strict=True))
