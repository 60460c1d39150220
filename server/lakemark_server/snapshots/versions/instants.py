"""What readers ask of instants: the version before an instant, and the file groups that compactions will rewrite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_proto.v1 import timeline_pb2
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.store.keyspace import ALIVE
from lakemark_server.timeline import records
from lakemark_server.timeline.conflicts.group_ids import group_id
from lakemark_server.timeline.lineage import Lineage

_VERSIONS_A_READ: Final = 500


def version_before_instant(store: Store, table: LakeTable, lineage: Lineage, latest: int, instant: int) -> int:
    """The last version whose instant is smaller; 0 if there is none."""
    upto = latest
    while upto:
        after = max(0, upto - _VERSIONS_A_READ)
        page = store.read(
            lambda tx, after=after, upto=upto: records.versions(tx, table.table_id, lineage, after, upto)  # type: ignore[misc]
        )
        version = next((record.version for record in reversed(page) if record.instant < instant), 0)
        if version:
            return version
        upto = after
    return 0


@dataclass(frozen=True, slots=True)
class Pending:
    """The file groups that open compactions are going to rewrite.

    ``names`` has groups by name; ``hashes`` those whose names were not kept. ``everything``: all groups of the branch.
    """

    names: frozenset[str] = frozenset()
    hashes: frozenset[int] = frozenset()
    everything: bool = False

    def among(self, groups: Iterable[str]) -> frozenset[str]:
        """The groups among these that are going to be rewritten."""
        if self.everything:
            return frozenset(groups)
        if not self.hashes:
            return self.names
        return frozenset(group for group in groups if group in self.names or group_id(group) in self.hashes)


def pending_compaction(store: Store, table: LakeTable, lineage: Lineage) -> Pending:
    """The groups of requested and inflight compactions of the branch."""
    compactions = [
        record
        for record in store.read(lambda tx: _open(tx, table.table_id))
        if record.operation == timeline_pb2.COMPACT and record.branch == lineage.key
    ]
    names = frozenset(name for record in compactions for name in record.group_names)
    hashes = frozenset(group for record in compactions for group in record.touched.file_groups)
    everything = any(record.touched.all_file_groups for record in compactions)
    return Pending(names, hashes - {group_id(name) for name in names}, everything)


def _open(tx: ReadTransaction, table_id: int) -> Sequence[InstantRecord]:
    instants = [ALIVE.unpack(key)[-1] for key, _ in tx.get_range(*ALIVE.range(table_id))]
    return [records.instant(tx, table_id, instant) for instant in instants if isinstance(instant, int)]
