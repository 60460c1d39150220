"""The conflict window of the SQLite writer: as long as a transaction may live, and no longer."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from lakemark_server.kv import TransactionTooOld
from lakemark_server.kv.buffer import PendingTransaction
from lakemark_server.kv.overlay import Overlay
from lakemark_server.kv.sqlite.file import connect, prepare
from lakemark_server.kv.sqlite.writer import SqliteWriter


def write(key: bytes, read_version: int | None = None) -> PendingTransaction:
    overlay = Overlay()
    overlay.put(key, b"")
    return PendingTransaction(read_version, {b"r"}, [], overlay, [], 1)


def test_what_no_living_transaction_needs_is_forgotten(tmp_path: Path) -> None:
    seconds = 0.0
    anchor = prepare(tmp_path / "kv.db")
    open_writer = partial(connect, tmp_path / "kv.db", cache_kib=1_024, read_only=False)
    writer = SqliteWriter(open_writer, lambda: seconds)
    for number in range(20_000 // 50):
        seconds = number / 10
        assert writer.apply([write(b"%d/%d" % (number, row)) for row in range(50)]) == [None] * 50
    resolver = writer._resolver
    assert resolver is not None
    assert 50 * 50 < len(resolver) < 50 * 150, "5 s at 500 keys/s, in blocks of 2,048"
    oldest = resolver.newest - 50
    assert writer.apply([write(b"a", oldest), write(b"b", 1)])[0] is None
    (refused,) = writer.apply([write(b"b", 1)])
    assert isinstance(refused, TransactionTooOld)
    writer.close()
    anchor.close()
