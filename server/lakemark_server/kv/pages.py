"""Reads ranges in one transaction a page, so that no transaction is long. Others may write between two pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from .api import KeyValue, ReadTransaction, Store, strinc
from .keys import Space

PAGE_KEYS: Final = 500


def pairs_between(store: Store, begin: bytes, end: bytes, page: int = PAGE_KEYS) -> Iterator[KeyValue]:
    """All of ``begin <= key < end``, in order. Raises what reading the store raises."""
    while begin < end:
        pairs = store.read(lambda tx, begin=begin: tx.get_range(begin, end, limit=page))  # type: ignore[misc]
        yield from pairs
        if len(pairs) < page:
            return
        begin = pairs[-1][0] + b"\x00"


def keys_below(
    store: Store, space: Space, *items: int | str, page: int = PAGE_KEYS
) -> Iterator[tuple[tuple[object, ...], bytes]]:
    """All keys below ``items``, in order: the further items of each key, and its value."""
    for key, value in pairs_between(store, *space.range(*items), page):
        yield space.unpack(key)[len(items) :], value


def next_name(tx: ReadTransaction, space: Space, after: str) -> str | None:
    """The first text behind ``after`` with which keys of the space begin, however many keys each text has."""
    begin, end = space.range()
    first = tx.get_range(strinc(space.key(after)) if after else begin, end, limit=1)
    return cast(str, space.unpack(first[0][0])[0]) if first else None
