"""Snapshots of the same version hold the same."""

from __future__ import annotations

import threading

from lakemark_server.kv import ReadTransaction, Store


def look(tx: ReadTransaction) -> tuple[int, bytes | None]:
    return tx.version(), tx.get(b"a")


def test_every_commit_gives_another_version(store: Store) -> None:
    versions = [store.read(look)[0]]
    for number in range(5):
        store.transact(lambda tx, number=number: tx.set(b"a", b"%d" % number))  # type: ignore[misc]
        versions.append(store.read(look)[0])
    assert versions == sorted(set(versions))
    assert store.transact(look)[0] >= versions[-1]


def test_the_same_version_never_has_two_values(store: Store) -> None:
    stop = threading.Event()
    seen: dict[int, bytes | None] = {}
    lock = threading.Lock()
    contradictions = []

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            store.transact(lambda tx, number=number: tx.set(b"a", b"%d" % number))  # type: ignore[misc]

    def read() -> None:
        for _ in range(200):
            version, value = store.read(look)
            with lock:
                if seen.setdefault(version, value) != value:
                    contradictions.append(version)

    writer, readers = threading.Thread(target=write), [threading.Thread(target=read) for _ in range(3)]
    for thread in (writer, *readers):
        thread.start()
    for thread in readers:
        thread.join()
    stop.set()
    writer.join()
    assert contradictions == []
    assert len(seen) > 1
