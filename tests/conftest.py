"""Setup for all tests: stores are removed at the end of the run, and tests are distributed over several workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import settings

from tests.schedule import ByGroup, urgency_of
from tests.stores import remove_stores

# Tests of commands read standard output and error, so no service in this process may log there.
structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.__stderr__))
# JVMs that tests start end before the optimizing compiler has paid for itself.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
# Tests start hundreds of Pythons: each module is compiled once, wherever this is forbidden from outside.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
settings.register_profile("untimed", deadline=None)  # on a busy machine time limits say nothing about the code
settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def _stores_are_removed() -> Iterator[None]:
    yield
    remove_stores()


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """A test that configures logs does not change what others read on standard error."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup:
    config.option.loadscopereorder = False  # the size of a group says nothing about its duration
    return ByGroup(config, log)


@pytest.hookimpl(trylast=True)  # after pytest has grouped tests by session-wide parameters
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: urgency_of(item.nodeid))
