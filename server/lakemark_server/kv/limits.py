"""FoundationDB's limits on keys, values and ranges, which hold on every backend and are checked before it is asked."""

from __future__ import annotations

from lakemark_core.errors import InvalidArgument

from .api import (
    KEY_BYTES_MAX,
    KEYS_END,
    TRANSACTION_SECONDS_MAX,
    VALUE_BYTES_MAX,
    InvertedRange,
    KeyTooLarge,
    ReservedKey,
    TransactionTooOld,
    ValueTooLarge,
)
from .keys import STAMPED_BYTES


def check_key(key: bytes) -> None:
    """Raises KeyTooLarge, ReservedKey or, for what is not bytes, InvalidArgument."""
    if type(key) is not bytes:
        raise InvalidArgument(f"a key must be bytes, not {type(key).__name__}")
    if len(key) > KEY_BYTES_MAX:
        raise KeyTooLarge(f"a key of {len(key)} bytes; at most {KEY_BYTES_MAX} are stored")
    if key >= KEYS_END:
        raise ReservedKey("keys that begin with 0xff are reserved for the store")


def check_stamped_key(prefix: bytes, number: int) -> None:
    """Raises KeyTooLarge, ReservedKey, InvalidArgument."""
    check_key(prefix)
    if len(prefix) + STAMPED_BYTES > KEY_BYTES_MAX:
        raise KeyTooLarge(
            f"a prefix of {len(prefix)} bytes; with a versionstamp, at most {KEY_BYTES_MAX - STAMPED_BYTES} are stored"
        )
    if not 0 <= number < 1 << 16:
        raise InvalidArgument(f"the number {number} of a versionstamped key does not fit into 16 bits")


def check_value(value: bytes) -> None:
    """Raises ValueTooLarge or, for what is not bytes, InvalidArgument."""
    if type(value) is not bytes:
        raise InvalidArgument(f"a value must be bytes, not {type(value).__name__}")
    if len(value) > VALUE_BYTES_MAX:
        raise ValueTooLarge(f"a value of {len(value)} bytes; at most {VALUE_BYTES_MAX} are stored under one key")


def check_range(begin: bytes, end: bytes) -> None:
    """Raises InvertedRange, KeyTooLarge, ReservedKey, InvalidArgument.

    A bound may be one byte longer than a key, so that the range of a single longest key can be named.
    """
    for bound in (begin, end):
        if type(bound) is not bytes:
            raise InvalidArgument(f"a bound must be bytes, not {type(bound).__name__}")
        if len(bound) > KEY_BYTES_MAX + 1:
            raise KeyTooLarge(f"a bound of {len(bound)} bytes; keys have at most {KEY_BYTES_MAX}")
    if end > KEYS_END:
        raise ReservedKey("the range reaches into the keys that begin with 0xff, which are reserved for the store")
    if begin > end:
        raise InvertedRange("the range begins after its end")


def too_old() -> TransactionTooOld:
    return TransactionTooOld(f"the transaction took longer than {TRANSACTION_SECONDS_MAX:g} s; nothing was applied")
