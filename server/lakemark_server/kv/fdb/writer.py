"""Commits of the store in FoundationDB: each is one native transaction, which the cluster checks and writes."""

from __future__ import annotations

import threading
from typing import Final

from lakemark_server.context import deadline

from ..api import STAMP_BYTES, StoreClosed
from ..buffer import PendingTransaction
from ..keys import stamped_key
from .client import FdbClient
from .errors import commit_error
from .layout import FENCE
from .log import ChangeLog

_MASK: Final = (1 << 64) - 1


class FdbWriter:
    """Thread-safe. Callers commit side by side, and FoundationDB's client and proxies gather their commits."""

    def __init__(self, client: FdbClient, prefix: bytes) -> None:
        self._client = client
        self._prefix = prefix
        self._log = ChangeLog(client, prefix)
        self._running = 0
        self._closed = False
        self._idle = threading.Condition()

    def commit(self, transaction: PendingTransaction, *, noted: bool = True) -> None:
        """Returns when ``transaction`` is durable; ``noted`` is False for the store's own keys, which are not exported.

        Raises what ``commit_error`` gives, StoreClosed and DeadlineExceeded.
        """
        deadline.check()
        with self._idle:
            if self._closed:
                raise StoreClosed("the store is closed")
            self._running += 1
        try:
            self._commit(transaction, noted)
        finally:
            with self._idle:
                self._running -= 1
                if self._closed:
                    self._idle.notify_all()

    def close(self) -> None:
        """Waits until all commits that have begun are decided."""
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: self._running == 0)

    def _commit(self, transaction: PendingTransaction, noted: bool) -> None:
        prefix = self._prefix
        native = self._client.transaction()
        read_version = transaction.read_version
        if read_version is None:
            read_version = self._client.answer(native.get_read_version().wait)
        else:
            native.set_read_version(read_version)
            for key in transaction.read_keys:
                native.add_read_conflict_key(prefix + key)
            for begin, end in transaction.read_ranges:
                native.add_read_conflict_range(prefix + begin, prefix + end)
        for begin, end in transaction.write_conflicts:
            native.add_write_conflict_range(prefix + begin, prefix + end)
        # Ranges first: an Overlay's keys lie on top of its cleared ranges.
        for begin, end in transaction.writes.cleared_ranges():
            native.clear_range(prefix + begin, prefix + end)
        for key, pending in transaction.writes.points.items():
            if pending is None:
                native.clear(prefix + key)
            elif isinstance(pending, int):
                native.add(prefix + key, (pending & _MASK).to_bytes(8, "little"))
            else:
                native.set(prefix + key, pending)
        # In both, the stamp replaces ten bytes, whose position the last four bytes tell.
        for stamped, number, value in transaction.stamps.keys:
            key = stamped_key(prefix + stamped, bytes(STAMP_BYTES), number)
            at = len(key) - STAMP_BYTES - 2
            native.set_versionstamped_key(key + at.to_bytes(4, "little"), value)
        for key, rest in transaction.stamps.values.items():
            native.set_versionstamped_value(prefix + key, bytes(STAMP_BYTES) + rest + bytes(4))
        if noted:
            native.add_read_conflict_key(prefix + FENCE)
            if self._log.wanted(read_version):
                self._log.note(native, transaction)
        future = native.commit()
        self._client.answer(future.wait, commit_error)
