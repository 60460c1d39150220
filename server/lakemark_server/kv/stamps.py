"""Writes whose keys or values hold the stamp of their commit, which is known only when the commit is decided."""

from __future__ import annotations

from typing import Final, NamedTuple

from .keys import stamped_key
from .overlay import Overlay


class Stamps(NamedTuple):
    """``keys``: (prefix, number, value) of ``set_versionstamped_key``; ``values``: those of
    ``set_versionstamped_value``, without the stamp."""

    keys: list[tuple[bytes, int, bytes]]
    values: dict[bytes, bytes]

    def write_to(self, writes: Overlay, stamp: bytes) -> None:
        """Lays them on top of the other writes of the transaction."""
        for prefix, number, value in self.keys:
            writes.put(stamped_key(prefix, stamp, number), value)
        for key, rest in self.values.items():
            writes.put(key, stamp + rest)


NO_STAMPS: Final = Stamps([], {})


def stamp_of_batch(version: int, place: int) -> bytes:
    """The stamp of the transaction at ``place`` (from 0) of a batch that is committed at ``version``."""
    return version.to_bytes(8, "big") + place.to_bytes(2, "big")
