"""Directories of buckets: each key in exactly one, splits and merges undo each other, and sizes settle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.bucket_directory import (
    MERGE_SHARE,
    BucketChanges,
    Directory,
    balanced,
    buckets_named,
    described,
)
from lakemark_core.bucket_tree import DEPTH_MAX, at_depth, children, depth_of, parent
from lakemark_core.errors import CorruptStore, FailedPrecondition, InvalidArgument
from lakemark_core.table_kind import TableKind, kind_of

hashes = st.integers(-(1 << 31), (1 << 31) - 1)


@st.composite
def directories(draw: st.DrawFn) -> Directory:
    directory = Directory.uniform(draw(st.integers(0, 3)))
    for _ in range(draw(st.integers(0, 6))):
        directory = directory.altered([draw(st.sampled_from(sorted(directory.leaves)))], [])
    return directory


@given(directories(), hashes)
def test_each_key_has_exactly_one_bucket(directory: Directory, key_hash: int) -> None:
    own = [leaf for leaf in directory.leaves if key_hash % (1 << depth_of(leaf)) == leaf - (1 << depth_of(leaf))]
    assert own == [directory.bucket_of(key_hash)]
    depths = directory.depths()
    assert len(depths) == 1 << directory.depth
    assert at_depth(key_hash, depths[key_hash % len(depths)]) == own[0], "as Spark looks it up"


@given(directories(), hashes)
def test_a_plan_looks_into_every_bucket_that_ever_had_the_key(directory: Directory, key_hash: int) -> None:
    """Files of all depths, below and above the directory's, are in the plan; and at each depth one bucket alone."""
    kind = TableKind(("k",), buckets=1, directory=directory)
    looked_into = kind.buckets_of(key_hash)
    assert directory.bucket_of(key_hash) in looked_into
    assert sorted(map(depth_of, looked_into)) == list(range(DEPTH_MAX + 1))
    assert all(at_depth(key_hash, depth_of(one)) == one for one in looked_into)


@given(directories(), st.data())
def test_a_split_and_a_merge_undo_each_other(directory: Directory, data: st.DataObject) -> None:
    bucket = data.draw(st.sampled_from(sorted(directory.leaves)))
    split = directory.altered([bucket], [])
    assert split.leaves == directory.leaves - {bucket} | set(children(bucket))
    assert split.altered([], [bucket]) == directory


@given(directories())
def test_directories_are_read_back(directory: Directory) -> None:
    data = directory.to_bytes()
    assert Directory.from_bytes(data, directory.least_depth) == directory
    assert len(data) <= len(directory.leaves) // 4 + 1


@given(st.binary(max_size=4))
def test_other_bytes_are_refused_or_are_a_directory(data: bytes) -> None:
    try:
        directory = Directory.from_bytes(data, 0)
    except CorruptStore:
        return
    assert sum(1 << DEPTH_MAX - depth_of(leaf) for leaf in directory.leaves) == 1 << DEPTH_MAX


@given(directories(), st.integers(1, 63))
def test_the_buckets_within_a_bucket_share_its_keys(directory: Directory, bucket: int) -> None:
    below = 1 << max(directory.depth, depth_of(bucket))
    assert directory.within(bucket) == {
        directory.bucket_of(one) for one in range(below) if at_depth(one, depth_of(bucket)) == bucket
    }


