"""What recent versions changed, kept in memory: a version never changes, so neither does its entry."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from lakemark_core.errors import VersionNotFound
from lakemark_server.kv import ReadTransaction
from lakemark_server.timeline import records
from lakemark_server.timeline.conflicts.changes import Change, Run, by_group, of_record
from lakemark_server.timeline.lineage import Lineage, alone

BYTES_MAX: Final = 8 << 20  # some 5,000 small commits, or 50 that name all they may
PAGE_VERSIONS: Final = 500
_ENTRY_BYTES: Final = 500  # of a version that names nothing
_LIST_BYTES: Final = 230
_LISTED_BYTES: Final = 120
_Key = tuple[int, str, int]


class ChangeLog:
    """A cache of (table id, branch key, version) -> its change, bounded by bytes. Thread-safe."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._lock = threading.Lock()
        self._changes: OrderedDict[_Key, Change] = OrderedDict()

    def between(
        self, tx: ReadTransaction, table_id: int, lineage: Lineage, after: int, upto: int, fresh: Sequence[Change] = ()
    ) -> Iterator[Change]:
        """Changes with ``after < version <= upto``, newest first; of a merge those that it brought, as changes of the
        version that merges. ``fresh`` are those of the running transaction."""
        for change in self.entries(tx, table_id, lineage, after, upto, fresh):
            if not change.replays:
                yield change
            for run in reversed(change.replays):
                for one in self.of_run(tx, table_id, run):
                    yield replace(by_group(one), version=change.version, instant=change.instant, owner=change.owner)

    def of_run(self, tx: ReadTransaction, table_id: int, run: Run) -> Iterator[Change]:
        """Newest first."""
        changes = self.entries(tx, table_id, alone(run.branch), run.after, run.upto)
        return (change for change in changes if not change.replays)

    def entries(
        self, tx: ReadTransaction, table_id: int, lineage: Lineage, after: int, upto: int, fresh: Sequence[Change] = ()
    ) -> Iterator[Change]:
        """Of each version with ``after < version <= upto`` its own change, newest first."""
        yield from (change for change in reversed(fresh) if change.version > after)
        stored = min(upto, fresh[0].version - 1) if fresh else upto
        for key, low, high in reversed(list(lineage.segments(after, stored))):
            yield from self._of_branch(tx, table_id, key, low, high)

    def add(self, table_id: int, key: str, changes: Sequence[Change]) -> None:
        """Remembers what was published on a branch."""
        with self._lock:
            for change in changes:
                name = table_id, key, change.version
                known = self._changes.get(name)
                self._bytes += memory_bytes(change) - (memory_bytes(known) if known else 0)
                self._changes[name] = change
            while self._bytes > self._bytes_max:
                self._bytes -= memory_bytes(self._changes.popitem(last=False)[1])

    def _of_branch(self, tx: ReadTransaction, table_id: int, key: str, after: int, upto: int) -> Iterator[Change]:
        missing = None
        with self._lock:
            remembered: list[Change] = []
            for version in range(upto, after, -1):
                change = self._changes.get((table_id, key, version))
                if change is None:
                    missing = version
                    break
                remembered.append(change)
        yield from remembered
        if missing is not None:
            yield from self._load(tx, table_id, key, after, missing)

    def _load(self, tx: ReadTransaction, table_id: int, key: str, after: int, upto: int) -> Iterator[Change]:
        """Page by page: whoever looks for a collision may stop at the first, and a writer may be far behind."""
        while upto > after:
            low = max(after, upto - PAGE_VERSIONS)
            changes = [of_record(one) for one in records.versions(tx, table_id, alone(key), low, upto, reverse=True)]
            if len(changes) < upto - low:
                raise VersionNotFound(
                    f"what versions {low + 1} to {upto} changed is not known any more: they were cleaned",
                    version=str(low + 1),
                )
            self.add(table_id, key, changes)
            yield from changes
            upto = low


def memory_bytes(change: Change) -> int:
    """About, as one of the entries of the log."""
    listed = (change.partitions, change.groups, change.files, change.removed, change.begun, change.columns)
    return _ENTRY_BYTES + sum(_LIST_BYTES + _LISTED_BYTES * len(one) for one in listed if one)
