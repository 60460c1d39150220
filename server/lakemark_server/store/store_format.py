"""The format of a store: which release can read what is in it.

It is the first thing written into a store, so a store that has no format was written by another program. The number
changes when this release can no longer read what earlier ones wrote (``docs/keys.md``).
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
    """The store was written by another release of Lakemark, or by another program."""

    code = "store_format_unknown"


def ensure(store: Store) -> None:
    """Writes the format of this release into an empty store. Raises StoreFormatUnknown if it has another format."""
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
    """A sentence that says what is wrong with the store's format and what to do about it; "" if nothing is wrong."""
    stored = tx.get(KEY)
    written = FORMAT if stored is None else int.from_bytes(stored, "big")
    if written > FORMAT:
        return (
            f"the store has format {written}, which a newer release of Lakemark wrote; this one reads format {FORMAT}. "
            "Use that release or a later one, or restore a backup from before the upgrade into a new store"
        )
    if written < FORMAT:
        return (
            f"the store has format {written} of an older release of Lakemark; this one reads format {FORMAT}. Serve it "
            "with the release that wrote it"
        )
    return ""


def _begin(tx: Transaction) -> None:
    if tx.get(KEY) is None and _is_empty(tx):
        tx.set(KEY, FORMAT.to_bytes(4, "big"))


def _is_empty(tx: ReadTransaction) -> bool:
    return not tx.get_range(b"", KEYS_END, limit=1)
