"""The first and last to see a request: refuses what other sites may not ask for, and adds headers to every answer."""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakemark_web import guard


class Gate:
    """Middleware. ``hosts``: names that requests may use beside addresses and "localhost", in lower case."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(guard.HEADERS)
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, sent)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not guard.is_own_host(host, self._hosts):
            return PlainTextResponse(
                f"{host[:200]!r} is not a name of this service. Use its address, or allow the name with the setting "
                "web_hosts.\n",
                HTTPStatus.MISDIRECTED_REQUEST,
            )
        why_not = guard.why_not_read(
            scope["method"],
            headers.get("sec-fetch-site", ""),
            headers.get("sec-fetch-mode", ""),
            headers.get("sec-fetch-dest", ""),
        )
        return PlainTextResponse(f"{why_not}\n", HTTPStatus.FORBIDDEN) if why_not else None
