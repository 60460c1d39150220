"""The Chromium that the tests of the web page use: the machine's own, or that of ``scripts/setup --browser``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

_BROUGHT = Path(__file__).resolve().parents[1] / ".browser"
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
AXE = _BROUGHT / "node_modules" / "axe-core" / "axe.min.js"


def _program() -> tuple[str, dict[str, str]]:
    """The program, and the variables that it needs. Skips the test if there is none."""
    brought = _BROUGHT / "chromium" / "chromium"
    if chosen := os.environ.get("LAKEMARK_BROWSER"):
        return chosen, {}
    if brought.exists() and (_BROUGHT / "lock-stamp").exists():
        libraries = str(_BROUGHT / "chromium" / "al2023" / "lib")
        return str(brought), {"LD_LIBRARY_PATH": libraries, "FONTCONFIG_FILE": str(_BROUGHT / "fonts.conf")}
    for program in _PROGRAMS:
        if path := shutil.which(program):
            return path, {}
    pytest.skip("there is no browser: scripts/setup --browser brings one")


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Without a sandbox, because it sees only pages of these tests, and may run as root."""
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
