"""A pool of connections for reading, for drivers whose connections serve one thread at a time."""

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
    """Up to ``readers_max`` connections, of which ``readers_kept`` stay open while idle.

    A further reader waits up to WAIT_SECONDS for a connection.
    """

    def __init__(self, connect: Callable[[], object], *, readers_kept: int, readers_max: int) -> None:
        self._readers_max = readers_max
        self._pool = QueuePool(
            lambda: cast("DBAPIConnection", connect()),
            pool_size=readers_kept,
            max_overflow=readers_max - readers_kept,
            timeout=WAIT_SECONDS,
            # Ends the snapshot, even if the transaction was dropped without commit or cancel.
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
        """Closes idle connections now, and the others when they are given back."""
        self._closed = True
        self._pool.dispose()
