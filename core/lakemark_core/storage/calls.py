"""Calls that a client's request waits for: short, and few at once to each store.

A store that never answers must stop nobody but those who ask for it. So such calls run in threads of their own: the
request waits for one a bounded time, and no longer while others have waited in vain. A thread ends when the store's
library gives up, and until then counts as a call to the store. Local directories are reached directly.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from lakemark_core.errors import StorageUnavailable
from lakemark_core.storage.connections import call_seconds, s3_endpoint
from lakemark_core.storage.uris import authority_and_path, is_s3, scheme_of

CALLS_A_STORE: Final = 6
CALLS_OF_ALL: Final = 12
"""To all stores that a location names; endpoints of S3 are settings, and each has its own ``CALLS_A_STORE``."""
TURN_S_MAX: Final = 1.0
"""How long a call waits for its turn. Calls of a store that answers take less."""

T = TypeVar("T")


def short_call(uri: str, what: str, call: Callable[[], T]) -> T:
    """What ``call`` returns or raises, which asks the store of ``uri`` for little.

    ``what``: the beginning of a sentence that says what is not done. Raises StorageUnavailable if the store does not
    answer in time, or has not answered others.
    """
    if scheme_of(uri) in ("", "file"):
        return call()
    return _TURNS.run(_store_of(uri), uri, what, call)


def _store_of(uri: str) -> str:
    return f"S3 {s3_endpoint(uri)}" if is_s3(uri) else authority_and_path(uri)[0]


class _Turns:
    """Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: Counter[str] = Counter()
        self._ended_s: dict[str, float] = {}
        # Of stores with calls that run: when the last one ended, or the first one began.

    def run(self, store: str, uri: str, what: str, call: Callable[[], T]) -> T:
        if not self._enter(store):
            raise StorageUnavailable(
                f"{what}: {self._running[store]} calls to this store wait for its answer already, as many as may; try "
                "again later",
                location=uri,
                reason="busy",
            )
        result: Future[T] = Future()
        # A daemon: a store that never answers must not keep the process from ending, either.
        threading.Thread(target=self._work, args=(store, call, result), name="storage-call", daemon=True).start()
        seconds = call_seconds()
        try:
            return result.result(seconds)
        except TimeoutError:
            if result.done():
                raise
            raise StorageUnavailable(
                f"{what}: the store did not answer within {seconds:g} s", location=uri, reason="timeout"
            ) from None

    def _work(self, store: str, call: Callable[[], T], result: Future[T]) -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)
        finally:
            self._leave(store)

    def _enter(self, store: str) -> bool:
        with self._changed:
            # Nobody waits for a store that has let others wait for so long.
            until_s = self._ended_s.get(store, time.monotonic()) + TURN_S_MAX
            if not self._changed.wait_for(lambda: self._has_room(store), until_s - time.monotonic()):
                return False
            self._running[store] += 1
            self._ended_s.setdefault(store, time.monotonic())
            return True

    def _has_room(self, store: str) -> bool:
        others = sum(count for name, count in self._running.items() if not name.startswith("S3 "))
        return self._running[store] < CALLS_A_STORE and (store.startswith("S3 ") or others < CALLS_OF_ALL)

    def _leave(self, store: str) -> None:
        with self._changed:
            self._running[store] -= 1
            self._ended_s[store] = time.monotonic()
            if not self._running[store]:
                del self._running[store], self._ended_s[store]
            self._changed.notify_all()


_TURNS: Final = _Turns()
