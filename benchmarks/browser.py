"""The Chromium in which the web page is tested: that of ``scripts/setup --browser``, or the machine's own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page, sync_playwright

_BROUGHT: Final = Path(__file__).resolve().parents[1] / ".browser"
_PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
AXE: Final = _BROUGHT / "node_modules" / "axe-core" / "axe.min.js"


class BrowserMissing(RuntimeError):
    """There is no browser, or no axe."""


def _program() -> tuple[str, dict[str, str]]:
    """The program, and the variables that it needs. Raises BrowserMissing."""
    brought = _BROUGHT / "chromium" / "chromium"
    if chosen := os.environ.get("LAKEMARK_BROWSER"):
        return chosen, {}
    if brought.exists() and (_BROUGHT / "lock-stamp").exists():
        libraries = str(_BROUGHT / "chromium" / "al2023" / "lib")
        return str(brought), {"LD_LIBRARY_PATH": libraries, "FONTCONFIG_FILE": str(_BROUGHT / "fonts.conf")}
    for program in _PROGRAMS:
        if path := shutil.which(program):
            return path, {}
    raise BrowserMissing("there is no browser: scripts/setup --browser brings one")


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Without a sandbox, because it sees only our own pages, and may run as root. Raises BrowserMissing."""
    program, variables = _program()
    environment: dict[str, Any] = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--no-zygote", "--disable-gpu", "--font-render-hinting=none"],
            env=environment | variables,
        )
        try:
            yield browser
        finally:
            browser.close()


def serious_findings(page: Page) -> list[tuple[str, list[str]]]:
    """What axe finds on a page that is serious or critical: rules, and where. Raises BrowserMissing without axe."""
    if not AXE.exists():
        raise BrowserMissing("there is no axe: scripts/setup --browser brings it")
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(result => result.violations)")
    return [
        (one["id"], [node["html"][:200] for node in one["nodes"]])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
