"""The HTTP port of the pages. Nothing is imported or made before the first request: most processes never get one."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import structlog

from lakemark_server.host.ports import cannot_listen
from lakemark_web.connection_limits import ConnectionLimits
from lakemark_web.domains import Domains

if TYPE_CHECKING:
    import uvicorn

    from lakemark_web.app import Pages

_BACKLOG: Final = 128

_log = structlog.get_logger(__name__)


class WebServer:
    """Listens from the moment it is made, answers from ``start`` to ``stop``.

    ``port`` None: the usual one, or any free one if that is taken; 0: any free one. Raises Unavailable if the port is
    taken.
    """

    def __init__(
        self,
        domains: Domains,
        host: str,
        port: int | None,
        usual_port: int,
        hosts: Collection[str],
        limits: ConnectionLimits,
        *,
        actions: bool,
    ) -> None:
        self._domains, self._hosts, self._limits, self._actions = domains, hosts, limits, actions
        self.host = host
        self._socket = _listening(host, port, usual_port)
        self.port = int(self._socket.getsockname()[1])
        self._stopping, self._stop_now = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)

    @property
    def url(self) -> str:
        """The address of the overview."""
        host = "localhost" if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104 - compared, not listened on
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Ends; waits some seconds for what is being answered."""
        self._stop_now.close()
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()
        self._stopping.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._stopping, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select()]
        if self._stopping in ready:
            return
        try:
            self._serve()
        except Exception:
            _log.exception("the web page has ended")

    def _serve(self) -> None:
        from lakemark_web.app import Pages, WebSettings
        from lakemark_web.connections import http_server

        pages = Pages(self._domains, WebSettings(self._hosts, self._actions), self._limits)
        server = http_server(pages.app, self._limits)
        threading.Thread(target=self._wait_for_stop, args=(pages, server), name="web stop", daemon=True).start()
        try:
            server.run(sockets=[self._socket])
        finally:
            pages.close()

    def _wait_for_stop(self, pages: Pages, server: uvicorn.Server) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._stopping, selectors.EVENT_READ)
            selector.select()
        server.should_exit = True
        pages.end_streams()


def _listening(host: str, port: int | None, usual_port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    choices = [usual_port, 0] if port is None else [port]
    for choice in choices:
        try:
            return socket.create_server((host, choice), family=family, backlog=_BACKLOG)
        except OSError as error:
            if choice == choices[-1]:
                raise cannot_listen("web", host, choice, error) from error
    raise AssertionError
