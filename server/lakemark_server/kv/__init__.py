"""The transactional key-value store below everything: ``open_store(url)``, its contract, keys and large values."""

from __future__ import annotations

from pathlib import Path

from lakemark.errors import InvalidArgument, Unimplemented

from .api import (
    CommitUnknownResult,
    Conflict,
    InvertedRange,
    KeyTooLarge,
    KeyValue,
    OpenTransaction,
    ReadTransaction,
    ReservedKey,
    Store,
    StoreClosed,
    StoreFormatUnknown,
    StoreInUse,
    Transaction,
    TransactionFinished,
    TransactionTooLarge,
    TransactionTooOld,
    ValueTooLarge,
    counter,
    strinc,
)
from .keys import Space, pack, range_of, unpack
from .memo import ReadMemo

__all__ = [
    "CommitUnknownResult",
    "Conflict",
    "InvertedRange",
    "KeyTooLarge",
    "KeyValue",
    "OpenTransaction",
    "ReadMemo",
    "ReadTransaction",
    "ReservedKey",
    "Space",
    "Store",
    "StoreClosed",
    "StoreFormatUnknown",
    "StoreInUse",
    "Transaction",
    "TransactionFinished",
    "TransactionTooLarge",
    "TransactionTooOld",
    "ValueTooLarge",
    "counter",
    "open_store",
    "pack",
    "range_of",
    "strinc",
    "unpack",
]

_FORMS = "sqlite:///relative/path.db or sqlite:////absolute/path.db"


def open_store(url: str) -> Store:
    """Opens the store at ``url``, which is written as for SQLAlchemy: a path after the third slash.

    Raises InvalidArgument for other URLs, Unimplemented for stores to come, and what ``SqliteStore`` raises.
    """
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "sqlite":
        path = rest.removeprefix("/")
        if not rest.startswith("/") or path.strip("/") == "" or path.startswith(":") or "?" in path:
            raise InvalidArgument(f"{url!r} does not name a file: write {_FORMS}")
        from .sqlite import SqliteStore

        return SqliteStore(Path(path))
    if separator and scheme.partition("+")[0] in {"postgresql", "postgres", "fdb"}:
        raise Unimplemented(f"stores on {scheme} are not there yet; use {_FORMS}")
    raise InvalidArgument(f"{url!r} names no store: write {_FORMS}")
