"""The transaction that every backend shares: a snapshot below, its own writes on top, conflicts on the side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from lakemark_core.errors import InvalidArgument

from .api import STAMP_BYTES, TRANSACTION_BYTES_MAX, TRANSACTION_SECONDS_MAX, KeyValue, TransactionTooLarge
from .keys import STAMPED_BYTES
from .limits import check_key, check_range, check_stamped_key, check_value, too_old
from .overlay import Overlay, add_to_counter
from .reads import Clock, Snapshot, check_limit, finished
from .stamps import NO_STAMPS, Stamps

KeyRange = tuple[bytes, bytes]
_INT64 = range(-(1 << 63), 1 << 63)

# What FoundationDB counts beyond the bytes of keys and values: its structures, and the store's prefix on each key.
MUTATION_BYTES: Final = 100
CONFLICT_BYTES: Final = 50


@dataclass(frozen=True, slots=True)
class PendingTransaction:
    """A finished transaction that waits to be committed.

    ``read_version`` is None if it read nothing that could conflict. ``writes`` (keys and cleared ranges) and
    ``write_conflicts`` can conflict with the reads of others. ``size_bytes`` is counted roughly as FoundationDB counts.
    """

    read_version: int | None
    read_keys: set[bytes]
    read_ranges: list[KeyRange]
    writes: Overlay
    write_conflicts: list[KeyRange]
    size_bytes: int
    stamps: Stamps = NO_STAMPS


class BufferedTransaction:
    """An ``OpenTransaction``.

    ``open_snapshot`` is called at the first read, if there is one; ``submit`` commits durably or raises. ``clock``
    counts seconds.
    """

    __slots__ = (
        "_clock",
        "_deadline",
        "_finished",
        "_open_snapshot",
        "_read_keys",
        "_read_ranges",
        "_seen",
        "_size_bytes",
        "_snapshot",
        "_stamps",
        "_submit",
        "_write_conflicts",
        "_writes",
    )

    def __init__(
        self, open_snapshot: Callable[[], Snapshot], submit: Callable[[PendingTransaction], None], clock: Clock
    ) -> None:
        self._open_snapshot = open_snapshot
        self._submit = submit
        self._clock = clock
        self._deadline = clock() + TRANSACTION_SECONDS_MAX
        self._snapshot: Snapshot | None = None
        self._finished = False
        self._writes = Overlay()
        # The snapshot's values of keys that were read. They never change, and reading one again may be a round trip.
        self._seen: dict[bytes, bytes | None] = {}
        self._read_keys: set[bytes] = set()
        self._read_ranges: list[KeyRange] = []
        self._write_conflicts: list[KeyRange] = []
        self._size_bytes = 0
        self._stamps = NO_STAMPS

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def get(self, key: bytes, *, snapshot: bool = False) -> bytes | None:
        check_key(key)
        view = self._view()
        writes = self._writes
        if not writes:
            return self._stored(view, key, snapshot)
        if key in writes.points:
            pending = writes.points[key]
            if not isinstance(pending, int):
                return pending
            return add_to_counter(self._stored(view, key, snapshot), pending)
        return None if writes.is_cleared(key) else self._stored(view, key, snapshot)

    def get_many(self, keys: Sequence[bytes], *, snapshot: bool = False) -> list[bytes | None]:
        writes = self._writes
        stored = [key for key in keys if key not in writes.points and not writes.is_cleared(key)] if writes else keys
        for key in stored:
            check_key(key)
            if not snapshot:
                self._record_read_key(key)
        view, seen = self._view(), self._seen
        missing = [key for key in stored if key not in seen]
        if missing:
            seen.update(zip(missing, view.get_many(missing), strict=True))
        if len(stored) == len(keys):
            return [seen[key] for key in keys]
        below = set(stored)
        return [seen[key] if key in below else self.get(key, snapshot=snapshot) for key in keys]

    def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False, snapshot: bool = False
    ) -> list[KeyValue]:
        check_range(begin, end)
        check_limit(limit)
        view = self._view()
        if begin == end:
            return []
        merged = self._merged if self._writes else view.get_range
        pairs = merged(begin, end, limit, reverse)
        if not snapshot:
            if limit and len(pairs) == limit:
                last = pairs[-1][0]
                begin, end = (last, end) if reverse else (begin, last + b"\0")
            self._record_read_range(begin, end)
        return pairs

    def version(self) -> int:
        return self._view().version()

    def set(self, key: bytes, value: bytes) -> None:
        check_key(key)
        check_value(value)
        self._grow(MUTATION_BYTES + 3 * len(key) + len(value))
        self._writes.put(key, value)

    def clear(self, key: bytes) -> None:
        check_key(key)
        self._grow(MUTATION_BYTES + 3 * len(key))
        self._writes.put(key, None)

    def clear_range(self, begin: bytes, end: bytes) -> None:
        check_range(begin, end)
        self._grow(MUTATION_BYTES + 2 * (len(begin) + len(end)))
        if begin < end:
            self._writes.clear_range(begin, end)

    def add(self, key: bytes, delta: int) -> None:
        check_key(key)
        if delta not in _INT64:
            raise InvalidArgument(f"a delta of {delta} does not fit into 64 bits")
        self._grow(MUTATION_BYTES + 3 * len(key) + 8)
        self._writes.add(key, delta)

    def set_versionstamped_key(self, prefix: bytes, number: int, value: bytes) -> None:
        check_stamped_key(prefix, number)
        check_value(value)
        self._grow(MUTATION_BYTES + 3 * (len(prefix) + STAMPED_BYTES) + len(value))
        self._own_stamps().keys.append((prefix, number, value))

    def set_versionstamped_value(self, key: bytes, rest: bytes) -> None:
        check_key(key)
        check_value(bytes(STAMP_BYTES) + rest)
        self._grow(MUTATION_BYTES + 3 * len(key) + STAMP_BYTES + len(rest))
        self._own_stamps().values[key] = rest

    def _own_stamps(self) -> Stamps:
        if self._stamps is NO_STAMPS:
            self._stamps = Stamps([], {})
        return self._stamps

    def add_read_conflict(self, begin: bytes, end: bytes) -> None:
        check_range(begin, end)
        # Asking for the version pins the snapshot, from whose moment on other transactions may conflict.
        self._view().version()
        if begin < end:
            self._record_read_range(begin, end)

    def add_write_conflict(self, begin: bytes, end: bytes) -> None:
        check_range(begin, end)
        self._grow(CONFLICT_BYTES + len(begin) + len(end))
        if begin < end:
            self._write_conflicts.append((begin, end))

    def commit(self) -> None:
        if self._finished:
            raise finished()
        try:
            pending = self._pending()
        finally:
            # Ends before the wait for the disk: a waiting transaction must not hold a connection or an old snapshot.
            self.cancel()
        if pending is not None:
            self._submit(pending)

    def cancel(self) -> None:
        self._finished = True
        if self._snapshot is not None:
            self._snapshot.release()
            self._snapshot = None

    def _pending(self) -> PendingTransaction | None:
        if not self._writes and not self._write_conflicts and self._stamps is NO_STAMPS:
            return None
        if self._clock() > self._deadline:
            raise too_old()
        if self._size_bytes > TRANSACTION_BYTES_MAX:
            raise self._too_large()
        read_version = None
        if self._snapshot is not None and (self._read_keys or self._read_ranges):
            read_version = self._snapshot.version()
        return PendingTransaction(
            read_version,
            self._read_keys,
            self._read_ranges,
            self._writes,
            self._write_conflicts,
            self._size_bytes,
            self._stamps,
        )

    def _view(self) -> Snapshot:
        if self._clock() > self._deadline:
            raise too_old()
        if self._snapshot is None:
            if self._finished:
                raise finished()
            self._snapshot = self._open_snapshot()
        return self._snapshot

    def _stored(self, view: Snapshot, key: bytes, snapshot: bool) -> bytes | None:
        if not snapshot:
            self._record_read_key(key)
        if key not in self._seen:
            self._seen[key] = view.get(key)
        return self._seen[key]

    def _merged(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[KeyValue]:
        """The snapshot's pairs with this transaction's writes on top.

        It is enough to fetch ``limit`` stored pairs that none of its writes hides: with the writes added, the first
        ``limit`` pairs end no later than the last of these.
        """
        view, writes = self._view(), self._writes
        gaps = writes.gaps(begin, end)
        stored: dict[bytes, bytes] = {}
        unhidden = 0
        for first, last in reversed(gaps) if reverse else gaps:
            hiding = len(writes.keys_in(first, last))
            pairs = view.get_range(first, last, limit - unhidden + hiding if limit else 0, reverse)
            stored.update(pairs)
            unhidden += sum(key not in writes.points for key, _ in pairs)
            if limit and unhidden >= limit:
                break
        merged = {key: value for key, value in stored.items() if key not in writes.points}
        for key in writes.keys_in(begin, end):
            pending = writes.points[key]
            if isinstance(pending, int):
                merged[key] = add_to_counter(stored.get(key), pending)
            elif pending is not None:
                merged[key] = pending
        return list(islice(sorted(merged.items(), reverse=reverse), limit or None))

    def _record_read_key(self, key: bytes) -> None:
        if key not in self._read_keys:
            self._read_keys.add(key)
            self._size_bytes += CONFLICT_BYTES + 2 * len(key) + 1

    def _record_read_range(self, begin: bytes, end: bytes) -> None:
        if end == begin + b"\0":
            self._record_read_key(begin)
        else:
            self._read_ranges.append((begin, end))
            self._size_bytes += CONFLICT_BYTES + len(begin) + len(end)

    def _grow(self, size_bytes: int) -> None:
        if self._finished:
            raise finished()
        self._size_bytes += size_bytes
        if self._size_bytes > TRANSACTION_BYTES_MAX:
            raise self._too_large()

    def _too_large(self) -> TransactionTooLarge:
        return TransactionTooLarge(
            f"the transaction has {self._size_bytes} bytes of keys, values and conflict ranges; "
            f"at most {TRANSACTION_BYTES_MAX} can be committed"
        )
