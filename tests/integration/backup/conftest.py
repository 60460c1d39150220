"""Stores of every kind, a repository, and helpers for what the command line does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pytest

from lakemark_server.backup import Manifest, Repository, restore, take
from lakemark_server.kv import KeyValue, Store, open_store
from lakemark_server.store.keyspace import EPOCH, EVENT_ENDS, EVENTS
from tests.stores import fdb_url, postgres_url, sqlite_url

URLS: dict[str, Callable[[Path], str]] = {"sqlite": sqlite_url, "postgresql": postgres_url, "fdb": fdb_url}


@contextmanager
def opened(url: str) -> Iterator[Store]:
    store = open_store(url)
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Store]:
    with opened(sqlite_url(tmp_path)) as store:
        yield store


@pytest.fixture
def target_url(tmp_path: Path) -> str:
    (tmp_path / "target").mkdir()
    return sqlite_url(tmp_path / "target")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "backups")


def backup(store: Store, repository: Repository, keep: int = 0) -> Manifest:
    with repository.writing():
        manifest = take(store, repository, "1.2.3")
        if keep:
            repository.prune(keep)
    return manifest


def restored(url: str, repository: Repository, manifest: Manifest) -> dict[bytes, bytes]:
    """Restores, and returns the content of the store."""
    with opened(url) as store:
        restore(store, repository, manifest)
        return content(store)


OF_EVENTS = (EPOCH, EVENTS.prefix, EVENT_ENDS.prefix)


def content(store: Store) -> dict[bytes, bytes]:
    """All keys but those of the log of events, to which a restore adds."""
    with store.export() as export:
        pairs = chain.from_iterable(export.pages)
        return {key: value for key, value in pairs if not key.startswith(OF_EVENTS)}


def fill(store: Store, pairs: dict[bytes, bytes]) -> None:
    """Writes below a subsystem name that does not exist, so that no invariant applies."""
    items: list[KeyValue] = [(b"\x02zz\x00" + key, value) for key, value in pairs.items()]
    for at in range(0, len(items), 200):
        store.transact(lambda tx, at=at: [tx.set(*item) for item in items[at : at + 200]])  # type: ignore[misc]


def ballast(count: int, size_bytes: int = 2_000) -> dict[bytes, bytes]:
    return {b"%06d" % number: (b"%d" % number * size_bytes)[:size_bytes] for number in range(count)}
