"""A pool of connections that read, for the stores whose driver's connections are not for two threads at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

from lakemark_core.errors import Unavailable

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPIConnection

WAIT_SECONDS: Final = 10.0


class ReaderPool:
    """Up to ``readers_max`` connections at a time, of which ``readers_kept`` stay open when they are idle; a further
    reader waits WAIT_SECONDS for its turn."""

    def __init__(self, connect: Callable[[], object], *, readers_kept: int, readers_max: int) -> None:
        self._readers_max = readers_max
        self._pool = QueuePool(
            lambda: cast("DBAPIConnection", connect()),
            pool_size=readers_kept,
            max_overflow=readers_max - readers_kept,
            timeout=WAIT_SECONDS,
            # Ends the snapshot; also of a transaction that was dropped without commit or cancel.
            reset_on_return="rollback",
            use_lifo=True,
        )
        self._closed = False

    def take(self) -> PoolProxiedConnection:
        """Raises Unavailable and what connecting raises."""
        try:
            return self._pool.connect()
        except PoolTimeout as error:
            raise Unavailable(f"{self._readers_max} transactions are reading already; try again") from error

    def give_back(self, connection: PoolProxiedConnection) -> None:
        if connection.is_valid:
            connection.close()
        if self._closed:
            self._pool.dispose()

    def close(self) -> None:
        """Closes what is idle now, and the others when they are given back."""
        self._closed = True
        self._pool.dispose()
