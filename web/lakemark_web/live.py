"""Server-sent events: a page that is open learns that something has changed, and loads itself again."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from lakemark_core.errors import LakemarkError, NotFound
from lakemark_proto.v1 import events_pb2
from lakemark_server.catalog.names import legal_catalog
from lakemark_server.events.consumers import END
from lakemark_server.events.feed import Following
from lakemark_server.events.filters import EventFilter, filter_of
from lakemark_web.connection_limits import ConnectionLimits
from lakemark_web.domains import Domains

STREAM_S_MAX: Final = 600.0
"""Then the browser asks again."""

HEARTBEAT_S: Final = 15.0
PAUSE_S: Final = 1.0
"""Between two looks at the log at least, however many events there are."""


class _Stream(StreamingResponse):
    """``on_end`` is called once it has ended, however it does."""

    def __init__(self, told: AsyncIterator[str], on_end: Callable[[], None]) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(told, headers=headers, media_type="text/event-stream")
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


class LiveStreams:
    """For the thread of one event loop."""

    def __init__(self, domains: Domains, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._catalog, self._events = domains.catalog, domains.events
        self._wakes: set[Callable[[], None]] = set()
        self._of_host: Counter[str] = Counter()
        self._closed = False

    def close(self) -> None:
        """Ends all of them soon; called by another thread than that of the loop."""
        self._closed = True
        for wake in self._wakes.copy():
            wake()

    async def stream(self, request: Request) -> Response:
        """Tells of events that fit ``only``. Raises HTTPException when there are too many streams, LakemarkError."""
        host = request.client.host if request.client else ""
        limits, open_now = self._limits, self._of_host.total()
        if open_now >= limits.streams_max or self._of_host[host] >= limits.peer_streams_max or self._closed:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open; load this one again later")
        only = request.query_params.get("only", "")
        wanted = filter_of(events_pb2.EventFilter(patterns=[only] if only else []))
        catalog = legal_catalog(request.query_params.get("catalog", ""))
        self._of_host[host] += 1  # before any other request is looked at
        return _Stream(self._told(catalog, wanted), lambda: self._leave(host))

    def _leave(self, host: str) -> None:
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]

    async def _told(self, catalog: str, wanted: EventFilter) -> AsyncIterator[str]:
        loop, fresh = asyncio.get_running_loop(), asyncio.Event()
        watchers: list[Following] = []

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(fresh.set)

        def begin() -> None:
            if catalog not in self._catalog.list_catalogs():
                raise NotFound(f"there is no catalog {catalog!r}")
            end = self._events.consumers.locate(catalog, END)
            watchers.append(self._events.feed.watch(catalog, end.offset, end.epoch, wanted, wake))

        self._wakes.add(wake)
        try:
            await run_in_threadpool(begin)
            over = loop.time() + STREAM_S_MAX
            yield "retry: 5000\n\nevent: ready\ndata: \n\n"
            while loop.time() < over and not self._closed:
                try:
                    await asyncio.wait_for(fresh.wait(), HEARTBEAT_S)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                fresh.clear()
                told, more = 0, True
                while more:
                    delivery = await run_in_threadpool(watchers[0].take)
                    told, more = told + len(delivery.events), delivery.more
                if told:
                    yield f"event: change\ndata: {told}\n\n"
                await asyncio.sleep(PAUSE_S)  # also after events that others are told of: there may be many
        except LakemarkError:
            return  # the service is stopping, events were trimmed, the catalog is gone: the browser asks again
        finally:
            self._wakes.discard(wake)
            for watcher in watchers:  # also of a stream that was ended while it began
                watcher.close()
