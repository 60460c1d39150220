"""What all tests share: what they made in shared stores is removed at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

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
