"""One thread that finds out which kept answers hold, by one question for all calls that wait at that time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from lakemark_hms.wire.connection import Connection
from lakemark_hms.wire.inbox import Message
from lakemark_hms.wire.ready import Kept, ReadyAnswers

AT_ONCE_MAX: Final = 64


class Waiting(NamedTuple):
    """A call for which there is a kept answer."""

    connection: Connection
    message: Message
    kept: Kept


class Together:
    """``done`` gets each call with its reply; None: the call has to be made. It must not raise."""

    def __init__(self, ready: ReadyAnswers, done: Callable[[Waiting, bytes | None], None]) -> None:
        self._ready = ready
        self._done = done
        self._queue: SimpleQueue[Waiting | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="hms-kept", daemon=True)

    def put(self, call: Waiting) -> None:
        """Queues a call. There are never more of them than connections."""
        self._queue.put(call)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Ends the thread when everything queued before is done, and waits that long for it."""
        self._queue.put(None)
        if self._thread.ident:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            calls, ended = [first], False
            try:
                while len(calls) < AT_ONCE_MAX and not ended:
                    another = self._queue.get_nowait()
                    if another is None:
                        ended = True
                    else:
                        calls.append(another)
            except Empty:
                pass
            replies = self._ready.answers([(call.kept, call.message) for call in calls])
            for call, reply in zip(calls, replies, strict=True):
                self._done(call, reply)
            if ended:
                return
