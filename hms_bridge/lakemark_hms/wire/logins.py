"""The threads that check passwords. The hosts of clients take turns, and each may have so many checks waiting."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

Work: TypeAlias = Callable[[], None]


class Logins:
    """Thread-safe. Checks take long on purpose, so nobody's guesses may hold up all others."""

    def __init__(self, threads: int, waiting_of_host_max: int) -> None:
        self._most = waiting_of_host_max
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, deque[Work]] = OrderedDict()  # the host whose turn is next is the first
        self._threads = ThreadPoolExecutor(threads, "hms-login")

    def put(self, host: str, work: Work) -> bool:
        """Lets a thread do the work when it is this host's turn. False: too much of this host's waits already."""
        with self._lock:
            waiting = self._waiting.setdefault(host, deque())
            if len(waiting) >= self._most:
                return False
            waiting.append(work)
        self._threads.submit(self._do_next)
        return True

    def stop(self) -> None:
        """Begins no further work, and waits for none."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _do_next(self) -> None:
        with self._lock:
            host, waiting = self._waiting.popitem(last=False)
            work = waiting.popleft()
            if waiting:
                self._waiting[host] = waiting
        work()
