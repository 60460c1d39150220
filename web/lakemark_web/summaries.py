"""Summaries of the files of versions that pages have asked for lately. Versions never change, so none gets stale."""

from __future__ import annotations

from lakemark_server.file_index.cache import ByteLru
from lakemark_server.snapshots.service import Snapshots, TableSnapshot
from lakemark_web.file_health import LISTED_BYTES_MAX, FileGoal, FileSummary, goal_of, summarize

_CACHE_BYTES = 2 * LISTED_BYTES_MAX
_Key = tuple[int, str, int, FileGoal]


class Summaries:
    """Thread-safe; takes some 32 MiB at most."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._kept: ByteLru[_Key, FileSummary] = ByteLru(_CACHE_BYTES, lambda summary: summary.memory_bytes)

    def of(self, loaded: TableSnapshot) -> FileSummary:
        """The summary of a snapshot."""
        version, goal = loaded.snapshot.version, goal_of(loaded.table.record.properties)
        key = (loaded.table.table_id, loaded.lineage.owner(version), version, goal)
        summary = self._kept.get(key)
        if summary is None:
            summary = summarize(loaded.snapshot, goal)
            self._kept.put(key, summary)
        return summary