def test_what_is_refused() -> None:
    directory = Directory.uniform(1)
    deep = directory
    for _ in range(DEPTH_MAX - 1):
        deep = deep.altered([max(deep.leaves)], [])
    cases: list[tuple[Directory, list[int], list[int], str]] = [
        (directory, [4], [], "bucket-0-of-4 is not in the directory, so it cannot be split; .*look at the table's"),
        (directory, [1], [], "bucket-0-of-1 is not in the directory"),
        (directory, [-1], [], "bucket number -1 is not in the directory"),
        (directory, [], [2], "the halves of bucket-0-of-2 are not both in the directory"),
        (directory, [], [0], "the halves of bucket number 0"),
        (directory, [], [1], "larger than the buckets that the table was created with, of which there are 2"),
        (deep, [max(deep.leaves)], [], "as deep as a bucket can be: there are at most 65536"),
    ]
    for before, split, merge, told in cases:
        with pytest.raises(FailedPrecondition, match=told):
            before.altered(split, merge)
    with pytest.raises(InvalidArgument, match="named twice"):
        directory.altered([2, 2], [])
    four = directory.altered([2, 3], [])
    with pytest.raises(InvalidArgument, match="a half of bucket-0-of-2 is named among those to split"):
        four.altered([4], [2])


@given(directories(), st.data(), st.integers(1, 100))
def test_sizes_settle(directory: Directory, data: st.DataObject, split_bytes: int) -> None:
    """Whatever the sizes, the same sizes ask for no more after some rounds, and no split is undone."""
    numbers = st.one_of(st.sampled_from(sorted(directory.leaves)), st.integers(1, 31))
    keys = st.tuples(st.sampled_from("xy"), numbers)
    sizes = data.draw(st.dictionaries(keys, st.integers(0, 1000), max_size=6))
    for _ in range(2 * DEPTH_MAX):
        changes = balanced(directory, sizes, split_bytes)
        after = directory.altered(changes.split, changes.merge)
        undone = balanced(after, sizes, split_bytes)
        assert not set(changes.split) & set(undone.merge)
        assert not set(changes.merge) & set(undone.split)
        if not changes:
            return
        directory = after
    raise AssertionError(f"{changes} after many rounds")


def test_a_bucket_is_split_where_it_is_largest_and_merged_where_all_are_small() -> None:
    directory = Directory.uniform(1).altered([2, 3], [])
    sizes = {("x", 4): 10, ("y", 4): 101, ("x", 5): 13, ("x", 7): 12, ("y", 5): 25}
    assert balanced(directory, sizes, 100) == BucketChanges((4,), (3,))
    assert balanced(directory, {**sizes, ("x", 7): 13}, 100) == BucketChanges((4,), ())
    assert balanced(Directory.uniform(1), {}, 100) == BucketChanges(), "never fewer than at the creation"
    assert 100 // MERGE_SHARE == 25


def test_files_of_before_a_split_count_by_halves() -> None:
    directory = Directory.uniform(0).altered([1], [])
    assert balanced(directory, {("x", 1): 300}, 100).split == (2, 3)
    assert balanced(directory, {("x", 1): 200}, 100).split == ()
    assert balanced(Directory.uniform(0), {("x", 2): 60, ("x", 3): 60}, 100).split == (1,), (
        "and those of before a merge"
    )


def test_words() -> None:
    assert described(BucketChanges((2,), (3, 4))) == "split bucket-0-of-2; merge bucket-1-of-2; merge bucket-0-of-4"
    assert buckets_named(["bucket-0-of-2", " bucket-1-of-2"]) == (2, 3)
    with pytest.raises(InvalidArgument, match="'bucket-2' is not the name of a bucket, such as 'bucket-1-of-4'"):
        buckets_named(["bucket-2"])
    assert parent(1) == 1


def test_the_kind_of_a_table_has_its_directory() -> None:
    properties = {"lakemark.primary-key": "id", "lakemark.bucket.count": "4", "lakemark.bucket.index": "extendible"}
    kind = kind_of(properties)
    assert kind.directory == Directory.uniform(2)
    split = Directory.uniform(2).altered([5], [])
    assert kind_of(properties, split.to_bytes()).directory == split
    assert kind.group_name(5) == "bucket-1-of-4"
    assert kind.why_no_bucket(0) == kind.why_no_bucket(2 << DEPTH_MAX).replace("131072", "0") != ""
    assert not kind.why_no_bucket((2 << DEPTH_MAX) - 1)
