"""Opens a store's SQLite file that another process may be serving, for backups and checks."""

from __future__ import annotations

import time
from pathlib import Path

from ..buffer import PendingTransaction
from ..buffered_store import opened_read_only
from ..reads import Clock
from .base import SqliteFileStore
from .file import open_to_read


class SqliteReadOnlyStore(SqliteFileStore):
    """Opens the file at ``path`` without locking it. Commits raise FailedPrecondition.

    While one process writes, SQLite lets any number of processes read, each on a snapshot of the log.

    Raises StoreFormatUnknown, CorruptStore, FailedPrecondition, Unavailable.
    """

    def __init__(self, path: Path, *, clock: Clock = time.monotonic) -> None:
        super().__init__(path, open_to_read, clock)

    def _submit(self, transaction: PendingTransaction) -> None:
        raise opened_read_only(self.name)
