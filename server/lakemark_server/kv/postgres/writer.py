"""Applies batches of transactions to the store in PostgreSQL: waits for the turn, resolves, writes, commits durably."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from lakemark_core.errors import LakemarkError

from ..api import CommitUnknownResult
from ..batch import resolve
from ..buffer import PendingTransaction
from ..overlay import Overlay, add_to_counter
from ..write_sets import encode_writes
from .binary import bytea_array, bytea_arrays, from_int8, int8
from .errors import PostgresFailure, commit_error, translated
from .listener import channel
from .statements import SHORT_KEY_BYTES_MAX
from .window import Window
from .wire import Call, PostgresConnection

# The server's own limits on waiting for the turn and on a statement are shorter.
ANSWER_SECONDS_MAX: Final = 25.0

_LOCK_CLASS: Final = 0x4C4B4D4B  # "LKMK", over the oid of the log: one lock for each store

Connect = Callable[[], PostgresConnection]


class PostgresWriter:
    """The only connection of this process that writes. Used by one thread.

    After a failure the connection is closed and the next batch opens another. A commit of unknown outcome needs nothing
    more: if it was applied, the next batch finds it in the log.
    """

    def __init__(self, connect: Connect, window: Window, log_oid: int) -> None:
        self._connect = connect
        self._lock = int8(_LOCK_CLASS << 32 | log_oid)
        self._channel = channel(log_oid).encode()
        self._window = window
        self._connection: PostgresConnection | None = None
        self._turn: tuple[PostgresConnection, int] | Exception | None = None

    def take_turn(self) -> None:
        """Waits until this process may commit. ``apply`` must be called next, and returns the errors of the wait."""
        try:
            self._turn = self._begin()
        except Exception as error:
            self._turn = error

    def apply(self, batch: Sequence[PendingTransaction]) -> list[LakemarkError | None]:
        """The error of each transaction that was not applied, else None."""
        errors: list[LakemarkError | None] = [None] * len(batch)
        commit: int | None = None  # the position of COMMIT, once it was sent
        try:
            connection, now = self._taken_turn()
            stored = _stored(connection, _counters(batch))
            version = max(self._window.newest + 1, now)
            writes, errors = resolve(self._window, batch, version)
            if all(errors):
                connection.rollback()
                return errors
            calls = [*self._written(writes, stored, version), ("commit", ())]
            commit = len(calls) - 1
            connection.run(*calls, seconds_max=ANSWER_SECONDS_MAX)
        except PostgresFailure as failure:
            self._abandon()
            error = translated(failure) if commit is None else commit_error(failure, commit)
            return [known or error for known in errors]
        except LakemarkError as unavailable:  # no connection could be made
            self._abandon()
            return [known or unavailable for known in errors]
        except BaseException:
            self._abandon()
            raise
        if connection.warned:
            # Committed on this server, but not on the replicas that the commit had to wait for.
            self._abandon()
            error = CommitUnknownResult("PostgreSQL could not replicate the commit; it may get lost in a failover")
            return [known or error for known in errors]
        self._window.seal(version)
        return errors

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _begin(self) -> tuple[PostgresConnection, int]:
        """The connection, in a transaction that holds the turn, and the server's time in microseconds."""
        while True:
            connection = self._connection
            if connection is None or connection.closed:
                connection = self._connection = self._connect()
            try:
                return connection, self._catch_up(connection)
            except PostgresFailure as failure:
                # COMMIT was not sent, so the caller need not know of a connection that died since the last batch.
                if not (failure.lost and connection.used):
                    raise
                self.close()

    def _catch_up(self, connection: PostgresConnection) -> int:
        """Waits for the turn and reads what others wrote. Returns the server's time in microseconds."""
        _, turn, news = connection.run(
            ("begin", ()),
            ("lock", (self._lock,)),
            ("news", (int8(self._window.newest),)),
            seconds_max=ANSWER_SECONDS_MAX,
        )
        if not news:
            # The log always keeps its newest entry, so the version that this process knew was lost in a failover.
            newest = connection.run(("newest", ()), seconds_max=ANSWER_SECONDS_MAX)[0][0][0]
            news = [(newest, b"")]
        self._window.follow([(from_int8(version), writes) for version, writes in news])
        return from_int8(turn[0][0])

    def _taken_turn(self) -> tuple[PostgresConnection, int]:
        turn, self._turn = self._turn, None
        if isinstance(turn, Exception):
            raise turn
        if turn is None:
            raise RuntimeError("apply was called out of turn")
        return turn

    def _written(self, writes: Overlay, stored: dict[bytes, bytes], version: int) -> list[Call]:
        """The statements that apply the writes and note them in the log."""
        calls: list[Call] = []
        cleared = list(writes.cleared_ranges())
        if cleared:
            ranges = bytea_arrays(cleared)
            calls += [("clear_ranges", ranges), ("clear_ranges_long", ranges)]
        values: dict[bytes, bytes] = {}
        absent: list[bytes] = []
        for key, pending in writes.points.items():
            if pending is None:
                absent.append(key)
            else:
                values[key] = add_to_counter(stored.get(key), pending) if isinstance(pending, int) else pending
        for suffix, keys in zip(("", "_long"), _by_length(absent), strict=True):
            if keys:
                calls.append(("clear" + suffix, (bytea_array(keys),)))
        for suffix, keys in zip(("", "_long"), _by_length(values), strict=True):
            if keys:
                calls.append(("put" + suffix, bytea_arrays((key, values[key]) for key in keys)))
        calls.append(("log", (int8(version), encode_writes(*self._window.recorded()))))
        calls.append(("notify", (self._channel,)))
        old = self._window.due()
        if old is not None:
            calls.append(("trim", (int8(old),)))
        return calls

    def _abandon(self) -> None:
        """Closing the connection rolls back."""
        self.close()
        self._window.discard()


def _counters(batch: Sequence[PendingTransaction]) -> list[bytes]:
    """The keys of counters that are added to. After folding there may be fewer: another transaction may set a key."""
    return list(
        {key for transaction in batch for key, pending in transaction.writes.points.items() if isinstance(pending, int)}
    )


def _stored(connection: PostgresConnection, keys: Sequence[bytes]) -> dict[bytes, bytes]:
    """The stored counters, at most 8 bytes of each."""
    if not keys:
        return {}
    names = zip(("counters", "counters_long"), _by_length(keys), strict=True)
    calls: list[Call] = [(name, (bytea_array(some),)) for name, some in names if some]
    return {key: value for rows in connection.run(*calls, seconds_max=ANSWER_SECONDS_MAX) for key, value in rows}


def _by_length(keys: Sequence[bytes] | dict[bytes, bytes]) -> tuple[list[bytes], list[bytes]]:
    """The keys that an index can hold, and the longer ones."""
    short = [key for key in keys if len(key) <= SHORT_KEY_BYTES_MAX]
    return short, [key for key in keys if len(key) > SHORT_KEY_BYTES_MAX] if len(short) < len(keys) else []
