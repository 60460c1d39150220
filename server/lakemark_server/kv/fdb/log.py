"""Notes which keys a commit wrote, while an export of the store runs. Costs a commit nothing at other times.

FoundationDB forgets a version after five seconds. So an export reads the store in pieces, each at a version of its own.
Then it reads again what the log says was written since, until nothing is left (see ``export``).

A process does not look at each commit whether an export runs; it relies on its last look for ``LEASE_VERSIONS``. So
commits that do not know of an export have read versions of at most that long after its announcement. Then the export
writes ``FENCE``, which conflicts with all commits that began before. From this version on every commit is noted,
whatever clocks and schedulers do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ..api import STAMP_BYTES
from ..buffer import KeyRange, PendingTransaction
from ..keys import stamped_key
from ..write_sets import decode_writes, encode_writes
from .client import FdbClient
from .layout import EXPORTS, EXPORTS_END, LOG
from .reader import FdbSnapshot

VERSIONS_PER_S: Final = 1_000_000
LEASE_VERSIONS: Final = VERSIONS_PER_S // 2

_ENTRY_BYTES_AIM: Final = 50_000
_STAMPED: Final = 0x8000
"""Entries with numbers from here on hold versionstamped keys without the stamp, which is that of the entry itself."""


class ChangeLog:
    """The side of the writers. Thread-safe."""

    def __init__(self, client: FdbClient, prefix: bytes) -> None:
        self._client = client
        self._prefix = prefix
        self._looking = threading.Lock()
        self._seen_at = -1  # version
        self._until = -1  # version

    def wanted(self, read_version: int) -> bool:
        """Whether a commit with this read version must be noted. Raises what reading raises."""
        if read_version - self._seen_at > LEASE_VERSIONS:
            with self._looking:
                if read_version - self._seen_at > LEASE_VERSIONS:
                    self._look()
        return read_version < self._until

    def note(self, native: Any, transaction: PendingTransaction) -> None:
        """Notes in the native transaction what ``transaction`` changes."""
        writes, stamps = transaction.writes, transaction.stamps
        known = _entries([*writes.points, *stamps.values], list(writes.cleared_ranges()))
        unknown = _entries([prefix + number.to_bytes(2, "big") for prefix, number, _ in stamps.keys], [])
        for number, entry in (*enumerate(known), *enumerate(unknown, _STAMPED)):
            # The versionstamp replaces ten bytes, whose position the last four bytes tell.
            key = self._prefix + LOG + bytes(STAMP_BYTES) + number.to_bytes(2, "big")
            at = len(self._prefix) + len(LOG)
            native.set_versionstamped_key(key + at.to_bytes(4, "little"), entry)

    def _look(self) -> None:
        snapshot = FdbSnapshot(self._client, self._prefix)
        exports = snapshot.get_range(EXPORTS, EXPORTS_END, 0, False)
        self._until = max((int.from_bytes(until, "big") for _, until in exports), default=-1)
        self._seen_at = snapshot.version()


def noted(key: bytes, entry: bytes) -> tuple[list[bytes], list[KeyRange]]:
    """The keys and the ranges that an entry of the log, which lies at ``key``, says to have been written."""
    keys, ranges = decode_writes(entry)
    stamp, number = key[len(LOG) : -2], int.from_bytes(key[-2:], "big")
    if number >= _STAMPED:
        keys = [stamped_key(known[:-2], stamp, int.from_bytes(known[-2:], "big")) for known in keys]
    return keys, ranges


def _entries(keys: Sequence[bytes], ranges: Sequence[KeyRange]) -> Iterator[bytes]:
    """Entries of about _ENTRY_BYTES_AIM."""
    some_keys: list[bytes] = []
    some_ranges: list[KeyRange] = []
    size = 0
    items: list[bytes | KeyRange] = [*keys, *ranges]
    for item in items:
        if isinstance(item, bytes):
            some_keys.append(item)
            size += len(item)
        else:
            some_ranges.append(item)
            size += len(item[0]) + len(item[1])
        if size >= _ENTRY_BYTES_AIM:
            yield encode_writes(some_keys, some_ranges)
            some_keys, some_ranges, size = [], [], 0
    if some_keys or some_ranges:
        yield encode_writes(some_keys, some_ranges)
