"""Which buckets of an extendible index have grown too large. Pure, and over columns alone."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from lakemark_core.bucket_directory import balanced
from lakemark_core.table_kind import TableKind
from lakemark_proto.v1.types_pb2 import DELTA
from lakemark_server.file_index.parts.part import Part

_NO_BUCKET = -1
_BUCKET_BITS = 20


def splits(parts: Sequence[Part], kind: TableKind) -> tuple[int, ...]:
    """The buckets to split now; none without an extendible index.

    By the sizes of base files: deltas may be the same rows many times. A bucket waits that has files of other buckets,
    too: how its rows are spread is known when these are written again. Nothing is merged: small buckets may be those of
    a table that was split before it is loaded.
    """
    directory = kind.directory
    if directory is None:
        return ()
    sizes: dict[tuple[Hashable, int], int] = {}
    for part in parts:
        for place, size in _sizes(part).items():
            sizes[place] = sizes.get(place, 0) + size
    shared = {leaf for _, bucket in sizes if bucket not in directory.leaves for leaf in directory.shares(bucket)}
    return tuple(one for one in balanced(directory, sizes, kind.split_bytes).split if one not in shared)


def _sizes(part: Part) -> dict[tuple[str, int], int]:
    """The size of the base files of each partition and bucket."""
    codes, names = part.partition_codes
    numbers = part.entries.find_column("bucket")
    if numbers is None:  # no file of this part is of a single bucket
        return {}
    bucket = numbers.fill_null(_NO_BUCKET).to_numpy().astype(np.int64)
    chosen = part.live_mask() & (part.column("kind").to_numpy() != DELTA) & (bucket != _NO_BUCKET)
    places = codes[chosen].astype(np.int64) << _BUCKET_BITS | bucket[chosen]
    distinct, inverse = np.unique(places, return_inverse=True)
    size = part.column("size_bytes").to_numpy()[chosen]
    totals = np.zeros(len(distinct), np.int64)
    np.add.at(totals, inverse, size)
    return {
        (str(names[place >> _BUCKET_BITS]), place & (1 << _BUCKET_BITS) - 1): total
        for place, total in zip(distinct.tolist(), totals.tolist(), strict=True)
    }
