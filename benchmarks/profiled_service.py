"""The service under cProfile, for ``--profile``: ``python -m benchmarks.profiled_service FILE``.

Each thread has its own profiler, which measures the thread's processor time, so waiting costs nothing. The figures of
all threads are added up. The profiler makes calls more expensive than lines, so read the result as hints, not as
shares.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lakemark_server.process import main
from lakemark_server.settings import Settings

# Where threads of the pool wait for work. They still wait when the service stops, so the end of that call is taken
# from the clock of the stopping thread, and its time means nothing.
WAITING = "'get' of '_queue.SimpleQueue' objects"

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
        figures: dict[tuple[str, int, str], Any] = total.stats  # type: ignore[attr-defined]
        for function in [one for one in figures if WAITING in one[2]]:
            del figures[function]
        total.dump_stats(path)


if __name__ == "__main__":
    threading.Thread.run = _profiled(threading.Thread.run)  # type: ignore[method-assign]
    main(Settings())
    _write(Path(sys.argv[1]))
