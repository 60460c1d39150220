"""The stores of tests.

``LAKEMARK_TEST_POSTGRES`` names a PostgreSQL server, in which each test has a schema of its own. ``LAKEMARK_TEST_FDB``
names the cluster file of a FoundationDB cluster, in which each test has a prefix of its own. ``LAKEMARK_TEST_STORE`` is
the backend of service tests: ``sqlite`` (the default), ``postgresql`` or ``fdb``.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from lakemark_server.kv import pack, strinc
from lakemark_server.kv.fdb.client import FdbClient

SERVER_VARIABLE = "LAKEMARK_TEST_POSTGRES"
STORE_VARIABLE = "LAKEMARK_TEST_STORE"

CLUSTER_VARIABLE = "LAKEMARK_TEST_FDB"

_schemas: set[str] = set()
_prefixes: set[str] = set()


def store_url(directory: Path) -> str:
    """The URL of the store for this directory, in the backend that the environment selects."""
    backend = os.environ.get(STORE_VARIABLE, "sqlite")
    return {"sqlite": sqlite_url, "postgresql": postgres_url, "fdb": fdb_url}[backend](directory)


def sqlite_url(directory: Path) -> str:
    return f"sqlite:///{directory}/lakemark.db"


def postgres_server() -> str:
    """The URL of the server; without one, the test is skipped."""
    url = os.environ.get(SERVER_VARIABLE)
    if not url:
        pytest.skip(f"{SERVER_VARIABLE} names no PostgreSQL server (scripts/test-postgres starts one)")
    return url


def postgres_url(directory: Path) -> str:
    """The URL of the PostgreSQL store for this directory."""
    server, schema = postgres_server(), schema_of(directory)
    _schemas.add(schema)
    return with_schema(server, schema)


def with_schema(url: str, schema: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}schema={schema}"


def schema_of(directory: Path) -> str:
    return "test_" + hashlib.sha256(str(directory).encode()).hexdigest()[:16]


def fdb_cluster() -> Path:
    """The cluster file; without one, the test is skipped."""
    cluster = os.environ.get(CLUSTER_VARIABLE)
    if not cluster:
        pytest.skip(f"{CLUSTER_VARIABLE} names no cluster file of FoundationDB")
    return Path(cluster).absolute()


def fdb_url(directory: Path) -> str:
    """The URL of the FoundationDB store for this directory."""
    cluster, prefix = fdb_cluster(), schema_of(directory)
    _prefixes.add(prefix)
    return f"fdb://{cluster}?prefix={prefix}"


def remove_stores() -> None:
    """Removes all stores that ``postgres_url`` and ``fdb_url`` have named."""
    if _schemas:
        with psycopg.connect(postgres_server(), autocommit=True) as driver:
            for schema in sorted(_schemas):
                driver.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
        _schemas.clear()
    if _prefixes:
        transaction = FdbClient(fdb_cluster()).transaction()
        for prefix in _prefixes:
            transaction.clear_range(pack(prefix), strinc(pack(prefix)))
        transaction.commit().wait()
        _prefixes.clear()
