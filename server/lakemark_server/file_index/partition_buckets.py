"""Buckets of an extendible index in partitions, by column: which files share keys with some of them. Pure.

A bucket of a partition is one number, the partition's above the bucket's. So whole columns of files are compared at
once, for each of the few depths that buckets have (``bucket_tree``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lakemark_core.bucket_tree import NUMBER_MAX

Integers: TypeAlias = npt.NDArray[np.integer[Any]]
Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_SHIFT: Final = NUMBER_MAX.bit_length()
_BUCKET: Final = (1 << _SHIFT) - 1


class PartitionBuckets:
    """Grows. Takes some bytes for each bucket that is added, and the partitions' names.

    Columns are given as codes of partitions, the names that these codes mean, and buckets, which are all at least 1.
    """

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._pieces: list[Numbers] = []

    @classmethod
    def of(cls, partition: str, bucket: int) -> PartitionBuckets:
        """One bucket of one partition."""
        one = cls()
        one.add(np.zeros(1, np.int64), [partition], np.array([bucket]))
        return one

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, codes: Integers, names: Sequence[str], buckets: Integers) -> None:
        """The buckets of more files."""
        if not len(buckets):
            return
        for code in np.unique(codes).tolist():
            self._codes.setdefault(names[code], len(self._codes))
        self._pieces.append(self._numbers(codes, names, buckets))

    def sharing(self, codes: Integers, names: Sequence[str], buckets: Integers) -> Mask:
        """Which of the files given share keys with one of these: they have the same bucket, or one above or below."""
        given = self._numbers(codes, names, buckets)
        mine = self._distinct()
        depths = _depths(mine)
        shared = np.isin(given, _above(mine, depths))
        given_depths = _depths(given)
        for depth in np.unique(depths).tolist():
            shared |= (given_depths > depth) & np.isin(_at_depth(given, depth), mine[depths == depth])
        return shared & (given >= 0)

    def overlapping(self) -> tuple[str, int] | None:
        """Partition and bucket of one that was added twice, or lies below another one; None if there is none."""
        mine, counts = np.unique(np.concatenate([*self._pieces, np.empty(0, np.int64)]), return_counts=True)
        depths = _depths(mine)
        wrong = counts > 1
        for depth in np.unique(depths).tolist():
            wrong |= (depths > depth) & np.isin(_at_depth(mine, depth), mine[depths == depth])
        if not wrong.any():
            return None
        number = int(mine[np.argmax(wrong)])
        return list(self._codes)[number >> _SHIFT], number & _BUCKET

    def _numbers(self, codes: Integers, names: Sequence[str], buckets: Integers) -> Numbers:
        """Less than 0: in a partition that these have not."""
        mine = np.array([self._codes.get(name, -1) for name in names], np.int64)
        return mine[codes] << _SHIFT | buckets.astype(np.int64)

    def _distinct(self) -> Numbers:
        if len(self._pieces) != 1:
            self._pieces = [np.concatenate([*self._pieces, np.empty(0, np.int64)])]
        return np.unique(self._pieces[0])


def _depths(numbers: Numbers) -> Integers:
    """As ``bucket_tree.depth_of``."""
    return np.frexp((numbers & _BUCKET).astype(np.float64))[1] - 1


def _at_depth(numbers: Numbers, depth: int) -> Numbers:
    """As ``bucket_tree.at_depth``, in the same partitions."""
    return numbers & ~_BUCKET | 1 << depth | numbers & (1 << depth) - 1


def _above(numbers: Numbers, depths: Integers) -> Numbers:
    """The numbers and all that are above them."""
    levels = [np.unique(_at_depth(numbers[depths >= depth], depth)) for depth in range(int(depths.max(initial=-1)) + 1)]
    return np.concatenate([*levels, np.empty(0, np.int64)])
