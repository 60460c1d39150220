"""Values larger than one key can hold, split over consecutive keys of a space of their own.

Chunk 0 begins with the number of chunks, so that reading a value of one chunk costs one ``get``. A blob is written in
the caller's transaction, whose size limit is the blob's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lakemark_core.errors import CorruptStore

from .api import TRANSACTION_BYTES_MAX, VALUE_BYTES_MAX, ReadTransaction, Transaction, TransactionTooLarge
from .keys import Space

_COUNT_BYTES: Final = 2
FIRST_CHUNK_BYTES: Final = VALUE_BYTES_MAX - _COUNT_BYTES


def put(transaction: Transaction, space: Space, value: bytes) -> None:
    """Stores ``value`` in ``space`` and replaces all that was there. Raises TransactionTooLarge."""
    transaction.clear_range(space.key(_chunks(value)), space.range()[1])
    put_new(transaction, space, value)


def put_new(transaction: Transaction, space: Space, value: bytes) -> None:
    """Stores ``value`` in ``space``, which must be empty. Raises TransactionTooLarge."""
    if len(value) > TRANSACTION_BYTES_MAX:
        raise TransactionTooLarge(
            f"a blob of {len(value)} bytes; at most {TRANSACTION_BYTES_MAX} fit into a transaction"
        )
    transaction.set(space.key(0), _chunks(value).to_bytes(_COUNT_BYTES, "big") + value[:FIRST_CHUNK_BYTES])
    for index, start in enumerate(range(FIRST_CHUNK_BYTES, len(value), VALUE_BYTES_MAX), 1):
        transaction.set(space.key(index), value[start : start + VALUE_BYTES_MAX])


def get(transaction: ReadTransaction, space: Space, *, snapshot: bool = False) -> bytes | None:
    """The value, or None. Raises CorruptStore if chunks are missing."""
    return _whole(transaction, space, transaction.get(space.key(0), snapshot=snapshot), snapshot)


def get_many(transaction: ReadTransaction, spaces: Sequence[Space]) -> list[bytes | None]:
    """As ``get`` of each; the first chunks are read together."""
    firsts = transaction.get_many([space.key(0) for space in spaces])
    return [_whole(transaction, space, first, False) for space, first in zip(spaces, firsts, strict=True)]


def _whole(transaction: ReadTransaction, space: Space, first: bytes | None, snapshot: bool) -> bytes | None:
    if first is None:
        return None
    count = int.from_bytes(first[:_COUNT_BYTES], "big")
    if count == 1:
        return first[_COUNT_BYTES:]
    rest = transaction.get_range(space.key(1), space.key(count), snapshot=snapshot)
    if len(rest) != count - 1:
        raise CorruptStore(f"a blob of {count} chunks has only {1 + len(rest)}")
    return b"".join((first[_COUNT_BYTES:], *(chunk for _, chunk in rest)))


def clear(transaction: Transaction, space: Space) -> None:
    """Removes the value; no error if there is none."""
    transaction.clear_range(*space.range())


def _chunks(value: bytes) -> int:
    return 1 + len(range(FIRST_CHUNK_BYTES, len(value), VALUE_BYTES_MAX))
