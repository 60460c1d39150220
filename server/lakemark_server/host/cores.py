"""On which cores the service's threads run.

The interpreter runs one thread of a process at a time. On several cores, each call that gives its lock up for a moment
(a read of SQLite, a few microseconds in Arrow) lets a thread on another core take it, which has to be woken up there
first, and for which the one that gave it up has to wait in turn. On one core such a call costs nothing, as nobody else
runs meanwhile. But a process that is held to one core depends on what else runs there, so it is let go where others
leave it no room. What all of that gives is in docs/decisions/0011-one-core.md.
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
"""The share of a core that others may use."""
_WINDOW_S: Final = 2.0
_STAT: Final = Path("/proc/stat")
_TASKS: Final = Path("/proc/self/task")
_IDLE, _IO_WAIT = 3, 4  # columns of proc_stat(5)

_log = structlog.get_logger(__name__)


class Window(NamedTuple):
    """What ran for a while."""

    busy: Mapping[int, float]
    """The share of its time that each core was at work, for whomever; of the cores that the process may use."""
    own: float
    """How many cores' time the process used."""


def choose(held: int | None, window: Window) -> int | None:
    """The core to run on after ``window``, in which it was ``held``; None: all of them."""
    quietest = min(window.busy, key=lambda core: (window.busy[core], random.random()))  # noqa: S311 - not a secret
    if held is None:
        others = sum(window.busy.values()) - window.own
        return quietest if others <= len(window.busy) - 1 + CROWDED else None  # the system moves them out of the way
    if window.busy[held] - window.own <= CROWDED:
        return held
    return quietest if window.busy[quietest] <= CROWDED else None


def keep_to_one() -> None:
    """Holds all threads of this process to one core, from now on and as long as there is room on one.

    Does nothing where the process may use one core only, or the system does not hold threads to cores (macOS), or does
    not let this process do it.
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
    """What runs from now on. Takes some seconds, not always the same, so that several services do not keep step."""
    before, own, since = _ticks(), time.process_time(), time.monotonic()
    time.sleep(_WINDOW_S * random.uniform(0.75, 1.25))  # noqa: S311 - not a secret
    after, own, passed = _ticks(), time.process_time() - own, time.monotonic() - since
    busy = {}
    for core in allowed & before.keys() & after.keys():
        spent = [later - sooner for sooner, later in zip(before[core], after[core], strict=True)]
        busy[core] = round(1 - (spent[_IDLE] + spent[_IO_WAIT]) / max(sum(spent), 1), 3)
    return Window(busy, round(own / passed, 3))


def _ticks() -> dict[int, list[int]]:
    """By core: what it spent its time on, since the machine started (proc_stat(5); without guests, counted twice)."""
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
