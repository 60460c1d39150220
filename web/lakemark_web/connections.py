"""HTTP on a connection, with an end to whatever a peer does not do.

uvicorn closes connections on which nothing comes after an answer. It waits for ever for a peer that never begins, that
sends a request byte by byte, or that does not take its answer; and its limit of connections refuses everybody while
such peers hold them.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any, Final

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from lakemark_web.connection_limits import ConnectionLimits, House

_STOP_S: Final = 2
_ACCEPTED_AT_ONCE: Final = 128

_log = structlog.get_logger(__name__)


class Connection(H11Protocol):
    """One connection. ``host``: the address of the peer; ``idle_since``: as ``Seat`` has it."""

    def __init__(self, *, house: House[Connection], **given: Any) -> None:
        super().__init__(**given)
        self.host = ""
        self.idle_since: float | None = None
        self._house, self._limits = house, house.limits
        self._receiving = False
        self._receive_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    # -- what asyncio calls -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.host = self.client[0] if self.client else ""
        self.idle_since = self.loop.time()
        goes = self._house.enter(self)
        if goes is not None:
            others = {"connections": len(self._house), "of_its_own": self._house.of_host(goes.host)}
            if goes is self:
                _log.warning("a web connection is closed: all others are busy", peer=self.host, **others)
            else:
                _log.info("an idle web connection is closed for another", peer=goes.host, **others)
            goes.transport.abort()
        # Else what is in the buffer of this process would not count as not taken.
        transport.set_write_buffer_limits(high=0)
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._house.leave(self)
        self._wait_no_more()
        self._end_write_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._receiving and not self._is_answering():
            self._receiving = True
            self._wait_for_request()
        super().data_received(data)
        if self._is_answering():
            self._wait_no_more()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._end_write_timer()
        stalled = functools.partial(self._give_up, "it does not take its answer")
        self._write_timer = self.loop.call_later(self._limits.write_stall_seconds_max, stalled)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end_write_timer()

    # -- what uvicorn calls -------------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        super().on_response_complete()  # which begins with the next request, if that has come
        if not self._is_answering():
            self.idle_since = self.loop.time()
            self._wait_for_request()

    # -- timers -------------------------------------------------------------------------------------------------------

    def _is_answering(self) -> bool:
        """Whether a request has come whole, and its answer has not been made."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def _wait_for_request(self) -> None:
        if self._receive_timer is not None:
            self._receive_timer.cancel()
        late = functools.partial(self._give_up, "no whole request came in time")
        self._receive_timer = self.loop.call_later(self._limits.message_seconds_max, late)

    def _wait_no_more(self) -> None:
        self._receiving, self.idle_since = False, None
        if self._receive_timer is not None:
            self._receive_timer.cancel()
            self._receive_timer = None

    def _end_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _give_up(self, reason: str) -> None:
        _log.info("a web connection is closed", peer=self.host, reason=reason)
        self.transport.abort()


def http_server(app: ASGIApp, limits: ConnectionLimits) -> uvicorn.Server:
    """A server of the application, for sockets that listen already."""
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=functools.partial(Connection, house=House(limits)),  # type: ignore[arg-type] # it is only ever called
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_ACCEPTED_AT_ONCE,
        timeout_keep_alive=limits.keep_alive_seconds_max,  # type: ignore[arg-type] # seconds, in the loop's own time
        timeout_graceful_shutdown=_STOP_S,
    )
    return uvicorn.Server(config)
