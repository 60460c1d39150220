"""A browser that visits the page as a user, and notes everything that goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page

from tests.integration.web.conftest import Site

WIDE, PHONE = (1100, 800), (390, 844)


class Visit:
    """A page of a fresh context, and everything in it that went wrong."""

    def __init__(self, context: BrowserContext, site: Site) -> None:
        self.page: Page = context.new_page()
        self.troubles: list[str] = []
        self._site, self._allowed = site, ["status of 404"]
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("console", lambda message: self._console(message.type, message.text))
        self.page.on("request", lambda request: self._request(request.url))

    def _console(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not any(one in text for one in self._allowed):
            self.troubles.append(f"{kind}: {text}")

    def _request(self, url: str) -> None:
        if not url.startswith(self._site.url):
            self.troubles.append(f"asks elsewhere: {url}")

    def allow(self, text: str) -> None:
        """Lets messages of the browser that contain this text be."""
        self._allowed.append(text)

    def go(self, path: str) -> Page:
        self.page.goto(self._site.url + path)
        return self.page


@contextmanager
def visit(browser: Browser, site: Site, size: tuple[int, int] = WIDE, **options: Any) -> Iterator[Visit]:
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
    try:
        visited = Visit(context, site)
        yield visited
        assert visited.troubles == []
    finally:
        context.close()
