"""Readers of the store in PostgreSQL: a pool of connections, each transaction on one snapshot of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from sqlalchemy.pool import PoolProxiedConnection

from ..api import KeyValue
from ..reader_pool import ReaderPool
from .binary import bytea_array, from_int8, int8
from .errors import PostgresFailure, read_error
from .statements import SHORT_KEY_BYTES_MAX
from .wire import Call, PostgresConnection, Rows

# The server ends a statement earlier, so this limit is for servers that hang and networks that lose packets.
ANSWER_SECONDS_MAX: Final = 8.0

Connect = Callable[[int], PostgresConnection]


class PostgresReaders(ReaderPool):
    """A pool whose idle connections may have been lost."""

    def __init__(self, connect: Connect, connections: int) -> None:
        super().__init__(lambda: connect(self._generation), readers_kept=connections, readers_max=connections)
        self._generation = 0

    def take(self) -> PoolProxiedConnection:
        """A connection that is not known to be lost. Raises as ``ReaderPool.take``."""
        while True:
            connection = super().take()
            inner = wire(connection)
            if not inner.closed and inner.generation == self._generation:
                return connection
            connection.invalidate()

    def lost(self, connection: PoolProxiedConnection) -> bool:
        """Drops the connection and all that are as old: what ends one usually ends all.

        Returns whether another connection is worth a try, which it is not if this one was new.
        """
        if not connection.is_valid:
            return False
        inner = wire(connection)
        stale = inner.used
        if inner.generation == self._generation:
            self._generation += 1
        connection.invalidate()
        return stale

    def give_back(self, connection: PoolProxiedConnection) -> None:
        if connection.is_valid and wire(connection).closed:
            connection.invalidate()
        super().give_back(connection)


def wire(connection: PoolProxiedConnection) -> PostgresConnection:
    return cast(PostgresConnection, connection.dbapi_connection)


class PostgresSnapshot:
    """One snapshot in REPEATABLE READ, taken by its first statement, which goes along with BEGIN."""

    __slots__ = ("_connection", "_has_long_keys", "_readers", "_run", "_version")

    def __init__(self, readers: PostgresReaders) -> None:
        self._readers = readers
        self._connection = readers.take()
        self._run = wire(self._connection).run
        self._version: int | None = None
        self._has_long_keys = False

    def get(self, key: bytes) -> bytes | None:
        rows = self._answers(("get" if len(key) <= SHORT_KEY_BYTES_MAX else "get_long", (key,)))[0]
        return rows[0][0] if rows else None

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        short = [key for key in keys if len(key) <= SHORT_KEY_BYTES_MAX]
        values = dict(cast(list[KeyValue], self._answers(("get_many", (bytea_array(short),)))[0]))
        if len(short) < len(keys):
            long = [key for key in keys if len(key) > SHORT_KEY_BYTES_MAX]
            for key, rows in zip(long, self._answers(*(("get_long", (key,)) for key in long)), strict=True):
                if rows:
                    values[key] = rows[0][0]
        return [values.get(key) for key in keys]

    def get_range(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[KeyValue]:
        name = "range_reverse" if reverse else "range"
        values = (begin, end, int8(limit) if limit else None)
        pairs = cast(list[KeyValue], self._answers((name, values))[0])
        if self._has_long_keys:
            more = cast(list[KeyValue], self._answers(("long_" + name, values))[0])
            if more:
                pairs = sorted([*pairs, *more], reverse=reverse)[: limit or None]
        return pairs

    def version(self) -> int:
        if self._version is None:
            self._answers()
        return cast(int, self._version)

    def release(self) -> None:
        self._readers.give_back(self._connection)

    def _answers(self, *calls: Call) -> list[Rows]:
        """The rows of each call. Raises TransactionTooOld, Unavailable and the other errors of ``read_error``."""
        while True:
            try:
                if self._version is not None:
                    return self._run(*calls, seconds_max=ANSWER_SECONDS_MAX)
                answers = self._run(("begin", ()), ("state", ()), *calls, seconds_max=ANSWER_SECONDS_MAX)
            except PostgresFailure as failure:
                # Nothing was read yet, so the caller need not know of a connection that died in the pool.
                again = self._readers.lost(self._connection) if failure.lost else False
                if self._version is not None or not again:
                    raise read_error(failure) from None
                self._connection = self._readers.take()
                self._run = wire(self._connection).run
                continue
            version, long_keys = answers[1][0]
            self._version = from_int8(version)
            self._has_long_keys = from_int8(long_keys) != 0
            return answers[2:]
