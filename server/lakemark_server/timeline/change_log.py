"""What recent versions changed, kept in memory: a version never changes, so neither does its entry."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_server.kv import ReadTransaction
from lakemark_server.timeline import branches, records
from lakemark_server.timeline.changes import Change, by_group, of_record
from lakemark_server.timeline.lineage import Lineage

ENTRIES_MAX: Final = 50_000
PAGE_VERSIONS: Final = 500
_Key = tuple[int, str, int]


class ChangeLog:
    """A bounded cache of (table id, branch key, version) -> its changes. Thread-safe.

    A version has one change, and that of a merge has those of all versions that it replayed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes: OrderedDict[_Key, tuple[Change, ...]] = OrderedDict()

    def between(
        self, tx: ReadTransaction, table_id: int, lineage: Lineage, after: int, upto: int, fresh: Sequence[Change] = ()
    ) -> Iterator[Change]:
        """Changes with ``after < version <= upto``, newest first. ``fresh`` are those of the running transaction."""
        yield from (change for change in reversed(fresh) if change.version > after)
        stored = min(upto, fresh[0].version - 1) if fresh else upto
        for key, low, high in reversed(list(lineage.segments(after, stored))):
            yield from self._of_branch(tx, table_id, key, lineage, low, high)

    def add(self, table_id: int, key: str, changes: Sequence[Change]) -> None:
        """Remembers what was published on a branch; several changes of one version follow each other."""
        by_version: dict[int, list[Change]] = {}
        for change in changes:
            by_version.setdefault(change.version, []).append(change)
        with self._lock:
            for version, of_version in by_version.items():
                self._changes[table_id, key, version] = tuple(of_version)
            while len(self._changes) > ENTRIES_MAX:
                self._changes.popitem(last=False)

    def _of_branch(
        self, tx: ReadTransaction, table_id: int, key: str, lineage: Lineage, after: int, upto: int
    ) -> Iterator[Change]:
        missing = None
        with self._lock:
            found: list[Change] = []
            for version in range(upto, after, -1):
                changes = self._changes.get((table_id, key, version))
                if changes is None:
                    missing = version
                    break
                found += changes
        yield from found
        if missing is not None:
            yield from self._load(tx, table_id, key, lineage, after, missing)

    def _load(
        self, tx: ReadTransaction, table_id: int, key: str, lineage: Lineage, after: int, upto: int
    ) -> Iterator[Change]:
        """Page by page: whoever looks for a collision may stop at the first, and a writer may be far behind."""
        while upto > after:
            low = max(after, upto - PAGE_VERSIONS)
            for record in records.versions(tx, table_id, lineage, low, upto, reverse=True):
                changes = changes_of(tx, table_id, record)
                self.add(table_id, key, changes)
                yield from changes
            upto = low


def changes_of(tx: ReadTransaction, table_id: int, record: VersionRecord) -> list[Change]:
    """What a version changes: itself, or as a merge everything that it replayed."""
    if not record.HasField("merged"):
        return [of_record(record)]
    merged = record.merged
    lineage = branches.lineage(tx, table_id, merged.branch)
    replayed = records.versions(tx, table_id, lineage, merged.after_version, merged.upto_version)
    return [
        replace(
            by_group(change),
            version=record.version,
            instant=record.instant,
            owner=record.owner,
            merged_from=merged.branch,
        )
        for one in replayed
        for change in changes_of(tx, table_id, one)
    ]
