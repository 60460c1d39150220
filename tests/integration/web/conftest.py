"""A service with a lake and its web page, asked as a browser or any program would ask."""

from __future__ import annotations

import http.client
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from benchmarks.browser import BrowserMissing, running_browser
from playwright.sync_api import Browser

from lakemark_server.process import Service
from tests.integration.grpc_server import running_service
from tests.web_lake import WebLake, fill

SETTINGS = {"web_port": 0, "web_actions": True, "sweep_interval_s": 3_600.0, "cores": "all"}


class Answer(NamedTuple):
    status: int
    text: str
    headers: http.client.HTTPMessage


class Site:
    """The web page of a service."""

    def __init__(self, service: Service) -> None:
        assert service.web
        self.service = service
        self.host = f"127.0.0.1:{service.web.port}"
        self.url = service.web_url.rstrip("/")

    def get(self, path: str, **headers: str) -> Answer:
        return self._ask("GET", path, "", headers)

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Answer:
        given = {"content-type": "application/x-www-form-urlencoded", **headers}
        return self._ask("POST", path, urllib.parse.urlencode(fields), given)

    def _ask(self, method: str, path: str, body: str, headers: Mapping[str, str]) -> Answer:
        connection = http.client.HTTPConnection(self.host, timeout=30)
        try:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body or None, sent)
            response = connection.getresponse()
            return Answer(response.status, response.read().decode(), response.headers)
        finally:
            connection.close()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebLake]:
    """One for all tests of a module, which only read it, or change tables of their own."""
    with running_service(tmp_path_factory.mktemp("web"), **SETTINGS) as service:
        yield fill(service)


@pytest.fixture
def site(lake: WebLake) -> Site:
    return Site(lake.service)


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    """Of a service of the test's own."""
    with running_service(tmp_path, **SETTINGS) as service:
        yield Site(service)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with ExitStack() as stack:
        try:
            running = stack.enter_context(running_browser())
        except BrowserMissing as missing:
            pytest.skip(str(missing))
        yield running
