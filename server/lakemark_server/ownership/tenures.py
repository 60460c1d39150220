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

LEFT_MS: Final = 120_000
"""Whoever has not renewed a closure for so long is taken for dead."""

_RENEWED_S: Final = 20.0
_SURE_S: Final = LEFT_MS / 1_000 * 0.7
"""For so long after it was renewed nobody else can have taken it over."""

_log = structlog.get_logger(__name__)


class Tenure:
    """``may_go_on`` is asked before each thing that is done to the files in the directories of ``records``."""

    def __init__(self, store: Store, records: Sequence[ClosedRecord], age_ms: int = 0) -> None:
        self._store, self._records = store, records
        self._lock = threading.Lock()
        self._renewed_s = _seconds() - age_ms / 1_000
        self._lost: TakenOver | None = None

    def may_go_on(self) -> None:
        """Raises TakenOver; Unavailable if the store has been away for too long."""
        with self._lock:
            if self._lost is not None:
                raise self._lost
            passed_s = _seconds() - self._renewed_s
            if passed_s <= _SURE_S:
                return
            self._renew(passed_s)

    def renew(self) -> None:
        """Says that this process lives, if it was not said lately. What goes wrong is told by ``may_go_on``."""
        with self._lock:
            passed_s = _seconds() - self._renewed_s
            if passed_s < _RENEWED_S or self._lost is not None:
                return
            try:
                self._renew(passed_s)
            except LakemarkError as error:
                _log.warning("a closed directory could not be renewed", reason=error.message)
            except Exception:  # the thread has to go on for all others
                _log.exception("a closed directory could not be renewed")

    def _renew(self, passed_s: float) -> None:
        def body(tx: Transaction) -> None:
            closures.renew(tx, self._records, int(passed_s * 1_000))

        try:
            self._store.transact(body)
        except TakenOver as error:
            self._lost = error
            raise
        self._renewed_s += passed_s


class Tenures:
    """All tenures of this process, and the thread that renews them as long as there are any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._at: dict[str, Tenure] = {}
        self._thread: threading.Thread | None = None

    def begin(self, records: Sequence[ClosedRecord], tenure: Tenure) -> None:
        """Raises LocationTaken if another thread is at one of the directories."""
        with self._changed:
            both = [record.location for record in records if record.location in self._at]
            if both:
                raise LocationTaken(f"{both[0]} is being worked on already; try again in a moment", location=both[0])
            self._at.update((record.location, tenure) for record in records)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tenures", daemon=True)
                self._thread.start()
            self._changed.notify()

    def end(self, records: Sequence[ClosedRecord]) -> None:
        with self._changed:
            for record in records:
                self._at.pop(record.location, None)

    def has(self, record: ClosedRecord) -> bool:
        with self._changed:
            return record.location in self._at

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._at:
                    self._changed.wait()
                self._changed.wait(_RENEWED_S / 4)
                tenures = list({id(one): one for one in self._at.values()}.values())
            for tenure in tenures:
                tenure.renew()


_tenures = Tenures()


def _seconds() -> float:
    """Also counts the time in which the machine sleeps, where that can be had."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@contextmanager
def at_work(store: Store, records: Sequence[ClosedRecord], age_ms: int = 0) -> Iterator[Tenure]:
    """For what this process has closed or taken over, ``age_ms`` ago.

    Raises LocationTaken if another of its threads is at it.
    """
    tenure = Tenure(store, records, age_ms)
    _tenures.begin(records, tenure)
    try:
        yield tenure
    finally:
        _tenures.end(records)


def is_at(record: ClosedRecord) -> bool:
    """Whether a thread of this process is at work there."""
    return record.worker == closures.WORKER and _tenures.has(record)
