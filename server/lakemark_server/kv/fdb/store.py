"""The store in FoundationDB: any number of processes on one cluster, which checks and commits their transactions.

A store lives below one prefix, the tuple of one string. Behind the keys of the contract, at ``0xff`` after the prefix,
it keeps its own keys: its format, and what exports need.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lakemark_core.errors import FailedPrecondition
from lakemark_server.context import deadline

from ..api import KEYS_END, StoreFormatUnknown
from ..buffer import PendingTransaction
from ..buffered_store import BufferedStore, opened_read_only
from ..keys import pack
from ..limits import check_key
from ..overlay import Overlay
from ..reads import Clock
from .client import FdbClient
from .export import FdbExporter
from .layout import FORMAT_KEY
from .reader import FdbSnapshot
from .spool import Spool, spool
from .url import FdbTarget
from .writer import FdbWriter

FORMAT: Final = b"1"


class FdbStore(BufferedStore):
    """Opens (or makes) the store at ``target``.

    ``clock`` counts the seconds of a transaction's age. With ``read_only`` the store is not made, and commits raise
    FailedPrecondition; only an export writes, to announce itself. Raises Unimplemented without binding or client
    library, StoreFormatUnknown, FailedPrecondition, Unavailable.
    """

    name = "fdb"

    def __init__(self, target: FdbTarget, *, clock: Clock = time.monotonic, read_only: bool = False) -> None:
        super().__init__(clock)
        self.target = target
        self._read_only = read_only
        self._prefix = pack(target.prefix)
        self._client = FdbClient(target.cluster_file)
        self._writer = FdbWriter(self._client, self._prefix)
        self._prepare()

    def _snapshot(self) -> FdbSnapshot:
        return FdbSnapshot(self._client, self._prefix)

    def _submit(self, transaction: PendingTransaction) -> None:
        if self._read_only:
            raise opened_read_only(self.name)
        self._writer.commit(transaction)

    def _close(self) -> None:
        self._writer.close()

    @contextmanager
    def _lasting_snapshot(self, begin: bytes, end: bytes) -> Iterator[Spool]:
        """A copy on this machine."""
        with spool() as copied:
            exporter = FdbExporter(self._client, self._prefix, self._writer, copied)
            try:
                exporter.copy(begin, end)
            finally:
                exporter.stop()
            yield copied

    @contextmanager
    def _watched(self, key: bytes, changed: threading.Event) -> Iterator[bytes | None]:
        check_key(key)
        self._check_open()
        deadline.check()
        with self._client.watched(self._prefix + key, changed) as value:
            yield value

    def _unseen_s_max(self) -> float:
        return 10.0  # in case a watch gets lost

    def _prepare(self) -> None:
        """Makes the store if it is not there. Safe if several processes start at once: all write the same."""
        snapshot = self._snapshot()
        written = snapshot.get(FORMAT_KEY)
        if written is None:
            if snapshot.get_range(b"", KEYS_END, 1, False):
                raise StoreFormatUnknown(f"the keys below the prefix {self.target.prefix!r} are not Lakemark's")
            if self._read_only:
                raise FailedPrecondition(f"there is no store below the prefix {self.target.prefix!r}")
            made = Overlay()
            made.put(FORMAT_KEY, FORMAT)
            self._writer.commit(PendingTransaction(None, set(), [], made, [], 0))
        elif written != FORMAT:
            raise StoreFormatUnknown(
                f"the store has format {written!r}, and this release of Lakemark knows format {FORMAT!r}; "
                "open it with the release that wrote it",
                format=repr(written),
            )
