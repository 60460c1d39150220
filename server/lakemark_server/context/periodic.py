"""Work that a process does again and again beside its requests."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from lakemark_core.errors import LakemarkError

_log = structlog.get_logger(__name__)


class PeriodicThread:
    """Calls ``work`` every ``interval_s``, in a thread of its own. What fails is tried again the next time."""

    def __init__(self, name: str, interval_s: float, work: Callable[[], object]) -> None:
        self._name, self._interval_s, self._work = name, interval_s, work
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Waits for what runs."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            try:
                self._work()
            except LakemarkError as error:
                _log.debug("periodic work failed", work=self._name, reason=error.message)
            except Exception:
                _log.exception("periodic work failed by a defect; it is tried again", work=self._name)
