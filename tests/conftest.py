"""What all tests share: what they made in shared stores is removed at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stores import remove_stores


@pytest.fixture(scope="session", autouse=True)
def _stores_are_removed() -> Iterator[None]:
    yield
    remove_stores()
