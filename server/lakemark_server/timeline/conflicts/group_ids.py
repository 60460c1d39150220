"""File groups and base files as 64-bit numbers, by which changes are compared.

A number is a hash of names; two names with one hash would only make a commit collide that need not. Groups of an
extendible bucket index share keys with groups of other names, those above and below them (``bucket_tree``). Their
numbers hold the bucket itself, so that this is seen:

===========  ========================================  =============================================
bits         of a file group                           of a base file
===========  ========================================  =============================================
48 to 63     a mark                                    a mark
41 to 47     0                                         of the partition's hash
24 to 40     the bucket                                the bucket
0 to 23      0                                         of the partition's hash
===========  ========================================  =============================================

A bucket of a partition has one base file, so which instant wrote it does not matter there.
"""

from __future__ import annotations

import hashlib
from typing import Final

from lakemark_core.bucket_tree import NUMBER_MAX, at_depth, bucket_named, depth_of

_INSTANT_BITS: Final = (1 << 24) - 1
_MARK: Final = 0xFFFF  # the greatest numbers, so that the greatest of a list tells whether it has any
_BUCKET_SHIFT: Final = 24
_BUCKET_BITS: Final = NUMBER_MAX << _BUCKET_SHIFT
_PLACE_BITS: Final = (1 << 48) - 1 & ~_BUCKET_BITS


def hash_of(text: str) -> int:
    """64 bits of BLAKE2."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def group_id(name: str) -> int:
    """As what a file group is compared, in whatever partition it lies."""
    bucket = bucket_named(name)
    return _unmarked(hash_of(name)) if bucket is None else _MARK << 48 | bucket << _BUCKET_SHIFT


def base_file(partition: str, group: str, instant: int) -> int:
    """As what the base file of a slice is compared: ``instant`` wrote it; 0: the group has none yet.

    The upper bits are those of the group in its partition, for ``same_group``.
    """
    bucket = bucket_named(group)
    if bucket is not None:
        return group_id(group) | hash_of(partition) & _PLACE_BITS
    group_bits = _unmarked(hash_of(f"{partition}\n{group}")) & ~_INSTANT_BITS
    return group_bits | hash_of(f"{partition}\n{group}\n{instant}") & _INSTANT_BITS


def same_group(files: frozenset[int], others: frozenset[int]) -> frozenset[int]:
    """Those of ``others`` that are base files of the same groups, in the same partitions, as ``files``."""
    groups = {file & ~_INSTANT_BITS for file in files}
    return frozenset(
        file for file in others if file & ~_INSTANT_BITS in groups and (not _marked(file) or file in files)
    )


def sharing(mine: frozenset[int], theirs: frozenset[int]) -> frozenset[int]:
    """The file groups, or base files, of both that may have common keys: the same, or buckets above one another."""
    same = mine & theirs
    if not _marked(max(mine, default=0)) or not _marked(max(theirs, default=0)):
        return same
    return same | _below(mine, theirs) | _below(theirs, mine)


def _below(ones: frozenset[int], others: frozenset[int]) -> frozenset[int]:
    """Those of ``ones`` that lie below some of ``others``, and these."""
    shared: set[int] = set()
    depths = {depth_of(_bucket(other)) for other in others if _marked(other)}
    for one in filter(_marked, ones):
        bucket, place = _bucket(one), one & ~_BUCKET_BITS
        for depth in depths:
            other = place | at_depth(bucket, depth) << _BUCKET_SHIFT
            if depth <= depth_of(bucket) and other in others:
                shared.update((one, other))
    return frozenset(shared)


def _bucket(number: int) -> int:
    return (number & _BUCKET_BITS) >> _BUCKET_SHIFT or 1


def _unmarked(number: int) -> int:
    """One hash of 65,536 looks like the number of a bucket: it becomes another one."""
    return number ^ 1 << 63 if _marked(number) else number


def _marked(number: int) -> bool:
    return number >> 48 == _MARK
