"""The store contract: FoundationDB's semantics, small enough that three backends can keep it.

Keys and values are bytes; keys are ordered as bytes. A transaction is strictly serializable and optimistic: it reads
one snapshot of the store, keeps its writes to itself, reads its own writes, and at commit is refused if anything that
it read (unless as a *snapshot read*) was written since. ``Store.transact`` then runs the function again.

The limits are FoundationDB's and hold on every backend, so that what passes on SQLite runs on FoundationDB. The
snapshot is taken at the first read (or at the first added read conflict), not when the transaction is made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from lakemark_core.errors import (
    FailedPrecondition,
    InvalidArgument,
    LimitExceeded,
    StoreConflict,
    Unavailable,
    UnknownOutcome,
)

KEY_BYTES_MAX: Final = 9_900
"""FoundationDB's 10,000, less the room for the prefix below which a store's keys live there."""
VALUE_BYTES_MAX: Final = 100_000
TRANSACTION_BYTES_MAX: Final = 10_000_000
TRANSACTION_SECONDS_MAX: Final = 5.0
KEYS_END: Final = b"\xff"
"""Keys from here on belong to the store itself; as the end of a range it means "up to the last key"."""

STAMP_BYTES: Final = 10
"""Of a commit's stamp: its version, which grows from one commit of the store to the next, and its place among the
commits of that version. A store that was made anew, or restored, begins with other versions."""

T = TypeVar("T")
KeyValue = tuple[bytes, bytes]


class KeyTooLarge(LimitExceeded):
    code = "kv_key_too_large"


class ValueTooLarge(LimitExceeded):
    code = "kv_value_too_large"


class TransactionTooLarge(LimitExceeded):
    code = "kv_transaction_too_large"


class InvertedRange(InvalidArgument):
    """``begin`` lies after ``end``."""

    code = "kv_inverted_range"


class ReservedKey(InvalidArgument):
    """The key lies at or after ``KEYS_END``, which FoundationDB keeps for itself."""

    code = "kv_reserved_key"


class TransactionFinished(FailedPrecondition):
    """The transaction is used after its commit or cancel, or outside of the body that it was made for."""

    code = "kv_transaction_finished"


class Conflict(StoreConflict):
    """What the transaction read was written meanwhile; nothing was applied. Retried by ``transact``."""

    code = "kv_conflict"


class TransactionTooOld(StoreConflict):
    """The transaction lived longer than ``TRANSACTION_SECONDS_MAX``; nothing was applied. Retried by ``transact``."""

    code = "kv_transaction_too_old"


class TryAgain(StoreConflict):
    """The store asks for patience: it is behind, or throttles. Nothing was applied. Retried by ``transact``."""

    code = "kv_try_again"


class CommitUnknownResult(UnknownOutcome):
    """The commit may or may not have been applied; never retried blindly: callers look up their request id."""

    code = "kv_commit_unknown_result"


class StoreClosed(Unavailable):
    code = "kv_store_closed"


class StoreInUse(FailedPrecondition):
    """Another process (``details["pid"]``) holds an embedded store that only one may open."""

    code = "kv_store_in_use"


class StoreFormatUnknown(FailedPrecondition):
    """The file is no Lakemark store, or one that a newer Lakemark wrote."""

    code = "kv_store_format_unknown"


class ReadTransaction(Protocol):
    """Reads of one snapshot. ``snapshot=True`` reads without adding to the read conflicts.

    For one thread at a time. Every read raises TransactionTooOld after ``TRANSACTION_SECONDS_MAX``, KeyTooLarge and
    ReservedKey for keys that no store can hold, and TransactionFinished once the transaction has ended.
    """

    def get(self, key: bytes, *, snapshot: bool = False) -> bytes | None:
        """The value, or None."""

    def get_many(self, keys: Sequence[bytes], *, snapshot: bool = False) -> list[bytes | None]:
        """The values in the order of ``keys``; one round trip where the backend can."""

    def get_range(
        self, begin: bytes, end: bytes, *, limit: int = 0, reverse: bool = False, snapshot: bool = False
    ) -> list[KeyValue]:
        """Pairs with ``begin <= key < end`` in key order (descending if ``reverse``), at most ``limit`` (0: all).

        What is read is the range actually covered: with a limit, only up to the last pair returned. Raises
        InvertedRange.
        """

    def version(self) -> int:
        """The version of the newest commit in the snapshot. Two snapshots of one store with the same version hold the
        same; the reverse need not be true. Adds nothing to the read conflicts."""


class Transaction(ReadTransaction, Protocol):
    """Reads plus buffered writes; nothing is visible to others before the commit.

    Reads see the transaction's own writes. Every write raises TransactionTooLarge as soon as the keys and values
    written plus the conflict ranges exceed ``TRANSACTION_BYTES_MAX``.
    """

    @property
    def size_bytes(self) -> int:
        """What counts towards ``TRANSACTION_BYTES_MAX`` so far."""

    def set(self, key: bytes, value: bytes) -> None:
        """Raises KeyTooLarge, ReservedKey, ValueTooLarge."""

    def clear(self, key: bytes) -> None:
        """Removes the key; no error if it is absent."""

    def clear_range(self, begin: bytes, end: bytes) -> None:
        """Clears ``begin <= key < end``."""

    def add(self, key: bytes, delta: int) -> None:
        """Adds to a little-endian signed 64-bit counter (absent: 0; wraps), without a read conflict.

        ``counter`` reads such a value. As in FoundationDB, a stored value of another length is cut or zero-extended
        to 8 bytes first. Raises InvalidArgument if ``delta`` does not fit into 64 bits.
        """

    def set_versionstamped_key(self, prefix: bytes, number: int, value: bytes) -> None:
        """Sets ``stamped_key(prefix, stamp, number)``, where the stamp is that of the commit.

        Keys of later commits sort behind those of earlier ones, and no two are alike, although nobody waits for or
        conflicts with anybody: an ordered log. ``number`` (0 to 65,535) orders the keys of one transaction. The
        transaction itself does not see the key. Raises KeyTooLarge, ReservedKey, ValueTooLarge, InvalidArgument.
        """

    def set_versionstamped_value(self, key: bytes, rest: bytes) -> None:
        """Sets ``key`` to the stamp of the commit (``STAMP_BYTES``) and ``rest``, without a read conflict.

        The transaction itself does not see the value, and must not write the key in another way. Raises KeyTooLarge,
        ReservedKey, ValueTooLarge.
        """

    def add_read_conflict(self, begin: bytes, end: bytes) -> None:
        """Refuse the commit if anything in ``[begin, end)`` is written by another after this one's snapshot.

        Takes the snapshot now if nothing was read yet.
        """

    def add_write_conflict(self, begin: bytes, end: bytes) -> None:
        """Make others who read ``[begin, end)`` before this commit fail, although nothing there is written."""


class OpenTransaction(Transaction, Protocol):
    """One attempt, ended by hand: what ``transact`` is made of. Not retried."""

    def commit(self) -> None:
        """Returns once the writes are durable and visible to every later read.

        Raises Conflict, TransactionTooOld, TransactionTooLarge and Unavailable (nothing was applied) or
        CommitUnknownResult. A transaction without writes has nothing to check and always succeeds.
        """

    def cancel(self) -> None:
        """Drops the writes and releases the snapshot. Does nothing after ``commit``; may be called twice."""


@dataclass(frozen=True, slots=True)
class Export:
    """``pages`` hold the pairs in the order of their keys, all as they were at ``version``; to be read once."""

    version: int
    pages: Iterator[list[KeyValue]]


class Store(ABC):
    """One ordered, transactional key-value store. Thread-safe; close() waits for running commits."""

    name: str

    @abstractmethod
    def read(self, body: Callable[[ReadTransaction], T]) -> T:
        """Runs ``body`` once on one consistent snapshot that holds everything acknowledged before the call."""

    def read_at_once(self, keys: Sequence[bytes]) -> list[bytes | None] | None:
        """The values that ``read`` would give, for callers that must not wait, as event loops: only if it takes some
        ten microseconds, which it does where no network, no queue and no other thread is in between.

        None: it would wait, or could not read; ``read`` says why.
        """
        return None

    def writes_begun(self) -> int | None:
        """A count of the commits of this store, each of which is in it before any read can see it. As long as it stays
        the same, what was read after it was looked up is what ``read`` would give.

        None: a commit is being applied, or nobody knows, since other processes write, too.
        """
        return None

    @abstractmethod
    def transact(self, body: Callable[[Transaction], T], *, attempts_max: int = 50) -> T:
        """Runs ``body`` and commits durably; runs it again on Conflict, TransactionTooOld and TryAgain.

        ``body`` may run several times and must have no effect outside the transaction. If ``body`` raises, nothing is
        applied and the error passes through. Raises the last Conflict after ``attempts_max`` runs, and
        CommitUnknownResult if the backend cannot tell whether the commit happened.
        """

    @abstractmethod
    def begin(self) -> OpenTransaction:
        """A transaction that the caller commits or cancels; prefer ``transact``, which retries.

        For tests that interleave transactions by hand and for code that keeps one open across callbacks. Until it
        ends it may hold a connection.
        """

    @abstractmethod
    def wait_for_change(self, key: bytes, seen: bytes | None, timeout_s: float) -> bool:
        """Waits until the value of ``key`` is another one than ``seen``; False if it is not after ``timeout_s``.

        For wake-ups instead of polling: of a value that changes and changes back meanwhile nothing need be noticed.
        How soon others' commits are is the backend's matter, well below a second. Raises what reading raises.
        """

    @abstractmethod
    def export(self, begin: bytes = b"", end: bytes = KEYS_END) -> AbstractContextManager[Export]:
        """All pairs with ``begin <= key < end`` as they are now, however long reading them takes and whatever is
        written meanwhile. For backups: it may keep a connection, and the store from forgetting what is old.

        Raises Unavailable, also while pages are read: what was read till then is not all.
        """

    def integrity_check(self) -> list[str]:
        """What the backend itself finds damaged in what it stores, in its words; empty if all is well, or if that is
        the backend's own business. May read all of it."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Ends the store's threads and connections; later calls raise StoreClosed. May be called twice."""


def strinc(prefix: bytes) -> bytes:
    """The first key after all keys that begin with ``prefix`` (as in FoundationDB's bindings)."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        raise InvalidArgument("a prefix of only 0xff bytes has no end")
    return stripped[:-1] + bytes([stripped[-1] + 1])


def counter(value: bytes | None) -> int:
    """The number that ``Transaction.add`` keeps in ``value`` (None: 0)."""
    return int.from_bytes(value[:8].ljust(8, b"\0"), "little", signed=True) if value else 0
