"""Copies a range of a store in FoundationDB as of one version, although no version can be read for that long.

First it reads everything in pieces, each at a version of its own. Then it follows the log of what was written since:
page by page of the log, it reads the keys again that the page names, until a page is the last one. The keys of that
page were read at the page's own version, and all others have not changed since they were read. So the copy is now
complete as of that version. Live migration of virtual machines copies memory in the same way.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Final

from lakemark_core.errors import LakemarkError, StoreConflict, Unavailable

from ..api import CommitUnknownResult, KeyValue, TransactionTooOld, TryAgain
from ..buffer import KeyRange, PendingTransaction
from ..overlay import Overlay
from ..retry import pause_seconds
from .client import FdbClient
from .layout import EXPORTS, EXPORTS_END, FENCE, LOG, LOG_END
from .log import LEASE_VERSIONS, VERSIONS_PER_S, noted
from .reader import FdbSnapshot
from .spool import Spool, disk_errors
from .writer import FdbWriter

ANNOUNCED_VERSIONS: Final = 120 * VERSIONS_PER_S
"""How long commits are noted for an export that does not announce itself again."""

_ATTEMPTS_MAX: Final = 50
_PIECE_BYTES_AIM: Final = 4_000_000
_PAIRS_FIRST: Final = 200
_PAIRS_MAX: Final = 20_000
_ENTRIES_MAX: Final = 2_000
_LOG_PAGES_MAX: Final = 100_000
_KEYS_AT_ONCE: Final = 1_000
_RANGE_PAIRS_MAX: Final = 1_000
_TOO_MUCH: Final = (TransactionTooOld, TryAgain)
_PAUSE_S: Final = 0.5  # after each of them, before asking for less


class FdbExporter:
    """One export. ``stop`` must be called at the end; otherwise commits are noted in vain for two minutes."""

    def __init__(self, client: FdbClient, prefix: bytes, writer: FdbWriter, spool: Spool) -> None:
        self._client = client
        self._prefix = prefix
        self._writer = writer
        self._spool = spool
        self._key = EXPORTS + uuid.uuid4().bytes
        self._until = -1  # version
        self._pairs = _PAIRS_FIRST
        self._entries = _ENTRIES_MAX

    def copy(self, begin: bytes, end: bytes) -> None:
        """Fills the spool. Raises Unavailable and what reading raises."""
        with disk_errors():
            self._spool.copied = self._copy(begin, end)

    def _copy(self, begin: bytes, end: bytes) -> int:
        position = LOG + self._start().to_bytes(8, "big")
        self._scan(begin, end)
        for _ in range(_LOG_PAGES_MAX):
            snapshot = self._snapshot()
            asked = self._entries
            try:
                page = snapshot.get_range(position, LOG_END, asked, False)
                unread = self._read_again(snapshot, begin, end, page)
                if len(page) < asked and not unread:
                    version = snapshot.version()
                    self._check_noted(self._until, version)
                    return version
            except _TOO_MUCH as error:
                self._entries = _less(asked, error)
                continue
            self._entries = min(2 * asked, _ENTRIES_MAX)
            if page:
                position = page[-1][0] + b"\0"
            for first, last in unread:
                self._scan(first, last)
        raise Unavailable("the store is written to faster than it can be copied; try again when it is quieter")

    def stop(self) -> None:
        """Ends the export. Never raises: what is left ends by itself, and the next export clears the log."""

        def withdraw(snapshot: FdbSnapshot, writes: Overlay) -> None:
            self._clear_what_has_ended(snapshot, writes)
            writes.put(self._key, None)

        with contextlib.suppress(LakemarkError):
            self._settle(withdraw)

    def _start(self) -> int:
        """A version after which every commit is noted."""

        def announce(snapshot: FdbSnapshot, writes: Overlay) -> None:
            self._clear_what_has_ended(snapshot, writes)
            self._announce(snapshot, writes)

        self._settle(announce)
        known = self._version() + LEASE_VERSIONS
        while (version := self._version()) <= known:
            time.sleep((known - version) / VERSIONS_PER_S + 0.01)
        self._settle(lambda _, writes: writes.put(FENCE, self._key))
        return self._version()

    def _scan(self, begin: bytes, end: bytes) -> None:
        while begin < end:
            asked = self._pairs
            try:
                pairs = self._snapshot().get_range(begin, end, asked, False)
            except _TOO_MUCH as error:
                self._pairs = _less(asked, error)
                continue
            reached = end if len(pairs) < asked else pairs[-1][0] + b"\0"
            self._spool.replace(begin, reached, pairs)
            begin = reached
            size = sum(len(key) + len(value) for key, value in pairs)
            self._pairs = max(1, min(4 * asked, asked * _PIECE_BYTES_AIM // max(size, 1), _PAIRS_MAX))

    def _read_again(self, snapshot: FdbSnapshot, begin: bytes, end: bytes, page: Iterable[KeyValue]) -> set[KeyRange]:
        """Reads again what a page of the log names. Returns ranges that hold too much, for the caller to read."""
        keys: set[bytes] = set()
        ranges: set[KeyRange] = set()
        for key, entry in page:
            points, cleared = noted(key, entry)
            keys.update(key for key in points if begin <= key < end)
            ranges.update(
                (max(first, begin), min(last, end)) for first, last in cleared if first < end and begin < last
            )
        unread = set()
        for first, last in ranges:
            pairs = snapshot.get_range(first, last, _RANGE_PAIRS_MAX, False)
            if len(pairs) < _RANGE_PAIRS_MAX:
                self._spool.replace(first, last, pairs)
            else:
                unread.add((first, last))
        ordered = sorted(keys)
        for start in range(0, len(ordered), _KEYS_AT_ONCE):
            some = ordered[start : start + _KEYS_AT_ONCE]
            for key, value in zip(some, snapshot.get_many(some), strict=True):
                self._spool.put(key, value)
        return unread

    def _snapshot(self) -> FdbSnapshot:
        """Raises Unavailable if commits may not have been noted."""
        snapshot = self._newest()
        if self._until < snapshot.version() + ANNOUNCED_VERSIONS // 2:
            before = self._until
            self._settle(self._announce)
            self._check_noted(before, self._version())
        return snapshot

    def _newest(self) -> FdbSnapshot:
        return FdbSnapshot(self._client, self._prefix)

    def _version(self) -> int:
        return self._newest().version()

    def _check_noted(self, until: int, version: int) -> None:
        """Raises Unavailable if a commit may not have been noted, because the announcement until ``until`` had ended.

        All commits know of an announcement at ``version`` that begin LEASE_VERSIONS after it.
        """
        if until < version + LEASE_VERSIONS:
            raise Unavailable("the export was interrupted for too long to know what was written meanwhile; try again")

    def _announce(self, snapshot: FdbSnapshot, writes: Overlay) -> None:
        self._until = snapshot.version() + ANNOUNCED_VERSIONS
        writes.put(self._key, self._until.to_bytes(8, "big"))

    def _clear_what_has_ended(self, snapshot: FdbSnapshot, writes: Overlay) -> None:
        """Clears the log and the exports that have ended, unless another export needs the log."""
        now = snapshot.version()
        others = [pair for pair in snapshot.get_range(EXPORTS, EXPORTS_END, 0, False) if pair[0] != self._key]
        if all(int.from_bytes(until, "big") < now for _, until in others):
            writes.clear_range(EXPORTS, EXPORTS_END)
            writes.clear_range(LOG, LOG_END)

    def _settle(self, body: Callable[[FdbSnapshot, Overlay], None]) -> None:
        """Commits a transaction of the store's own keys that conflicts with other exports'. May commit twice."""
        for attempt in range(_ATTEMPTS_MAX):
            snapshot, writes = self._newest(), Overlay()
            try:
                body(snapshot, writes)
                transaction = PendingTransaction(snapshot.version(), set(), [(EXPORTS, EXPORTS_END)], writes, [], 0)
                self._writer.commit(transaction, noted=False)
            except (StoreConflict, CommitUnknownResult):
                if attempt + 1 == _ATTEMPTS_MAX:
                    raise
                time.sleep(pause_seconds(attempt))
            else:
                return


def _less(asked: int, error: LakemarkError) -> int:
    """How much to ask for next, after a pause for FoundationDB. Raises ``error`` if it cannot be less."""
    if asked == 1:
        raise error
    time.sleep(_PAUSE_S)
    return max(1, asked // 4)
