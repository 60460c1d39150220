"""Buckets of an extendible index: their numbers and names, and which of them share keys. Pure.

Bucket ``2^depth + remainder`` has the keys for which ``pmod(hash, 2^depth)`` is the remainder: bucket 1 has all keys, 2
and 3 have one half each. A split makes two buckets of one that look at one bit more of the hash. So a number says by
itself which keys a bucket has, whenever it was made, and two buckets share keys only if one is above the other. After
Fagin, Nievergelt, Pippenger and Strong, Extendible Hashing, 1979.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import Final, Generic, TypeVar

DEPTH_MAX: Final = 16
NUMBER_MAX: Final = (2 << DEPTH_MAX) - 1

_NAME: Final = re.compile(r"bucket-(0|[1-9][0-9]{0,4})-of-([1-9][0-9]{0,4})", re.ASCII)

Place = TypeVar("Place", bound=Hashable)


def depth_of(bucket: int) -> int:
    """How many bits of the hash the bucket looks at."""
    return bucket.bit_length() - 1


def at_depth(number: int, depth: int) -> int:
    """The bucket of this depth that has a hash, or that is above a bucket which is at least as deep."""
    return 1 << depth | number & (1 << depth) - 1


def above(bucket: int) -> list[int]:
    """The bucket, and all that have its keys and others, up to bucket 1."""
    return [at_depth(bucket, depth) for depth in range(depth_of(bucket), -1, -1)]


def children(bucket: int) -> tuple[int, int]:
    """The two buckets that a split makes of it."""
    depth = depth_of(bucket)
    return at_depth(bucket, depth) + (1 << depth), bucket + (2 << depth)


def parent(bucket: int) -> int:
    """The bucket of which a split made this one; bucket 1 has none, and is its own."""
    return at_depth(bucket, max(0, depth_of(bucket) - 1))


def group_name(bucket: int) -> str:
    """The name of a bucket's file group, the same in every partition: ``bucket-5-of-8``."""
    modulus = 1 << depth_of(bucket)
    return f"bucket-{bucket - modulus}-of-{modulus}"


def bucket_named(name: str) -> int | None:
    """The bucket whose file group has this name; None if it is no such name."""
    match = _NAME.fullmatch(name) if "-of-" in name else None
    if match is None:
        return None
    remainder, modulus = map(int, match.groups())
    return modulus + remainder if remainder < modulus and not modulus & (modulus - 1) else None


def first_above(bucket: int, among: Collection[int]) -> int | None:
    """The deepest bucket of ``among`` that has all of the bucket's keys; None if there is none."""
    return next((one for one in above(bucket) if one in among), None)


def instants_under(
    bases: Iterable[tuple[Place, str, int]], groups: Iterable[tuple[Place, str]]
) -> dict[tuple[Place, str], int]:
    """For each of the groups the instant of the latest base file that shares keys with it; none: it is left out.

    ``bases`` has the place, the group and the instant of each base file.
    """
    own: dict[tuple[Place, str], int] = {}
    with_below: dict[tuple[Place, int], int] = {}
    for place, name, instant in bases:
        bucket = bucket_named(name)
        own[place, name] = instant
        for over in () if bucket is None else above(bucket):
            with_below[place, over] = max(instant, with_below.get((place, over), 0))
    under: dict[tuple[Place, str], int] = {}
    for place, name in groups:
        bucket = bucket_named(name)
        names = [name] if bucket is None else [group_name(over) for over in above(bucket)]
        instants = [own.get((place, one), 0) for one in names]
        if bucket is not None:
            instants.append(with_below.get((place, bucket), 0))
        if max(instants):
            under[place, name] = max(instants)
    return under


class FileGroups(Generic[Place]):
    """File groups, each given by the place where it lies (its partition) and its name.

    Groups of an extendible index share keys if one's bucket is above the other's; others only if they are the same.
    """

    def __init__(self, groups: Iterable[tuple[Place, str]]) -> None:
        self._names = set(groups)
        self._buckets: set[tuple[Place, int]] = set()
        self._above: set[tuple[Place, int]] = set()
        for place, name in self._names:
            bucket = bucket_named(name)
            if bucket is not None:
                self._buckets.add((place, bucket))
                self._above.update((place, one) for one in above(bucket))

    def __bool__(self) -> bool:
        return bool(self._names)

    def __iter__(self) -> Iterator[tuple[Place, str]]:
        return iter(self._names)

    def touch(self, place: Place, name: str) -> bool:
        """Whether a file group may have keys of one of these."""
        if (place, name) in self._names:
            return True
        bucket = bucket_named(name) if self._buckets else None
        return bucket is not None and ((place, bucket) in self._above or self._under(place, bucket))

    def cover(self, place: Place, name: str) -> bool:
        """Whether one of these has all keys of a file group."""
        if (place, name) in self._names:
            return True
        bucket = bucket_named(name) if self._buckets else None
        return bucket is not None and self._under(place, bucket)

    def whole(self, wanted: Iterable[tuple[Place, str]]) -> FileGroups[Place]:
        """The groups that, with all that are below them among these and ``wanted``, share no key with any other.

        They have the keys of ``wanted`` and as few others as possible. Whoever replaces files replaces all of such a
        group: changes of one key then lie wholly within what is replaced, or wholly without.
        """
        wanted = set(wanted)
        every = FileGroups([*self._names, *wanted])
        return FileGroups((place, every._root(place, name)) for place, name in wanted)

    def _root(self, place: Place, name: str) -> str:
        bucket = bucket_named(name)
        if bucket is None:
            return name
        return group_name(next(one for one in reversed(above(bucket)) if (place, one) in self._buckets))

    def _under(self, place: Place, bucket: int) -> bool:
        return any((place, one) in self._buckets for one in above(bucket))
