"""File groups and base files as numbers: those of an extendible index share keys with those above and below them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.bucket_tree import DEPTH_MAX, above, group_name
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.timeline.conflicts.changes import Change
from lakemark_server.timeline.conflicts.group_ids import base_file, group_id, hash_of, same_group, sharing
from lakemark_server.timeline.conflicts.rules import RULES, find_collision
from tests.lakes import Lake
from tests.unit.timeline.test_touched import delta, entries, entry, on, touched_by

NAMES = ["g", "bucket-1", *(group_name(bucket) for bucket in range(1, 16))]
names = st.sets(st.sampled_from(NAMES), max_size=4)
places = st.sets(st.tuples(st.sampled_from(["", "m=1", "m=2"]), st.sampled_from(NAMES)), max_size=4)


@pytest.fixture
def lake_table(lake: Lake) -> Any:
    return lake.table()


def share(one: str, other: str) -> bool:
    buckets = [NAMES.index(name) - 1 for name in (one, other)]
    if min(buckets) < 1:
        return one == other
    return buckets[0] in above(buckets[1]) or buckets[1] in above(buckets[0])


@given(names, names)
def test_groups_share_keys(mine: set[str], theirs: set[str]) -> None:
    ids = {group_id(name): name for name in NAMES}
    shared = sharing(frozenset(map(group_id, mine)), frozenset(map(group_id, theirs)))
    assert {ids[one] for one in shared} == {
        name for one in mine for other in theirs if share(one, other) for name in (one, other)
    }


@given(places, places)
def test_base_files_share_keys(mine: set[tuple[str, str]], theirs: set[tuple[str, str]]) -> None:
    shared = sharing(frozenset(base_file(*one, 0) for one in mine), frozenset(base_file(*other, 0) for other in theirs))
    expected = {
        base_file(*both, 0)
        for one in mine
        for other in theirs
        if one[0] == other[0] and share(one[1], other[1])
        for both in (one, other)
    }
    assert shared == expected


def test_numbers_of_other_groups_are_what_they_were() -> None:
    """They are stored in records of versions."""
    assert group_id("bucket-3") == hash_of("bucket-3")
    assert base_file("m=1", "g", 5) != base_file("m=1", "g", 6)
    deep = group_name((2 << DEPTH_MAX) - 1)
    assert base_file("m=1", deep, 5) == base_file("m=1", deep, 6), "a bucket has one base file"
    assert max(group_id(deep), base_file("m=1", deep, 0)) < 1 << 64
    files = frozenset({base_file("m=1", deep, 0)})
    assert same_group(files, files | {base_file("m=2", deep, 0)}) == files


def change(operation: Any, *groups: str, **more: Any) -> Change:
    ids = frozenset(map(group_id, groups))
    files = frozenset(base_file("m=1", one, 5) for one in groups)
    return Change(7, operation, frozenset(["m=1"]), groups=ids, files=files, version=3, **more)


@pytest.mark.parametrize("policy", ["file_group", "file", "column"])
def test_writers_on_both_sides_of_a_split_exclude_each_other(policy: str) -> None:
    before, after, beside = "bucket-1-of-2", "bucket-3-of-4", "bucket-0-of-4"
    for one, other in ((before, after), (after, before)):
        assert find_collision(policy, change(t.UPSERT, one), [change(t.UPSERT, other)]), (one, other)
    assert not find_collision(policy, change(t.UPSERT, before), [change(t.UPSERT, beside)])
    assert not find_collision(policy, change(t.UPSERT, "bucket-1-of-4"), [change(t.UPSERT, after)])


@pytest.mark.parametrize("policy", RULES)
def test_a_bucket_is_begun_once_on_whichever_side_of_a_split(policy: str) -> None:
    def begun(group: str) -> Change:
        return change(t.UPSERT, group, begun=frozenset([base_file("m=1", group, 0)]))

    collision = find_collision(policy, begun("bucket-1-of-2"), [begun("bucket-3-of-4")])
    assert collision is not None
    apart = find_collision(policy, begun("bucket-0-of-2"), [begun("bucket-3-of-4")])
    assert (apart is None) == (policy not in ("table", "partition"))


@pytest.mark.parametrize("policy", RULES)
def test_a_split_is_in_nobodys_way(policy: str) -> None:
    split = Change(8, t.ALTER_BUCKETS, version=4)
    for operation in (t.UPSERT, t.DELETE, t.OVERWRITE_PARTITIONS, t.COMPACT, t.ALTER_BUCKETS):
        mine = change(operation, "bucket-1-of-2", removed=frozenset([1]), begun=frozenset([base_file("m=1", "g", 0)]))
        assert not find_collision(policy, mine, [split])
        assert not find_collision(policy, split, [mine])


def test_messages_name_the_groups_of_both_sides() -> None:
    known = {"group_names": {group_id(name): name for name in ("bucket-1-of-2", "bucket-3-of-4")}}
    mine, theirs = change(t.UPSERT, "bucket-1-of-2", **known), change(t.UPSERT, "bucket-3-of-4", **known)
    collision = find_collision("file_group", mine, [theirs])
    assert collision is not None
    assert "file groups bucket-1-of-2, bucket-3-of-4" in collision.describe()


def test_what_a_rewrite_after_a_split_begins(lake_table: Any) -> None:
    """Where it replaces a base file nothing is begun; a merged bucket of which one half had no file is."""
    old, low, high = "bucket-1-of-2", "bucket-1-of-4", "bucket-3-of-4"
    split = touched_by(t.UPSERT, entries(lake_table, [entry(low), entry(high)], [entry(old, 5)]))
    assert split.begun == frozenset()
    assert split.groups == {group_id(name) for name in (old, low, high)}
    merged = touched_by(t.UPSERT, entries(lake_table, [entry(old)], [entry(low, 5)]))
    assert merged.begun == on((old, 0))


def test_deltas_touch_the_bucket_that_they_are_of(lake_table: Any) -> None:
    change = touched_by(t.UPSERT, entries(lake_table, [delta("bucket-1-of-2", 5)], []))
    assert change.files == on(("bucket-1-of-2", 0))


def test_an_ordinary_group_is_never_taken_for_a_bucket() -> None:
    """The hash of this one begins as the numbers of buckets do."""
    mine, theirs = (frozenset([base_file("day=274", "bucket-17570", instant)]) for instant in (100, 200))
    assert same_group(mine, theirs) == theirs
