"""Reads of the store in FoundationDB: each transaction at one read version of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..api import KeyValue
from .client import FdbClient


class FdbSnapshot:
    """One native transaction that only reads, without conflicts, which the commit adds itself.

    It gets its read version along with the first read. Dropping the object releases it.
    """

    __slots__ = ("_client", "_prefix", "_reads", "_transaction")

    def __init__(self, client: FdbClient, prefix: bytes) -> None:
        self._client = client
        self._prefix = prefix
        self._transaction = client.transaction()
        # The caller's writes lie on top of this snapshot, not in it.
        self._transaction.options.set_read_your_writes_disable()
        self._reads = self._transaction.snapshot

    def get(self, key: bytes) -> bytes | None:
        future = self._reads.get(self._prefix + key)
        value: bytes | None = self._client.answer(lambda: future.value)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        prefix = self._prefix
        futures = [self._reads.get(prefix + key) for key in keys]
        return self._client.answer(lambda: [future.value for future in futures])

    def get_range(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[KeyValue]:
        """The pairs. FoundationDB answers in pieces of about 80 kB, which the binding requests one after the other."""
        prefix = self._prefix
        skipped = len(prefix)
        pairs: Any = self._reads.get_range(prefix + begin, prefix + end, limit=limit, reverse=reverse)
        return self._client.answer(lambda: [(pair.key[skipped:], pair.value) for pair in pairs.to_list()])

    def version(self) -> int:
        future = self._transaction.get_read_version()
        version: int = self._client.answer(future.wait)
        return version

    def release(self) -> None:
        """Does nothing: the cluster holds nothing, and the native transaction ends with this object."""
