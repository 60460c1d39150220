"""What all tests share: the schemas that they made in a PostgreSQL server are removed at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stores import remove_schemas


@pytest.fixture(scope="session", autouse=True)
def _schemas_are_removed() -> Iterator[None]:
    yield
    remove_schemas()
