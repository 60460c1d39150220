"""Servers that a test may kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer, binaries
from tests.stores import postgres_server, schema_of, with_schema


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    postgres_server()
    programs = binaries()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed here that could be killed")
    with PostgresServer(programs) as server:
        yield server


@pytest.fixture
def own_url(own_postgres: PostgresServer, tmp_path: Path) -> str:
    return with_schema(own_postgres.url, schema_of(tmp_path))
