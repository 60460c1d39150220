"""Keys in FoundationDB's tuple encoding: they sort like the tuples they encode, and ``fdbcli`` shows them readably."""

from __future__ import annotations

import struct
from typing import Final, cast

from fdb import tuple as fdb_tuple

from lakemark_core.errors import CorruptStore, InvalidArgument

_INT_CODES: Final = [bytes([0x14 + size]) for size in range(8)]  # by how many bytes follow
_SEVEN_BYTES: Final = 1 << 56
_VERSIONSTAMP: Final = b"\x33"

STAMPED_BYTES: Final = 13
"""What ``stamped_key`` adds to a prefix."""

Item = bytes | str | int | float | bool | None
"""An element of a key. Ints may have any size; strings are encoded in UTF-8."""


def pack(*items: Item) -> bytes:
    return b"".join(map(_encoded, items))


def unpack(key: bytes) -> tuple[Item, ...]:
    """The items of a packed key. Raises CorruptStore for other bytes."""
    return Space().unpack(key)


def range_of(*items: Item) -> tuple[bytes, bytes]:
    """``(begin, end)`` of all keys that extend these items by one or more, without the key of the items alone."""
    return Space(pack(*items)).range()


def stamped_key(prefix: bytes, stamp: bytes, number: int) -> bytes:
    """The key of ``Transaction.set_versionstamped_key``: the tuple encoding of a complete versionstamp."""
    return b"".join((prefix, _VERSIONSTAMP, stamp, number.to_bytes(2, "big")))


def stamp_of(key: bytes, prefix: bytes) -> tuple[bytes, int]:
    """The stamp and the number of a ``stamped_key``. Raises CorruptStore for other keys."""
    rest = key[len(prefix) :]
    if len(rest) != STAMPED_BYTES or rest[:1] != _VERSIONSTAMP or not key.startswith(prefix):
        raise CorruptStore(f"the key {key!r} does not end with a versionstamp")
    return rest[1:-2], int.from_bytes(rest[-2:], "big")


class Space:
    """The keys below one prefix, which is packed only once."""

    __slots__ = ("prefix",)

    def __init__(self, prefix: bytes = b"") -> None:
        self.prefix = prefix

    @classmethod
    def of(cls, *items: Item) -> Space:
        return cls(pack(*items))

    def __repr__(self) -> str:
        return f"Space({self.prefix!r})"

    def space(self, *items: Item) -> Space:
        """The narrower space below these items."""
        return Space(self.key(*items))

    def key(self, *items: Item) -> bytes:
        # As ``_encoded`` does, without a call for the commonest kind of item.
        parts = [self.prefix]
        for item in items:
            if type(item) is int and 0 <= item < _SEVEN_BYTES:
                size = (item.bit_length() + 7) // 8
                parts += (_INT_CODES[size], item.to_bytes(size, "big"))
            else:
                parts.append(_encoded(item))
        return b"".join(parts)

    def range(self, *items: Item) -> tuple[bytes, bytes]:
        """``(begin, end)`` of all keys below the items (by default: below the space), without the items' own key."""
        prefix = self.key(*items)
        return prefix + b"\0", prefix + b"\xff"

    def range_of_texts(self, *items: Item) -> tuple[bytes, bytes]:
        """``(begin, end)`` of all keys in which a text follows the other items that begins with the last of them."""
        begin = self.key(*items)[:-1]  # without the byte that ends the text
        return begin, begin + b"\xff"  # no text has this byte

    def unpack(self, key: bytes) -> tuple[Item, ...]:
        """The items of ``key`` after the prefix.

        Raises InvalidArgument if the key lies outside of the space, CorruptStore if the rest is no tuple.
        """
        if not key.startswith(self.prefix):
            raise InvalidArgument(f"the key {key!r} does not begin with {self.prefix!r}")
        try:
            return cast(tuple[Item, ...], fdb_tuple.unpack(key, len(self.prefix)))
        except (ValueError, IndexError, struct.error) as error:
            raise CorruptStore(f"the key {key!r} is not in the tuple encoding") from error


def _encoded(item: Item) -> bytes:
    """The encoded element.

    A commit packs about forty keys, mostly of texts and numbers from 0 on. For these, this is five times as fast as the
    binding's packer, which encodes all others.
    """
    if type(item) is int and 0 <= item < _SEVEN_BYTES:
        size = (item.bit_length() + 7) // 8
        return _INT_CODES[size] + item.to_bytes(size, "big")
    if type(item) is str:
        return b"\x02" + item.encode().replace(b"\0", b"\0\xff") + b"\0"
    return cast(bytes, fdb_tuple.pack((item,)))
