"""Where tests of PostgreSQL find a server, and a schema of their own in it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

VARIABLE = "LAKEMARK_TEST_POSTGRES"


def postgres_server() -> str:
    """The URL of the server; without one, the test is skipped."""
    url = os.environ.get(VARIABLE)
    if not url:
        pytest.skip(f"{VARIABLE} names no PostgreSQL server (scripts/test-postgres starts one)")
    return url


def postgres_url(directory: Path) -> str:
    """The URL of a store that belongs to the test whose ``tmp_path`` this is."""
    return with_schema(postgres_server(), schema_of(directory))


def with_schema(url: str, schema: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}schema={schema}"


def schema_of(directory: Path) -> str:
    return "test_" + hashlib.sha256(str(directory).encode()).hexdigest()[:16]


def remove_schema(directory: Path) -> None:
    """Without a server there is nothing to remove."""
    url = os.environ.get(VARIABLE)
    if url:
        with psycopg.connect(url, autocommit=True) as driver:
            driver.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema_of(directory))))
