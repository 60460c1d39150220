"""A service that a test kills again and again, and clients that behave as clients should.

A service spends most of its start with imports. So each of its lives is forked from a process that has done them, and
has no thread and no connection yet (multiprocessing's ``forkserver``). Each life is a process of its own.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any, Final, TypeVar

import grpc

from lakemark_server.process import main
from lakemark_server.settings import Settings
from tests.wire import Wire

T = TypeVar("T")

WAIT_S: Final = 60.0
LOST: Final = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED}

_context = multiprocessing.get_context("forkserver")
# Includes late imports of a service: its store, and what pyarrow imports with its first array.
_context.set_forkserver_preload(
    [__name__, "lakemark_server.kv.sqlite.store", "lakemark_server.kv.postgres.store", "pandas"]
)


def _live(settings: Settings, output: Connection) -> None:
    """One life. Writes the line with its addresses to ``output``."""
    os.dup2(output.fileno(), 1)
    output.close()
    faulthandler.register(signal.SIGUSR1)
    main(settings)


class Killable:
    """A service in a child process, on the same store through all its lives. ``settings``: further settings."""

    def __init__(self, store: str, warehouse: str, **settings: Any) -> None:
        usual = {"grpc_port": 0, "hms_enabled": False, "log_level": "error"}
        self._settings = Settings(store=store, warehouse=warehouse, **(usual | settings))
        self._changed = threading.Condition()
        self._addresses: dict[str, str] | None = None  # by protocol; None: it is dead
        self._child: ForkServerProcess | None = None
        self.kills = 0

    def start(self) -> None:
        ours, theirs = _context.Pipe(duplex=False)
        self._child = _context.Process(target=_live, args=(self._settings, theirs), daemon=True)
        self._child.start()
        theirs.close()
        with ours, os.fdopen(ours.fileno(), closefd=False) as output:
            words = dict(word.split("=", 1) for word in output.readline().split() if "=" in word)
        with self._changed:
            self._addresses = words
            self._changed.notify_all()

    def kill(self) -> None:
        assert self._child is not None
        with self._changed:
            self._addresses = None
        self._child.kill()
        self._child.join(WAIT_S)
        assert self._child.exitcode == -signal.SIGKILL
        self._child.close()
        self._child = None
        self.kills += 1

    def dump(self) -> None:
        """Writes the stacks of its threads to standard error."""
        if self._child is not None and self._child.pid is not None:
            os.kill(self._child.pid, signal.SIGUSR1)

    def end(self) -> None:
        """Ends the child, whatever happened."""
        if self._child is not None and self._child.is_alive():
            self.kill()

    def address(self, protocol: str = "grpc") -> str:
        """The address of the current life, or of the next one; ``protocol`` "hms": a thrift:// URI."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._addresses, WAIT_S), "the service did not come back"
            assert self._addresses is not None
            return self._addresses[protocol]


class Stubborn:
    """A client of one thread that asks again until it has an answer."""

    def __init__(self, service: Killable) -> None:
        self._service = service
        self._address = ""
        self._wire: Wire | None = None
        self.lost = 0

    def ask(self, question: Callable[[Wire], T]) -> T:
        while True:
            address = self._service.address()
            if self._wire is None or address != self._address:
                self.close()
                self._address, self._wire = address, Wire(address)
            try:
                return question(self._wire)
            except grpc.RpcError as error:
                if error.code() not in LOST:  # type: ignore[attr-defined]
                    raise
                self.lost += 1
                time.sleep(0.01)  # as clients do, instead of asking a dead address in a tight loop

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
