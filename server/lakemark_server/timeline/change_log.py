"""What recent versions changed, kept in memory: a version never changes, so neither does its entry."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

from lakemark_server.kv import ReadTransaction
from lakemark_server.timeline import records
from lakemark_server.timeline.conflicts import Change

ENTRIES_MAX: Final = 50_000
PAGE_VERSIONS: Final = 500
_Key = tuple[int, str, int]


class ChangeLog:
    """A bounded cache of (table id, branch, version) -> Change. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes: OrderedDict[_Key, Change] = OrderedDict()

    def between(
        self, tx: ReadTransaction, table_id: int, branch: str, after: int, upto: int, fresh: Sequence[Change]
    ) -> Iterator[Change]:
        """Changes with ``after < version <= upto``, newest first. ``fresh`` are those of the running transaction."""
        yield from (change for change in reversed(fresh) if change.version > after)
        stored = upto - len(fresh)
        missing = None
        with self._lock:
            found = []
            for version in range(stored, after, -1):
                change = self._changes.get((table_id, branch, version))
                if change is None:
                    missing = version
                    break
                found.append(change)
        yield from found
        if missing is not None:
            yield from self._load(tx, table_id, branch, after, missing)

    def add(self, table_id: int, branch: str, changes: Sequence[Change]) -> None:
        """Remembers what was published."""
        with self._lock:
            for change in changes:
                self._changes[table_id, branch, change.version] = change
            while len(self._changes) > ENTRIES_MAX:
                self._changes.popitem(last=False)

    def _load(self, tx: ReadTransaction, table_id: int, branch: str, after: int, upto: int) -> Iterator[Change]:
        """Page by page: whoever looks for a collision may stop at the first, and a writer may be far behind."""
        while upto > after:
            page = records.versions(tx, table_id, branch, after, upto, limit=PAGE_VERSIONS, reverse=True)
            loaded = [records.change_of(record) for record in page]
            self.add(table_id, branch, loaded)
            yield from loaded
            upto -= PAGE_VERSIONS
