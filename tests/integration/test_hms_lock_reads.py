"""To change a table does not ask for locks, write ids and privileges; only to rename or drop it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lakemark_server.kv.buffer import BufferedTransaction
from tests.integration.conftest import Client
from tests.integration.hms_objects import table

OURS = {"lock", "lockb", "lockp", "lockq", "wtable", "wid", "priv", "privn", "txndue"}


@contextmanager
def _noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The subsystems of all keys that transactions read."""
    read: list[str] = []
    with monkeypatch.context() as patch:
        for name in ("get", "get_many", "get_range"):
            plain = getattr(BufferedTransaction, name)

            def noted(self: BufferedTransaction, *given: object, plain=plain, **more: object) -> object:  # type: ignore[no-untyped-def]
                first = given[0]
                for key in first if isinstance(first, list) else [first]:
                    read.append(key[1 : key.index(b"\0")].decode())  # the first element, a text
                return plain(self, *given, **more)

            patch.setattr(BufferedTransaction, name, noted)
        yield read


def test_no_more_reads(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.create_table(table("t"))
    with _noted(monkeypatch) as read:
        changed = client.get_table("default", "t")
        changed.parameters["x"] = "1"
        client.alter_table("default", "t", changed)
        assert read
        assert OURS.isdisjoint(read)
        client.alter_table("default", "t", table("u"))
        assert {"lockq", "wtable", "priv"} <= set(read)  # a rename looks for them
