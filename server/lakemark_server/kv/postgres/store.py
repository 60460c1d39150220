"""The store in PostgreSQL: any number of processes on one database, each with readers and one committing thread."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import psycopg

from ..buffer import PendingTransaction
from ..buffered_store import BufferedStore, opened_read_only
from ..group_commit import GroupCommitter
from ..reads import Clock
from .errors import PostgresFailure, failure_of, translated
from .listener import PostgresListener
from .reader import PostgresReaders, PostgresSnapshot
from .schema import check, prepare, session
from .statements import READ, WRITE
from .url import PostgresTarget
from .window import Window
from .wire import PostgresConnection
from .writer import PostgresWriter

# A statement of a reader has as long as a transaction lives. A process that hangs with the turn to commit in its hands
# loses it after ``idle_in_transaction``, so that the others go on.
_READER: Final = {"statement_timeout": "5s", "idle_in_transaction_session_timeout": "15s"}
_EXPORTER: Final = {"statement_timeout": "60s", "idle_in_transaction_session_timeout": "1h"}
_WRITER: Final = {
    "statement_timeout": "20s",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "5s",
}
_OPENING: Final = {"statement_timeout": "60s", "lock_timeout": "30s"}
# How long a change may be overlooked: in case a notification gets lost, or while there are none.
_LISTENING_S: Final = 5.0
_POLLING_S: Final = 0.2
_SET_UP_SECONDS_MAX: Final = 10.0


class PostgresStore(BufferedStore):
    """Opens (or makes) the store at ``target``.

    ``clock`` counts the seconds of a transaction's age. With ``read_only`` the store is not made or migrated,
    sessions are read-only, and commits raise FailedPrecondition. Raises StoreFormatUnknown, FailedPrecondition,
    Unavailable.
    """

    name = "postgresql"

    def __init__(self, target: PostgresTarget, *, clock: Clock = time.monotonic, read_only: bool = False) -> None:
        self.target = target
        self._read_only = read_only
        super().__init__(clock)
        with self._driver() as driver:
            try:
                for statement in session(target.schema, self._settings(_OPENING)):
                    driver.execute(statement)
                log_oid, version = (check if read_only else prepare)(driver, target.schema)
            except psycopg.Error as error:
                raise translated(failure_of(error, target.scrubbed(str(error)))) from None
        self._readers = PostgresReaders(self._reader, target.connections - 1)
        self._writer = PostgresWriter(self._committing, Window(version, clock), log_oid)
        self._listener = PostgresListener(self._listening, log_oid, self._changes.wake_all)
        self._committer = GroupCommitter(
            self._announcing(self._writer.apply), f"lakemark-commit {target.schema}", self._writer.take_turn
        )

    def wait_for_change(self, key: bytes, seen: bytes | None, timeout_s: float) -> bool:
        if timeout_s > 0:
            self._listener.start()
        return super().wait_for_change(key, seen, timeout_s)

    def _unseen_s_max(self) -> float:
        return _LISTENING_S if self._listener.up else _POLLING_S

    def _snapshot(self) -> PostgresSnapshot:
        return PostgresSnapshot(self._readers)

    @contextmanager
    def _lasting_snapshot(self, begin: bytes, end: bytes) -> Iterator[PostgresSnapshot]:
        """A snapshot on a connection of its own, which leaves the pool to short transactions."""
        readers = PostgresReaders(self._exporter, 1)
        try:
            snapshot = PostgresSnapshot(readers)
            try:
                yield snapshot
            finally:
                snapshot.release()
        finally:
            readers.close()

    def _submit(self, transaction: PendingTransaction) -> None:
        if self._read_only:
            raise opened_read_only(self.name)
        self._committer.commit(transaction)

    def _close(self) -> None:
        self._listener.stop()
        self._committer.close()
        self._readers.close()
        self._writer.close()

    def _reader(self, generation: int) -> PostgresConnection:
        return self._connection(_READER, READ, generation)

    def _exporter(self, generation: int) -> PostgresConnection:
        return self._connection(_EXPORTER, READ, generation)

    def _listening(self) -> psycopg.Connection:
        return self._driver()

    def _committing(self) -> PostgresConnection:
        return self._connection(_WRITER, WRITE, 0)

    def _connection(
        self, settings: Mapping[str, str], statements: Mapping[str, str], generation: int
    ) -> PostgresConnection:
        connection = PostgresConnection(self._driver(), generation)
        begin = [statement.as_bytes() for statement in session(self.target.schema, self._settings(settings))]
        try:
            connection.set_up(begin, statements, seconds_max=_SET_UP_SECONDS_MAX)
        except PostgresFailure as failure:
            raise translated(failure) from None
        return connection

    def _settings(self, settings: Mapping[str, str]) -> Mapping[str, str]:
        return {**settings, "default_transaction_read_only": "on"} if self._read_only else settings

    def _driver(self) -> psycopg.Connection:
        """A new connection of the driver. Raises the errors of ``translated``."""
        try:
            return psycopg.connect(**self.target.parameters, autocommit=True)  # type: ignore[arg-type]
        except psycopg.Error as error:
            raise translated(failure_of(error, self.target.scrubbed(str(error)))) from None
