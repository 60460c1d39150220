"""Buckets of an extendible index: numbers, names, and which share keys, compared with the hashes that they have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.bucket_tree import (
    DEPTH_MAX,
    FileGroups,
    above,
    at_depth,
    bucket_named,
    children,
    depth_of,
    first_above,
    group_name,
    parent,
)

SMALL = 4
HASHES = range(1 << SMALL)
small_buckets = st.integers(1, (2 << SMALL) - 1)
buckets = st.integers(1, (2 << DEPTH_MAX) - 1)
places = st.sampled_from("xy")


def keys(bucket: int) -> set[int]:
    """The hashes of its keys, below ``1 << SMALL``."""
    return {one for one in HASHES if one % (1 << depth_of(bucket)) == bucket - (1 << depth_of(bucket))}


def test_the_first_buckets() -> None:
    assert children(1) == (2, 3), "even hashes and odd ones"
    assert [group_name(one) for one in (1, *children(1), *children(3))] == [
        "bucket-0-of-1",
        "bucket-0-of-2",
        "bucket-1-of-2",
        "bucket-1-of-4",
        "bucket-3-of-4",
    ]


@given(buckets)
def test_names_are_read_back(bucket: int) -> None:
    assert bucket_named(group_name(bucket)) == bucket


@pytest.mark.parametrize(
    "name",
    ["bucket-3", "bucket-2-of-2", "bucket-1-of-3", "bucket-0-of-0", "bucket-00-of-2", "bucket-0-of-131072", "x", "",
     "bucket-0-of-2 ", "bucket-٣-of-4"],
)  # fmt: skip
def test_other_names_are_no_buckets(name: str) -> None:
    assert bucket_named(name) is None


@given(buckets, st.integers(-(1 << 31), (1 << 31) - 1))
def test_a_hash_is_in_one_bucket_of_each_depth(bucket: int, key_hash: int) -> None:
    depth = depth_of(bucket)
    assert (at_depth(key_hash, depth) == bucket) == (key_hash % (1 << depth) == bucket - (1 << depth))


@given(small_buckets)
def test_a_split_parts_the_keys_in_two(bucket: int) -> None:
    low, high = children(bucket)
    assert parent(low) == parent(high) == bucket
    if depth_of(bucket) < SMALL:
        assert keys(low) | keys(high) == keys(bucket)
        assert not keys(low) & keys(high)
        assert low < high


@given(small_buckets, small_buckets)
def test_buckets_share_keys_if_one_is_above_the_other(one: int, other: int) -> None:
    shared = bool(keys(one) & keys(other))
    assert shared == (one in above(other) or other in above(one))
    assert (first_above(one, [other]) == other) == (keys(one) <= keys(other))
    groups = FileGroups([("x", group_name(one))])
    assert groups.touch("x", group_name(other)) == shared
    assert groups.cover("x", group_name(other)) == (keys(other) <= keys(one))
    assert not groups.touch("y", group_name(other)), "in another partition"


def test_other_groups_are_compared_by_name() -> None:
    groups = FileGroups([("x", "bucket-1"), ("x", "bucket-0-of-2")])
    assert groups.touch("x", "bucket-1")
    assert groups.cover("x", "bucket-1")
    assert not groups.touch("x", "bucket-0")
    assert not groups.cover("y", "bucket-1")
    assert not FileGroups[str]([])


@given(st.sets(st.tuples(places, small_buckets)), st.sets(st.tuples(places, small_buckets)))
def test_whole_groups_are_cut_off_from_all_others(existing: set[tuple[str, int]], wanted: set[tuple[str, int]]) -> None:
    """What is replaced as a whole has every file that shares a key with it, and no more than is needed."""
    groups = FileGroups((place, group_name(one)) for place, one in existing)
    whole = groups.whole((place, group_name(one)) for place, one in wanted)
    for place, one in existing | wanted:
        touched = whole.touch(place, group_name(one))
        assert touched == whole.cover(place, group_name(one)), "wholly within, or wholly without"
    assert all(whole.cover(place, group_name(one)) for place, one in wanted)
    # Chains of buckets that share keys lead from what is wanted to each that is replaced.
    reached = set(wanted)
    while True:
        more = {
            (place, one)
            for place, one in existing - reached
            if any(place == there and keys(one) & keys(other) for there, other in reached)
        }
        if not more:
            break
        reached |= more
    assert {(place, one) for place, one in existing if whole.touch(place, group_name(one))} == reached & existing
