"""The format of a store: which release can read what is in it.

It is written with the first thing that a store gets, so that a store without one was written by something else. It
changes with the key space (``docs/keys.md``), when what is there cannot be read as before.
"""

from __future__ import annotations

from typing import Final

from lakemark_core.errors import FailedPrecondition
from lakemark_server.kv import ReadTransaction, Store, Transaction
from lakemark_server.kv.api import KEYS_END
from lakemark_server.store.keyspace import META

FORMAT: Final = 1
KEY: Final = META.key("format")


class StoreFormatUnknown(FailedPrecondition):
    """Another release of Lakemark wrote the store, or another program."""

    code = "store_format_unknown"


def ensure(store: Store) -> None:
    """An empty store gets the format of this release. Raises StoreFormatUnknown if the store has another one."""
    if store.read(lambda tx: tx.get(KEY)) is None:
        store.transact(_begin)
    require(store)


def require(store: Store) -> None:
    """Raises StoreFormatUnknown unless the store has the format of this release, or is empty."""

    def body(tx: ReadTransaction) -> str:
        if tx.get(KEY) is not None or _is_empty(tx):
            return wrong(tx)
        return (
            "the store has no format version: a development build of Lakemark wrote it, or another program; this "
            f"release reads format {FORMAT} only. Serve it with the build that wrote it, or begin with a new store"
        )

    problem = store.read(body)
    if problem:
        raise StoreFormatUnknown(problem)


def wrong(tx: ReadTransaction) -> str:
    """What is wrong with the format that the store says, and what to do, in a sentence; "" if nothing is."""
    stored = tx.get(KEY)
    found = FORMAT if stored is None else int.from_bytes(stored, "big")
    if found > FORMAT:
        return (
            f"the store has format {found}, which a newer release of Lakemark wrote; this one reads format {FORMAT}. "
            "Use that release or a later one, or restore a backup from before the upgrade into a new store"
        )
    if found < FORMAT:
        return (
            f"the store has format {found} of an older release of Lakemark; this one reads format {FORMAT}. Serve it "
            "with the release that wrote it"
        )
    return ""


def _begin(tx: Transaction) -> None:
    if tx.get(KEY) is None and _is_empty(tx):
        tx.set(KEY, FORMAT.to_bytes(4, "big"))


def _is_empty(tx: ReadTransaction) -> bool:
    return not tx.get_range(b"", KEYS_END, limit=1)
