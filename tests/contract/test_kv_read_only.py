"""Stores that are opened only for reading, beside the process that serves them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakemark_core.errors import FailedPrecondition
from lakemark_server.kv import Store, open_store
from lakemark_server.kv.api import KEYS_END
from lakemark_server.kv.postgres.errors import PostgresFailure
from tests.contract.conftest import SHARED_URLS
from tests.stores import postgres_server, postgres_url, schema_of, sqlite_url, with_schema

URLS: dict[str, Callable[[Path], str]] = {"sqlite": sqlite_url, **SHARED_URLS}


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return URLS[request.param](tmp_path)


def commit_one(store: Store) -> None:
    store.transact(lambda tx: tx.set(b"mine", b""))


def test_it_sees_what_the_other_commits_and_commits_nothing(url: str) -> None:
    serving = open_store(url)
    serving.transact(lambda tx: tx.set(b"a", b"1"))
    reading = open_store(url, read_only=True)
    assert reading.read(lambda tx: tx.get(b"a")) == b"1"
    serving.transact(lambda tx: tx.set(b"a", b"2"))
    assert reading.read(lambda tx: tx.get(b"a")) == b"2"
    with pytest.raises(FailedPrecondition, match="for reading only"):
        commit_one(reading)
    with reading.export() as export:
        assert [pair for page in export.pages for pair in page] == [(b"a", b"2")]
    assert serving.read(lambda tx: tx.get_range(b"", KEYS_END)) == [(b"a", b"2")]
    reading.close()
    serving.close()


def test_a_store_that_is_not_there_is_not_made(url: str) -> None:
    for _ in range(2):
        with pytest.raises(FailedPrecondition, match="there is no"):
            open_store(url, read_only=True)


def test_the_sessions_in_postgresql_cannot_write(tmp_path: Path) -> None:
    serving = open_store(postgres_url(tmp_path))
    reading = open_store(with_schema(postgres_server(), schema_of(tmp_path)), read_only=True)
    session = reading._reader(0)  # type: ignore[attr-defined]
    with pytest.raises(PostgresFailure) as refused:
        session.set_up([b"INSERT INTO kv VALUES ('a', 'b')"], {}, seconds_max=10.0)
    assert refused.value.sqlstate == "25006", "read-only"
    reading.close()
    serving.close()
