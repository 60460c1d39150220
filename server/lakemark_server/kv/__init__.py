"""The transactional key-value store below everything: ``open_store(url)``, its contract, keys and large values."""

from __future__ import annotations

from .api import (
    STAMP_BYTES,
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
    TryAgain,
    ValueTooLarge,
    counter,
    strinc,
)
from .backends import backend_of, open_store, public_url
from .keys import Space, pack, range_of, stamp_of, stamped_key, unpack
from .memo import ReadMemo
from .pages import keys_below, next_name, pairs_between
from .readings import Readings, hold_together, lasts, noting

__all__ = [
    "STAMP_BYTES",
    "CommitUnknownResult",
    "Conflict",
    "InvertedRange",
    "KeyTooLarge",
    "KeyValue",
    "OpenTransaction",
    "ReadMemo",
    "ReadTransaction",
    "Readings",
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
    "TryAgain",
    "ValueTooLarge",
    "backend_of",
    "counter",
    "hold_together",
    "keys_below",
    "lasts",
    "next_name",
    "noting",
    "open_store",
    "pack",
    "pairs_between",
    "public_url",
    "range_of",
    "stamp_of",
    "stamped_key",
    "strinc",
    "unpack",
]
