"""The service under cProfile, for ``--profile``: ``python -m benchmarks.profiled_service FILE``.

Each thread has a profiler of its own, whose clock is the thread's processor time: who waits costs nothing. The figures
of all threads are added up. The profiler makes calls dearer than lines, so read the result as hints, not as shares.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lakemark_server.process import main
from lakemark_server.settings import Settings

JOIN_TIMEOUT_S = 5.0

_profilers: list[cProfile.Profile] = []


def _profiled(run: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    def wrapped(thread: threading.Thread) -> None:
        profiler = cProfile.Profile(time.thread_time)
        _profilers.append(profiler)
        profiler.runcall(run, thread)

    return wrapped


def _write(path: Path) -> None:
    total: pstats.Stats | None = None
    for profiler in _profilers:
        profiler.create_stats()
        if not getattr(profiler, "stats", None):  # a thread that did nothing
            continue
        if total is None:
            total = pstats.Stats(profiler)
        else:
            total.add(profiler)
    if total is not None:
        total.dump_stats(path)


if __name__ == "__main__":
    threading.Thread.run = _profiled(threading.Thread.run)  # type: ignore[method-assign]
    main(Settings())
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(JOIN_TIMEOUT_S)  # a profiler that still runs would be charged with this thread's time
    _write(Path(sys.argv[1]))
