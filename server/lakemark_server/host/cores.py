"""On which cores the service's threads run.

The interpreter runs one thread of a process at a time. On several cores, each call that gives up its lock for a moment
(a read of SQLite, a few microseconds in Arrow) lets a thread on another core take the lock. That thread has to be woken
up first, and then the first one has to wait for it. On one core such a call costs nothing, since no other thread runs
meanwhile. But a process that is held to one core depends on what else runs there, so it is released if other processes
leave it no room. docs/decisions/0011-one-core.md has the measurements.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import structlog

CROWDED: Final = 0.25
"""The share of a core that other processes may use."""
_WINDOW_S: Final = 2.0
_STAT: Final = Path("/proc/stat")
_TASKS: Final = Path("/proc/self/task")
_IDLE, _IO_WAIT = 3, 4  # columns of proc_stat(5)

_log = structlog.get_logger(__name__)


class Window(NamedTuple):
    """What ran in a short period."""

    busy: Mapping[int, float]
    """By core that the process may use: the share of the time in which it was busy, for any process."""
    own: float
    """How much time of cores the process used, in cores."""


def choose(held: int | None, window: Window) -> int | None:
    """The core to run on after ``window``, during which the process was ``held`` to a core; None: all of them."""
    quietest = min(window.busy, key=lambda core: (window.busy[core], random.random()))  # noqa: S311 - not a secret
    if held is None:
        others = sum(window.busy.values()) - window.own
        return quietest if others <= len(window.busy) - 1 + CROWDED else None  # the system moves them out of the way
    if window.busy[held] - window.own <= CROWDED:
        return held
    return quietest if window.busy[quietest] <= CROWDED else None


def keep_to_one() -> None:
    """Holds all threads of this process to one core from now on, while there is room on one.

    Does nothing if the process may use one core only, or if the system cannot hold threads to cores (macOS) or does not
    allow it.
    """
    if sys.platform == "linux" and len(allowed := os.sched_getaffinity(0)) > 1:
        threading.Thread(target=_keep, args=(allowed,), name="cores", daemon=True).start()


def _keep(allowed: set[int]) -> None:
    held = None
    with contextlib.suppress(OSError):  # no such files in this container, or a filter of system calls
        while (window := _window(allowed)).busy.keys() == allowed:
            core = choose(held, window)
            if core != held:
                _run_on(allowed if core is None else {core})
                _log.debug("runs on", core="all" if core is None else core, busy=window.busy, own=window.own)
                held = core


def _window(allowed: set[int]) -> Window:
    """Measures what runs from now on. The time varies by some seconds, so that several services do not keep step."""
    before, own, since = _ticks(), time.process_time(), time.monotonic()
    time.sleep(_WINDOW_S * random.uniform(0.75, 1.25))  # noqa: S311 - not a secret
    after, own, passed = _ticks(), time.process_time() - own, time.monotonic() - since
    busy = {}
    for core in allowed & before.keys() & after.keys():
        spent = [later - sooner for sooner, later in zip(before[core], after[core], strict=True)]
        busy[core] = round(1 - (spent[_IDLE] + spent[_IO_WAIT]) / max(sum(spent), 1), 3)
    return Window(busy, round(own / passed, 3))


def _ticks() -> dict[int, list[int]]:
    """By core, how it spent its time since the machine started (proc_stat(5), without guests, counted twice)."""
    lines = (line.split() for line in _STAT.read_text().splitlines())
    return {
        int(name.removeprefix("cpu")): [int(ticks) for ticks in columns[:8]]
        for name, *columns in lines
        if name.startswith("cpu") and name != "cpu"
    }


def _run_on(cores: set[int]) -> None:
    for _ in range(2):  # a thread that was just being started has the cores of the one that started it
        for task in _TASKS.iterdir():
            with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                os.sched_setaffinity(int(task.name), cores)
