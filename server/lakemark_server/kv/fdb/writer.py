"""Commits of the store in FoundationDB: each request is one native transaction, checked and written by the cluster."""

from __future__ import annotations

import threading
from typing import Final

from lakemark_server.context import deadline

from ..api import StoreClosed
from ..buffer import CommitRequest
from .client import FdbClient
from .errors import commit_error
from .layout import FENCE
from .log import ChangeLog

_MASK: Final = (1 << 64) - 1


class FdbWriter:
    """Thread-safe: callers commit side by side, and FoundationDB's client and proxies gather what is under way."""

    def __init__(self, client: FdbClient, prefix: bytes) -> None:
        self._client = client
        self._prefix = prefix
        self._log = ChangeLog(client, prefix)
        self._running = 0
        self._closed = False
        self._idle = threading.Condition()

    def commit(self, request: CommitRequest, *, noted: bool = True) -> None:
        """Returns when ``request`` is durable; ``noted`` is False for the store's own keys, which nobody exports.

        Raises what ``commit_error`` gives, StoreClosed and DeadlineExceeded.
        """
        deadline.check()
        with self._idle:
            if self._closed:
                raise StoreClosed("the store is closed")
            self._running += 1
        try:
            self._commit(request, noted)
        finally:
            with self._idle:
                self._running -= 1
                if self._closed:
                    self._idle.notify_all()

    def close(self) -> None:
        """Waits until everything that was handed in before is decided."""
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: self._running == 0)

    def _commit(self, request: CommitRequest, noted: bool) -> None:
        prefix = self._prefix
        transaction = self._client.transaction()
        read_version = request.read_version
        if read_version is None:
            read_version = self._client.answer(transaction.get_read_version().wait)
        else:
            transaction.set_read_version(read_version)
            for key in request.read_keys:
                transaction.add_read_conflict_key(prefix + key)
            for begin, end in request.read_ranges:
                transaction.add_read_conflict_range(prefix + begin, prefix + end)
        for begin, end in request.write_conflicts:
            transaction.add_write_conflict_range(prefix + begin, prefix + end)
        # Ranges first: what was written later lies on top, see Overlay.
        for begin, end in request.writes.cleared_ranges():
            transaction.clear_range(prefix + begin, prefix + end)
        for key, pending in request.writes.points.items():
            if pending is None:
                transaction.clear(prefix + key)
            elif isinstance(pending, int):
                transaction.add(prefix + key, (pending & _MASK).to_bytes(8, "little"))
            else:
                transaction.set(prefix + key, pending)
        if noted:
            transaction.add_read_conflict_key(prefix + FENCE)
            if self._log.wanted(read_version):
                self._log.note(transaction, request.writes)
        future = transaction.commit()
        self._client.answer(future.wait, commit_error)
