"""The SQLite file of a store that another process may be serving: for backups and for checking it."""

from __future__ import annotations

import time
from pathlib import Path

from ..buffer import CommitRequest
from ..buffered_store import opened_read_only
from ..reads import Clock
from .base import SqliteFileStore
from .file import open_to_read


class SqliteReadOnlyStore(SqliteFileStore):
    """Opens the file at ``path`` without taking it for itself: SQLite lets any number of processes read what one
    writes, each on a snapshot of the log. Commits raise FailedPrecondition.

    Raises StoreFormatUnknown, CorruptStore, FailedPrecondition, Unavailable.
    """

    def __init__(self, path: Path, *, clock: Clock = time.monotonic) -> None:
        super().__init__(path, open_to_read, clock)

    def _submit(self, request: CommitRequest) -> None:
        raise opened_read_only(self.name)
