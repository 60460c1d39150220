"""Which buckets of an extendible index have grown too large. Pure, and over columns alone."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from lakemark_core.bucket_directory import balanced
from lakemark_core.table_kind import TableKind
from lakemark_server.file_index.parts.part import Part

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
    chosen, buckets = part.bases_of_buckets()
    codes, names = part.partition_codes
    places = codes[chosen].astype(np.int64) << _BUCKET_BITS | buckets
    distinct, inverse = np.unique(places, return_inverse=True)
    size = part.column("size_bytes").to_numpy()[chosen]
    totals = np.zeros(len(distinct), np.int64)
    np.add.at(totals, inverse, size)
    return {
        (str(names[place >> _BUCKET_BITS]), place & (1 << _BUCKET_BITS) - 1): total
        for place, total in zip(distinct.tolist(), totals.tolist(), strict=True)
    }
