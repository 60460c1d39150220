"""What all tests share: what they made in shared stores is removed at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.stores import remove_stores

settings.register_profile("untimed", deadline=None)  # of a busy machine no clock tells whether code is right
settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def _stores_are_removed() -> Iterator[None]:
    yield
    remove_stores()
