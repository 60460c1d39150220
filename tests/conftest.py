"""What all tests share: what they made in shared stores is removed at the end, and several workers share them out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import settings

from tests.schedule import ByGroup, urgency_of
from tests.stores import remove_stores

# What a command writes to its standard output and error is what tests of commands look at: no log of a service in this
# process may come between.
structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.__stderr__))
settings.register_profile("untimed", deadline=None)  # of a busy machine no clock tells whether code is right
settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def _stores_are_removed() -> Iterator[None]:
    yield
    remove_stores()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup:
    config.option.loadscopereorder = False  # the number of tests in a group says nothing about how long it takes
    return ByGroup(config, log)


@pytest.hookimpl(trylast=True)  # after the tests of one session-wide parameter were put together
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: urgency_of(item.nodeid))
