"""The event loop of gRPC: one thread, which all servers of the process share.

gRPC's asyncio layer has one completion queue in a process, so there is one loop for it, too. Nothing may run on it that
blocks or takes longer than a fraction of a millisecond.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    threading.Thread(target=loop.run_forever, name="grpc-loop", daemon=True).start()
    return loop


_starting = threading.Lock()


def grpc_loop() -> asyncio.AbstractEventLoop:
    """The loop, which is started by the first call."""
    with _starting:
        return _loop()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Waits for the coroutine's result. Must not be called from the loop's own thread."""
    return asyncio.run_coroutine_threadsafe(work, grpc_loop()).result()
