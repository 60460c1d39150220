"""One connection that runs prepared statements, several in one round trip, each within a time limit.

It uses libpq's pipeline mode through ``psycopg.pq``. Values are sent and received as bytes. It waits in ``poll``, so
that it notices a server that hangs. A transaction's BEGIN travels with its first read. This takes a fifth of the
processor time of the driver's cursors.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import psycopg
from psycopg import pq

from .errors import NoAnswer, PostgresFailure

Call = tuple[str, Sequence[bytes | None]]
"""The name of a prepared statement and its values in PostgreSQL's binary format."""
Rows = list[tuple[bytes, ...]]

_FAILED: Final = {pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE, pq.ExecStatus.PIPELINE_ABORTED}


class PostgresConnection:
    """For one thread at a time. Any failure closes it, because the state of its session is unknown then."""

    __slots__ = (
        "_driver",
        "_in_transaction",
        "_pg",
        "_poll",
        "_unread",
        "_writing",
        "closed",
        "generation",
        "used",
        "warned",
    )

    def __init__(self, driver: psycopg.Connection, generation: int = 0) -> None:
        """``driver`` must be in autocommit mode. ``generation`` is for its pool."""
        self._driver = driver
        self._pg = driver.pgconn
        self._pg.nonblocking = 1
        self._pg.enter_pipeline_mode()
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)
        self._writing = False
        self._unread = 0  # pipelines whose answers were not awaited
        self._in_transaction = False
        self.closed = False
        self.generation = generation
        self.used = False
        """Whether a transaction has ended on it. If so, it may have been lost since."""
        self.warned = False
        """Whether the server has sent a warning."""
        driver.add_notice_handler(self._note)

    def set_up(self, session: Sequence[bytes], statements: Mapping[str, str], *, seconds_max: float) -> None:
        """Runs the statements of ``session`` and prepares ``statements``. Raises PostgresFailure."""

        def send() -> int:
            for statement in session:
                self._pg.send_query_params(statement, None)
            for name, text in statements.items():
                self._pg.send_prepare(name.encode(), text.encode())
            return len(session) + len(statements)

        self._exchange(send, seconds_max)

    def run(self, *calls: Call, seconds_max: float) -> list[Rows]:
        """The rows of each statement. All are sent at once; statements after a failed one are not run.

        Raises PostgresFailure.
        """
        return self._exchange(lambda: self._send(calls), seconds_max)

    def rollback(self) -> None:
        """Ends the transaction, if there is one, without waiting for the answer. Never raises."""
        if self._in_transaction and not self.closed:
            try:
                self._send([("rollback", ())])
                self._pg.pipeline_sync()
                self._pg.flush()
                self._unread += 1
            except psycopg.Error:
                self.close()

    def close(self) -> None:
        """Rolls back what is not committed. May be called twice."""
        self.closed = True
        with contextlib.suppress(psycopg.Error):
            self._driver.close()

    def _send(self, calls: Sequence[Call]) -> int:
        for name, values in calls:
            self._pg.send_query_prepared(name.encode(), values, [1] * len(values), 1)
            if name == "begin":
                self._in_transaction = True
            elif name in {"commit", "rollback"}:
                self._in_transaction = False
                self.used = True
        return len(calls)

    def _exchange(self, send: Callable[[], int], seconds_max: float) -> list[Rows]:
        if self.closed:
            raise PostgresFailure("the connection was lost before")
        finished = False
        answers: list[Rows] = []
        deadline = time.monotonic() + seconds_max
        try:
            expected = send()
            self._pg.pipeline_sync()
            while self._unread:
                while self._next(deadline).status != pq.ExecStatus.PIPELINE_SYNC:
                    pass
                self._unread -= 1
            while (result := self._next(deadline)).status != pq.ExecStatus.PIPELINE_SYNC:
                if result.status in _FAILED:
                    raise _failure(result, len(answers))
                answers.append(_rows(result))
            finished = len(answers) == expected
        except psycopg.Error as error:
            raise PostgresFailure(_first_line(str(error))) from None
        finally:
            if not finished:
                self.close()
        return answers

    def _next(self, deadline: float) -> pq.abc.PGresult:
        while True:
            while self._pg.is_busy():
                self._wait(deadline)
            result = self._pg.get_result()
            if result is not None:
                return result
            # None ends the results of one statement. The next answer may still be on its way.

    def _wait(self, deadline: float) -> None:
        writing = self._pg.flush() == 1
        if writing != self._writing:
            self._poll.modify(self._pg.socket, select.POLLIN | (select.POLLOUT if writing else 0))
            self._writing = writing
        if not self._poll.poll(max(0.0, deadline - time.monotonic()) * 1_000):
            raise NoAnswer("no answer in time")
        self._pg.consume_input()

    def _note(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self.warned = True


def _rows(result: pq.abc.PGresult) -> Rows:
    get, columns = result.get_value, range(result.nfields)
    # No column of these tables is nullable.
    return [tuple([get(row, column) or b"" for column in columns]) for row in range(result.ntuples)]


def _failure(result: pq.abc.PGresult, statement: int) -> PostgresFailure:
    code = result.error_field(pq.DiagnosticField.SQLSTATE)
    if code is None:
        return PostgresFailure(_first_line(result.error_message.decode("utf-8", "replace")))
    # The primary message only: the detail may quote keys and values.
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
    return PostgresFailure(message.decode("utf-8", "replace"), code.decode(), statement)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
