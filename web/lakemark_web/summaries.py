"""Summaries of the files of versions that pages have asked for lately. Versions never change, so none gets stale."""

from __future__ import annotations

from lakemark_server.file_index.cache import ByteLru
from lakemark_server.snapshots.service import Snapshots, TableSnapshot
from lakemark_web.file_health import FileSummary, summarize
from lakemark_web.survey import target_bytes

_CACHE_BYTES = 16 << 20
_Key = tuple[int, str, int, int]


class Summaries:
    """Thread-safe; takes some 16 MiB at most."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._kept: ByteLru[_Key, FileSummary] = ByteLru(_CACHE_BYTES, lambda summary: summary.memory_bytes)

    def of(self, loaded: TableSnapshot) -> FileSummary:
        """The summary of a snapshot."""
        version, target = loaded.snapshot.version, target_bytes(loaded.table)
        key = (loaded.table.table_id, loaded.lineage.owner(version), version, target)
        summary = self._kept.get(key)
        if summary is None:
            summary = summarize(loaded.snapshot, target)
            self._kept.put(key, summary)
        return summary
