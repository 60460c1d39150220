"""Cleaning in the background of tables that ask for it (``catalog.clean_schedule``)."""

from __future__ import annotations

from typing import Final

import structlog

from lakemark_core.errors import LakemarkError, TableNotFound
from lakemark_server.catalog import clean_schedule, lake
from lakemark_server.catalog.clean_schedule import Due
from lakemark_server.context.clock import ClockMs
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.maintenance.cleaning.cleaner import Cleaner
from lakemark_server.store.leases import LeaseLost

TABLES_A_ROUND: Final = 10
PIECES_A_TABLE: Final = 10
BACKOFF_MS_MAX: Final = 86_400_000
_log = structlog.get_logger(__name__)


def backoff_ms(interval_ms: int, failures: int) -> int:
    """How many milliseconds to wait after ``failures`` in a row."""
    return int(min(interval_ms * 2 ** min(failures, 30), BACKOFF_MS_MAX))


class AutoClean:
    """``interval_ms``: how often a table is looked at. ``grace_ms``: how long files of ended versions stay.

    Readers that began before a version ended may still need its files.
    """

    def __init__(self, store: Store, clock: ClockMs, cleaner: Cleaner, *, interval_ms: int, grace_ms: int) -> None:
        self._store, self._clock, self._cleaner = store, clock, cleaner
        self._interval_ms, self._grace_ms = interval_ms, grace_ms

    def round(self) -> int:
        """Does a bounded part of the work for at most ``TABLES_A_ROUND`` tables. Returns how many there were.

        If cleaning a table fails, the error is logged and that table waits longer. Raises LeaseLost, and what reading
        the store raises.
        """
        due = self._store.read(lambda tx: clean_schedule.due(tx, self._clock(), TABLES_A_ROUND))
        for due_ms, table_id in due:
            following = self._look(table_id, due_ms)
            self._store.transact(
                lambda tx, table_id=table_id, due_ms=due_ms, following=following: clean_schedule.settle(  # type: ignore[misc]
                    tx, table_id, due_ms, following
                )
            )
        return len(due)

    def _look(self, table_id: int, due_ms: int) -> Due | None:
        """Cleans a table if it is still due then. Returns when it is due again; None: never."""

        def standing(tx: ReadTransaction) -> Due | None:
            current = clean_schedule.find(tx, table_id)
            return current if current is not None and current.ms == due_ms else None

        before = self._store.read(standing)
        if before is None:
            return None
        try:
            return self._clean(table_id)
        except TableNotFound:
            return None
        except LeaseLost:
            raise
        except LakemarkError as error:
            failures = before.failures + 1
            wait_ms = backoff_ms(self._interval_ms, failures)
            _log.warning(
                "cleaning a table failed; it is tried again",
                table_id=table_id,
                reason=error.message,
                failures=failures,
                wait_ms=wait_ms,
            )
            return Due(self._clock() + wait_ms, failures)

    def _clean(self, table_id: int) -> Due | None:
        table = self._store.read(lambda tx: lake.load(tx, table_id))
        wanted = clean_schedule.retention_of(table.record.properties)
        if wanted is None:
            return None
        files, pieces = 0, 0
        while pieces < PIECES_A_TABLE:
            deleted, more = self._cleaner.finish(table, self._grace_ms)
            files, pieces = files + deleted, pieces + 1
            if not more:
                break
        else:
            return Due(self._clock())
        versions = self._cleaner.end(table, wanted)
        removed = self._cleaner.trim(table)
        if files or versions or removed:
            _log.info("cleaned a table", table=table.name, files=files, versions=versions, removed=removed)
        return Due(self._clock() + (min(self._grace_ms, self._interval_ms) if versions else self._interval_ms))
