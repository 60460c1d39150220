"""FoundationDB's client in this process: the binding, its network thread, databases, and waiting for answers.

The client's network can be started once in a process, and stops when the interpreter exits; the binding does both. A
process that was forked after the start has no network thread. It gets an error instead of waiting for ever.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from lakemark_core.errors import DeadlineUnknown, FailedPrecondition, LakemarkError, Unimplemented
from lakemark_server.context import deadline

from .errors import TIMED_OUT, translated

API_VERSION: Final = 710
ANSWER_MS_MAX: Final = 10_000
"""Counted from the start of a transaction. Longer than one may live, so that no call hangs if the cluster is away."""

_TIMER_S: Final = 0.05  # the worst precision of the client's timers
_INSTALL: Final = (
    "stores in FoundationDB need the extra (pip install 'lakemark[server,fdb]') and libfdb_c 7.1 or newer, from "
    "FoundationDB's package foundationdb-clients, where the dynamic linker finds it (LD_LIBRARY_PATH names more places)"
)

T = TypeVar("T")

_starting = threading.Lock()
_forked = False


def _after_fork() -> None:
    global _forked  # noqa: PLW0603 - one network a process is FoundationDB's own rule
    _forked = True


class FdbClient:
    """One database. Thread-safe. All clients share the network thread of the process."""

    def __init__(self, cluster_file: Path) -> None:
        """Raises Unimplemented without binding or library, FailedPrecondition."""
        if not cluster_file.is_file():
            raise FailedPrecondition(f"there is no cluster file at {cluster_file}", path=str(cluster_file))
        self._fdb = fdb = _binding()
        self._error: type[Exception] = fdb.FDBError
        self._database = self.answer(lambda: fdb.open(str(cluster_file)))
        self._database.options.set_transaction_timeout(ANSWER_MS_MAX)

    def transaction(self) -> Any:
        """A native transaction, which ends at the current deadline if that is near.

        Raises FailedPrecondition in a forked process.
        """
        if _forked:
            raise FailedPrecondition(
                "this process was forked after FoundationDB's client was started; spawn it instead"
            )
        transaction = self._database.create_transaction()
        left_s = deadline.current().remaining_s()
        if left_s < ANSWER_MS_MAX / 1_000:
            transaction.options.set_timeout(max(1, int(left_s * 1_000)))
        return transaction

    @contextmanager
    def watched(self, key: bytes, changed: threading.Event) -> Iterator[bytes | None]:
        """The value of ``key``. Inside, ``changed`` is set once the value changes, or when the watch fails.

        If it failed, for too many watches for instance, the reason is raised at the end.
        """
        transaction = self.transaction()
        value: bytes | None = self.answer(lambda: transaction.get(key).value)
        watch = transaction.watch(key)
        # Nothing is written. The commit lets the watch live on without the transaction.
        self.answer(lambda: transaction.commit().wait())
        watch.on_ready(lambda _: changed.set())
        try:
            yield value
            if watch.is_ready():
                self.answer(watch.wait)
        finally:
            watch.cancel()

    def answer(self, call: Callable[[], T], error: Callable[[int, str], LakemarkError] = translated) -> T:
        """The result of ``call``. Raises ``error(code, text)`` for FoundationDB's errors."""
        try:
            return call()
        except self._error as failure:
            code: int = failure.code  # type: ignore[attr-defined]
            text: bytes = failure.description  # type: ignore[attr-defined]
            if code == TIMED_OUT and deadline.current().remaining_s() < _TIMER_S:
                raise (deadline.exceeded() if error is translated else _deadline_unknown()) from None
            raise error(code, text.decode()) from None


def _binding() -> Any:
    """The binding, with its API version selected and its network thread started."""
    with _starting:
        try:
            import fdb

            started = fdb.is_api_version_selected()
            fdb.api_version(API_VERSION)
        except Exception as error:  # the binding raises bare ones if it finds no library, or an older one
            raise Unimplemented(f"{_INSTALL} ({error})") from error
        if not started:
            os.register_at_fork(after_in_child=_after_fork)
            _sleep_in_c(fdb.Future)
        return fdb


def _deadline_unknown() -> DeadlineUnknown:
    return DeadlineUnknown(
        "the request's time was over while the store was committing it: it may have happened; ask again with the same "
        "request id, or look"
    )


def _sleep_in_c(future_class: Any) -> None:
    """Lets threads wait in the client library instead of for a callback in Python, which takes less processor time.

    The main thread still waits in the binding's way, where signals reach it. The binding's event models replace the
    same method.
    """
    in_python = future_class.block_until_ready

    def block_until_ready(future: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            in_python(future)
        else:
            future.capi.fdb_future_block_until_ready(future.fpointer)

    future_class.block_until_ready = block_until_ready
