"""The directory of an extendible bucket index: into which buckets rows are written, and when to split them. Pure.

It decides where new files go and nothing else. Which keys a file has is said by the file's own bucket
(``lakemark_core.bucket_tree``), so whoever reads needs no directory, and files by an older one stay right.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from lakemark_core.bucket_tree import (
    DEPTH_MAX,
    above,
    at_depth,
    bucket_named,
    children,
    depth_of,
    first_above,
    group_name,
    parent,
)
from lakemark_core.errors import CorruptStore, FailedPrecondition, InvalidArgument

MERGE_SHARE: Final = 4
"""Two buckets are merged if together they have at most this part of the size above which a bucket is split."""

BucketBytes: TypeAlias = Mapping[tuple[Hashable, int], int]
"""The size of the files of each (partition, bucket)."""


@dataclass(frozen=True, slots=True)
class Directory:
    """``leaves``: the buckets, each key in exactly one. ``least_depth``: that of the buckets at the table's creation.

    Made by ``uniform`` and ``from_bytes``, and changed by ``altered``.
    """

    leaves: frozenset[int]
    least_depth: int = 0

    @classmethod
    def uniform(cls, depth: int) -> Directory:
        """All buckets of one depth."""
        return cls(_uniform(depth), depth)

    @property
    def depth(self) -> int:
        """That of the deepest bucket."""
        return depth_of(max(self.leaves))

    def bucket_of(self, key_hash: int) -> int:
        """The bucket of a hash: the deepest one is looked for first, then with one bit less on each miss."""
        return next(one for one in above(at_depth(key_hash, self.depth)) if one in self.leaves)

    def over(self, bucket: int) -> int:
        """The bucket of the directory that has all keys of ``bucket``; itself if these have several."""
        return first_above(bucket, self.leaves) or bucket

    def depths(self) -> bytes:
        """For each value of ``pmod(hash, 2^depth)``, in order, the depth of its bucket."""
        depth = self.depth
        depths = bytearray(1 << depth)
        for leaf in self.leaves:
            own = depth_of(leaf)
            depths[leaf - (1 << own) :: 1 << own] = bytes([own]) * (1 << depth - own)
        return bytes(depths)

    def within(self, bucket: int) -> frozenset[int]:
        """The buckets of the directory that share keys with ``bucket``."""
        leaf = first_above(bucket, self.leaves)
        if leaf is not None:
            return frozenset([leaf])
        depth = depth_of(bucket)
        return frozenset(leaf for leaf in self.leaves if leaf > bucket and at_depth(leaf, depth) == bucket)

    def shares(self, bucket: int) -> dict[int, float]:
        """Which part of the rows of ``bucket`` each bucket of the directory has, by the hashes alone."""
        return {leaf: 1 / (1 << max(0, depth_of(leaf) - depth_of(bucket))) for leaf in self.within(bucket)}

    def altered(self, split: Collection[int], merge: Collection[int]) -> Directory:
        """The directory with each bucket of ``split`` in two, and each of ``merge`` in the place of its two halves.

        Raises InvalidArgument, and FailedPrecondition if the directory does not have these buckets, or has no room.
        """
        if len({*split, *merge}) < len(split) + len(merge):
            raise InvalidArgument("a bucket is named twice among those to split and to merge")
        leaves = set(self.leaves)
        for bucket in split:
            if bucket not in self.leaves:
                raise FailedPrecondition(f"{_named(bucket)} is not in the directory, so it cannot be split{_look()}")
            if depth_of(bucket) >= DEPTH_MAX:
                raise FailedPrecondition(
                    f"{group_name(bucket)} is as deep as a bucket can be: there are at most {1 << DEPTH_MAX} in a table"
                )
            leaves.remove(bucket)
            leaves.update(children(bucket))
        for bucket in merge:
            if not 1 <= bucket < 2 << DEPTH_MAX or not self.leaves.issuperset(children(bucket)):
                raise FailedPrecondition(
                    f"the halves of {_named(bucket)} are not both in the directory, so they cannot be merged{_look()}"
                )
            if depth_of(bucket) < self.least_depth:
                raise FailedPrecondition(
                    f"{group_name(bucket)} would be larger than the buckets that the table was created with, of which "
                    f"there are {1 << self.least_depth}: a table never has fewer"
                )
            if not leaves.issuperset(children(bucket)):
                raise InvalidArgument(f"a half of {group_name(bucket)} is named among those to split")
            leaves.difference_update(children(bucket))
            leaves.add(bucket)
        return Directory(frozenset(leaves), self.least_depth)

    def to_bytes(self) -> bytes:
        """Bits from the top of the tree down, the first half of a bucket before the second; 1: it is split."""
        bits: list[int] = []
        pending = [1]
        while pending:
            bucket = pending.pop()
            split = bucket not in self.leaves
            bits.append(int(split))
            if split:
                pending.extend(reversed(children(bucket)))
        number = int("".join(map(str, reversed(bits))), 2)
        return number.to_bytes((len(bits) + 7) // 8, "little")

    @classmethod
    def from_bytes(cls, data: bytes, least_depth: int) -> Directory:
        """What ``to_bytes`` made. Raises CorruptStore if these are other bytes."""
        return cls(_leaves(data), least_depth)


@dataclass(frozen=True, slots=True)
class BucketChanges:
    """Buckets to split, and buckets to make of their two halves, in order. Nothing of either is empty."""

    split: tuple[int, ...] = ()
    merge: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.split or self.merge)


def balanced(directory: Directory, sizes: BucketBytes, split_bytes: int) -> BucketChanges:
    """What to change next, so that no bucket of a partition has more than ``split_bytes``, and few have much less.

    A bucket is split if it is larger in some partition. Two halves are merged if in no partition they have more than
    the ``MERGE_SHARE``th part of that together: then neither a split nor a merge makes the other one due. A file that
    a bucket shares with others counts by its share in the hashes. A bucket is split once at a time: only files that
    are written again show how its rows are spread.
    """
    by_place: dict[tuple[Hashable, int], float] = {}
    for (place, bucket), size in sizes.items():
        for leaf, share in directory.shares(bucket).items():
            by_place[place, leaf] = by_place.get((place, leaf), 0) + size * share
    together: dict[tuple[Hashable, int], float] = {}
    for (place, leaf), part in by_place.items():
        up = (place, parent(leaf))
        together[up] = together.get(up, 0) + part
    largest, larger = _greatest(by_place), _greatest(together)
    split = (leaf for leaf, size in largest.items() if size > split_bytes and depth_of(leaf) < DEPTH_MAX)
    merge = (
        bucket
        for bucket in {parent(leaf) for leaf in directory.leaves if depth_of(leaf) > directory.least_depth}
        if directory.leaves.issuperset(children(bucket)) and larger.get(bucket, 0) * MERGE_SHARE <= split_bytes
    )
    return BucketChanges(tuple(sorted(split)), tuple(sorted(merge)))


def described(changes: BucketChanges) -> str:
    """The changes in words: ``split bucket-1-of-2; merge bucket-0-of-2``."""
    return "; ".join(
        [*(f"split {group_name(one)}" for one in changes.split), *(f"merge {group_name(one)}" for one in changes.merge)]
    )


def buckets_named(names: Iterable[str]) -> tuple[int, ...]:
    """The buckets that have these names, such as ``bucket-1-of-4``. Raises InvalidArgument for another name."""
    buckets = []
    for name in names:
        bucket = bucket_named(name.strip())
        if bucket is None:
            raise InvalidArgument(f"{name!r} is not the name of a bucket, such as 'bucket-1-of-4'")
        buckets.append(bucket)
    return tuple(buckets)


@lru_cache(maxsize=DEPTH_MAX + 1)
def _uniform(depth: int) -> frozenset[int]:
    return frozenset(range(1 << depth, 2 << depth))


@lru_cache(maxsize=64)
def _leaves(data: bytes) -> frozenset[int]:
    leaves: list[int] = []
    pending, at = [1], 0
    while pending:
        bucket = pending.pop()
        if at >= 8 * len(data) or depth_of(bucket) > DEPTH_MAX:
            raise CorruptStore("what is stored as a directory of buckets is none")
        if data[at // 8] >> at % 8 & 1:
            pending.extend(reversed(children(bucket)))
        else:
            leaves.append(bucket)
        at += 1
    return frozenset(leaves)


def _greatest(sizes: Mapping[tuple[Hashable, int], float]) -> dict[int, float]:
    """The size of each bucket in the partition where it is largest."""
    greatest: dict[int, float] = {}
    for (_, bucket), size in sizes.items():
        greatest[bucket] = max(greatest.get(bucket, 0), size)
    return greatest


def _named(bucket: int) -> str:
    return group_name(bucket) if 1 <= bucket < 2 << DEPTH_MAX else f"bucket number {bucket}"


def _look() -> str:
    return "; it may have been changed meanwhile: look at the table's buckets again"
