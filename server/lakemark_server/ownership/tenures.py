"""Work in directories that are closed, which may take hours: they stay closed for this process as long as it lives.

A process that is stopped for long, or cannot reach the store, may be taken for dead and be replaced. It is told so
before it does the next thing to the files.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import structlog

from lakemark_core.errors import LakemarkError, LocationTaken
from lakemark_proto.store.v1.store_pb2 import ClosedRecord
from lakemark_server.kv import Store, Transaction
from lakemark_server.ownership import closures
from lakemark_server.ownership.closures import TakenOver

LEFT_MS: Final = 10 * 60_000
"""Whoever has not renewed a closure for so long is taken for dead."""

_RENEWED_S: Final = 60.0
_SURE_S: Final = LEFT_MS / 1_000 * 0.8
"""For so long after it was renewed nobody else can have taken it over."""

_log = structlog.get_logger(__name__)

_lock = threading.Lock()
_busy: set[str] = set()


class Tenure:
    """``may_go_on`` is asked before each thing that is done to the files in the directories of ``records``."""

    def __init__(self, store: Store, records: Sequence[ClosedRecord]) -> None:
        self._store, self._records = store, records
        self._renewed_s = _seconds()

    def may_go_on(self) -> None:
        """Renews the closures now and then. Raises TakenOver; Unavailable if the store has been away for too long."""
        passed_s = _seconds() - self._renewed_s
        if passed_s < _RENEWED_S:
            return

        def renew(tx: Transaction) -> None:
            closures.renew(tx, self._records, int(passed_s * 1_000))

        try:
            self._store.transact(renew)
        except TakenOver:
            raise
        except LakemarkError as error:
            if passed_s > _SURE_S:
                raise
            _log.warning("a closed directory cannot be renewed; it is tried again", reason=error.message)
        else:
            self._renewed_s += passed_s


def _seconds() -> float:
    """Also counts the time in which the machine sleeps, where that can be had."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@contextmanager
def at_work(store: Store, records: Sequence[ClosedRecord]) -> Iterator[Tenure]:
    """For what this process has closed or taken over. Raises LocationTaken if another of its threads is at it."""
    locations = {record.location for record in records}
    with _lock:
        both = locations & _busy
        if both:
            raise LocationTaken(f"{min(both)} is being worked on already; try again in a moment", location=min(both))
        _busy.update(locations)
    try:
        yield Tenure(store, records)
    finally:
        with _lock:
            _busy.difference_update(locations)


def is_at(record: ClosedRecord) -> bool:
    """Whether a thread of this process is at work there."""
    with _lock:
        return record.worker == closures.WORKER and record.location in _busy
