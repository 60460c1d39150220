"""On how many cores a service's threads run.

The interpreter runs one thread of a process at a time. On several cores, each call that gives its lock up for a moment
(a read of SQLite, a few microseconds in Arrow) lets a thread on another core take it, which has to be woken up there
first, and for which the one that gave it up has to wait in turn. On one core such a call costs nothing, as nobody else
runs meanwhile. What that gives, and when it does not, is in docs/decisions/0011-one-core.md.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import sys
from pathlib import Path
from typing import Final

_TASKS: Final = Path("/proc/self/task")


def hold_to_one() -> int | None:
    """Holds all threads of this process to one core, also those that start from now on; which one.

    It is one that no other service of this machine is held to, as far as can be seen (containers with networks of their
    own do not see each other), else any one. None, and nothing is changed: the process may use one core only, or the
    system does not hold threads to cores (macOS), or does not let this process do it.
    """
    if sys.platform != "linux":
        return None
    allowed = os.sched_getaffinity(0)
    if len(allowed) == 1:
        return None
    cores = random.sample(sorted(allowed), len(allowed))
    core = next((each for each in cores if _claimed(each)), cores[0])
    try:
        for task in _TASKS.iterdir():
            with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                os.sched_setaffinity(int(task.name), {core})
    except PermissionError:  # by a filter of system calls, which holds for all threads
        return None
    return core


def _claimed(core: int) -> bool:
    """Whether it is this process's now: the name of an abstract socket is taken once, until its process ends."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
            claim.bind(f"\0lakemark-core-{core}")
            claim.detach()  # stays open as long as the process
    except OSError:  # another has it, or this process may not make such sockets
        return False
    return True
