"""Group commit: one thread gathers the transactions that wait and has them committed in one durable step.

While one batch is on its way to the disk the next one gathers, so that the cost of an fsync is shared by as many
transactions as there are waiting callers, and a lone caller waits for nobody. First come, first served.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from lakemark_core.errors import Internal, LakemarkError, Overloaded
from lakemark_server.context import deadline

from .api import StoreClosed
from .buffer import CommitRequest

BATCH_TRANSACTIONS_MAX: Final = 512
BATCH_BYTES_MAX: Final = 16_000_000
WAITING_MAX: Final = 10_000
RETRY_MS: Final = 500

Apply = Callable[[Sequence[CommitRequest]], Sequence[LakemarkError | None]]
"""Commits a batch in order; answers for each request why it was not applied, or None."""


class _Group:
    """Requests that are committed together, by their identity, and the callers that sleep until they are decided.

    All of them sleep on one lock, and whoever wakes wakes the next: woken all at once, they would only queue up for the
    interpreter's lock, before the thread that is to write the next group.
    """

    __slots__ = ("decided", "errors", "requests", "size_bytes")

    def __init__(self) -> None:
        self.requests: dict[int, CommitRequest] = {}
        self.size_bytes = 0
        self.errors: dict[int, LakemarkError | None] = {}
        self.decided = threading.Lock()
        self.decided.acquire()

    @property
    def full(self) -> bool:
        return len(self.requests) >= BATCH_TRANSACTIONS_MAX or self.size_bytes >= BATCH_BYTES_MAX


class GroupCommitter:
    """Owns the writer thread. ``apply`` is only ever called from that thread.

    A request whose caller's deadline is over before its group is taken is withdrawn, whole.

    So is ``turn``, before each group is taken, where processes take turns: whoever arrives during the wait is in it. It
    must not raise.
    """

    def __init__(self, apply: Apply, name: str, turn: Callable[[], None] = lambda: None) -> None:
        self._apply = apply
        self._turn = turn
        self._gate = threading.Lock()
        self._arrived = threading.Condition(self._gate)
        self._groups: deque[_Group] = deque()  # that are not taken; the last one grows
        self._waiting = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def commit(self, request: CommitRequest) -> None:
        """Returns when ``request`` is durable.

        Raises what ``apply`` answered, StoreClosed, Overloaded, DeadlineExceeded (nothing happened), DeadlineUnknown.
        """
        with self._gate:
            if self._closed:
                raise StoreClosed("the store is closed")
            if self._waiting >= WAITING_MAX:
                raise Overloaded(
                    f"{WAITING_MAX:,} commits already wait for the store; try again in {RETRY_MS} ms",
                    retry_after_ms=str(RETRY_MS),
                )
            if not self._groups or self._groups[-1].full:
                self._groups.append(_Group())
                self._arrived.notify()
            group = self._groups[-1]
            group.requests[id(request)] = request
            group.size_bytes += request.size_bytes
            self._waiting += 1
        self._wait(group, request)
        error = group.errors[id(request)]
        if error is not None:
            raise error

    def waiting(self) -> int:
        """How many requests are not taken yet."""
        return self._waiting

    def close(self) -> None:
        """Waits until everything that was handed in before is decided."""
        with self._gate:
            self._closed = True
            self._arrived.notify()
        self._thread.join()

    def _wait(self, group: _Group, request: CommitRequest) -> None:
        """Raises DeadlineExceeded if the time is over before the group was taken, DeadlineUnknown if later."""
        until = deadline.current()
        if until is deadline.NEVER:
            with group.decided:  # and wakes the next one
                return
        if group.decided.acquire(timeout=min(until.remaining_s(), threading.TIMEOUT_MAX)):
            group.decided.release()
            return
        with self._gate:
            if group in self._groups:
                del group.requests[id(request)]
                self._waiting -= 1
                raise deadline.exceeded()
        raise deadline.unknown()

    def _run(self) -> None:
        while self._await_group():
            self._turn()
            with self._gate:
                group = self._groups.popleft()
                self._waiting -= len(group.requests)
            self._decide(group)  # one that is empty, too: whoever took the turn gives it back

    def _await_group(self) -> bool:
        """False if there will be none any more."""
        with self._gate:
            while not self._groups:
                if self._closed:
                    return False
                self._arrived.wait()
        return True

    def _decide(self, group: _Group) -> None:
        batch = list(group.requests.values())
        try:
            errors = self._apply(batch)
        except Exception as error:  # a defect in ``apply`` must neither kill the thread nor leave callers asleep
            errors = [Internal(f"the commit failed: {error!r}") for _ in batch]
        group.errors = dict(zip(group.requests, errors, strict=True))
        group.decided.release()
