"""A store states its format: stores of other releases are refused, and backups carry the format."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark_server.backup import Repository, restore, take
from lakemark_server.kv import Store, open_store
from lakemark_server.process import Service
from lakemark_server.settings import Settings
from lakemark_server.store import store_format
from lakemark_server.store.store_format import StoreFormatUnknown
from lakemark_server.verify import verify


def service(url: str, directory: Path) -> Service:
    return Service(
        Settings.model_validate(
            {"store": url, "warehouse": str(directory / "warehouse"), "hms_enabled": False, "grpc_port": 0}
        )
    )


def put(store: Store, number: int) -> None:
    store.transact(lambda tx: tx.set(store_format.KEY, number.to_bytes(4, "big")))


def test_a_new_store_gets_the_format_and_is_served_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    for _ in range(2):
        with service(url, tmp_path) as running:
            assert running.store.read(lambda tx: tx.get(store_format.KEY)) == b"\0\0\0\1"


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (2, "format 2, which a newer release .* Use that release or a later one, or restore a backup"),
        (0, "format 0 of an older release .* Serve it with the release that wrote it"),
    ],
)
def test_a_store_of_another_format_is_refused(tmp_path: Path, number: int, sentence: str) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    with service(url, tmp_path) as running:
        put(running.store, number)
    with pytest.raises(StoreFormatUnknown, match=sentence):
        service(url, tmp_path)
    store = open_store(url)
    assert len(verify(store)) == 1
    store.close()


def test_a_store_that_says_nothing_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    store = open_store(url)
    store.transact(lambda tx: tx.set(b"something", b"else"))
    store.close()
    with pytest.raises(StoreFormatUnknown, match=r"no format version.* begin with a new store"):
        service(url, tmp_path)


def test_a_backup_carries_the_format(tmp_path: Path) -> None:
    url, other = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    repository = Repository(tmp_path / "backups")
    with service(url, tmp_path) as running, repository.writing():
        take(running.store, repository, "1")
    store = open_store(other)
    restore(store, repository, repository.manifest())
    store.close()
    with service(other, tmp_path) as running:
        assert running.store.read(lambda tx: tx.get(store_format.KEY)) == b"\0\0\0\1"
