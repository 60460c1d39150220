"""Applies batches of transactions to the store in PostgreSQL: wait for the turn, resolve, write, one durable COMMIT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from lakemark_core.errors import LakemarkError

from ..api import CommitUnknownResult
from ..batch import resolve
from ..buffer import CommitRequest
from ..overlay import Overlay, add_to_counter
from ..write_sets import encode_writes
from .binary import bytea_array, bytea_arrays, from_int8, int8
from .errors import PostgresFailure, commit_error, translated
from .statements import SHORT_KEY_BYTES_MAX
from .window import Window
from .wire import Call, PostgresConnection

# The server's own limits on waiting for the turn and on a statement end before this.
ANSWER_SECONDS_MAX: Final = 25.0

_LOCK_CLASS: Final = 0x4C4B4D4B  # "LKMK", over the oid of the log: one lock for each store

Connect = Callable[[], PostgresConnection]


class PostgresWriter:
    """The only connection of this process that writes. Used by one thread.

    After any failure the connection is thrown away and the next batch opens another. A commit of unknown outcome needs
    nothing more: the next batch finds it in the log, or does not.
    """

    def __init__(self, connect: Connect, window: Window, log_oid: int) -> None:
        self._connect = connect
        self._lock = int8(_LOCK_CLASS << 32 | log_oid)
        self._window = window
        self._connection: PostgresConnection | None = None
        self._turn: tuple[PostgresConnection, int] | Exception | None = None

    def take_turn(self) -> None:
        """Waits until this process may commit. What goes wrong is told by ``apply``, which must be called next."""
        try:
            self._turn = self._begin()
        except Exception as error:
            self._turn = error

    def apply(self, batch: Sequence[CommitRequest]) -> list[LakemarkError | None]:
        """For each request why it was not applied, or None."""
        errors: list[LakemarkError | None] = [None] * len(batch)
        commit: int | None = None  # which statement it is, once it was sent
        try:
            connection, now = self._taken_turn()
            stored = _stored(connection, _counters(batch))
            writes, errors = resolve(self._window, batch)
            if all(errors):
                connection.rollback()
                return errors
            version = max(self._window.newest + 1, now)
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
            # Committed here, but not where the commit should have been waited for.
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
        """The connection, in a transaction that holds the turn, and the server's time."""
        while True:
            connection = self._connection
            if connection is None or connection.closed:
                connection = self._connection = self._connect()
            try:
                return connection, self._catch_up(connection)
            except PostgresFailure as failure:
                # COMMIT was not sent: a connection that had died since the last batch is not the caller's business.
                if not (failure.lost and connection.used):
                    raise
                self.close()

    def _catch_up(self, connection: PostgresConnection) -> int:
        """Waits for the turn and learns what others wrote; answers the server's time."""
        _, turn, news = connection.run(
            ("begin", ()),
            ("lock", (self._lock,)),
            ("news", (int8(self._window.newest),)),
            seconds_max=ANSWER_SECONDS_MAX,
        )
        if not news:
            # The log always has its newest entry: what this process knew was lost in a failover.
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
        old = self._window.due()
        if old is not None:
            calls.append(("trim", (int8(old),)))
        return calls

    def _abandon(self) -> None:
        """Closing the connection rolls back."""
        self.close()
        self._window.discard()


def _counters(batch: Sequence[CommitRequest]) -> list[bytes]:
    """The keys that are added to; perhaps some more than in the end, when they are folded with what others set."""
    return list(
        {key for request in batch for key, pending in request.writes.points.items() if isinstance(pending, int)}
    )


def _stored(connection: PostgresConnection, keys: Sequence[bytes]) -> dict[bytes, bytes]:
    """The counters as they are, at most 8 bytes of each."""
    if not keys:
        return {}
    names = zip(("counters", "counters_long"), _by_length(keys), strict=True)
    calls: list[Call] = [(name, (bytea_array(some),)) for name, some in names if some]
    return {key: value for rows in connection.run(*calls, seconds_max=ANSWER_SECONDS_MAX) for key, value in rows}


def _by_length(keys: Sequence[bytes] | dict[bytes, bytes]) -> tuple[list[bytes], list[bytes]]:
    """Those that an index can hold, and the longer ones."""
    short = [key for key in keys if len(key) <= SHORT_KEY_BYTES_MAX]
    return short, [key for key in keys if len(key) > SHORT_KEY_BYTES_MAX] if len(short) < len(keys) else []
