"""Which locks exclude each other: Hive's table, databases, tables and partitions, and a plain model."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_server.transactions.conflicts import EXCLUDES, Asked, Component, LockType, Place, Queued, Queues, exclude

READ, WRITE, ALL, EXCL_WRITE = LockType.SHARED_READ, LockType.SHARED_WRITE, LockType.EXCLUSIVE, LockType.EXCL_WRITE
DB, TABLE, PART = Place("c", "d"), Place("c", "d", "t"), Place("c", "d", "t", "p=1")

places = st.builds(
    lambda db, table, part: Place("c", db, table, part if table else ""),
    st.sampled_from("de"),
    st.sampled_from(["", "t", "u"]),
    st.sampled_from(["", "p=1", "p=2"]),
)
components = st.builds(Component, places, st.sampled_from(LockType))


def test_the_table_is_hives() -> None:
    order = (READ, WRITE, EXCL_WRITE, ALL)
    drawn = ["".join("-" if asked in EXCLUDES[held] else "+" for asked in order) for held in order]
    assert drawn == ["+++-", "++--", "+---", "----"]


@pytest.mark.parametrize(
    ("one", "other", "excluded"),
    [
        (Component(TABLE, ALL), Component(TABLE, READ), True),
        (Component(PART, ALL), Component(TABLE, READ), True),
        (Component(PART, ALL), Component(Place("c", "d", "t", "p=2"), ALL), False),
        (Component(TABLE, ALL), Component(Place("c", "d", "u"), ALL), False),
        (Component(TABLE, ALL), Component(Place("x", "d", "t"), ALL), False),
        (Component(DB, ALL), Component(PART, READ), True),
        # SHARED_READ of a database only keeps it from being dropped.
        (Component(DB, READ), Component(TABLE, ALL), False),
        (Component(DB, READ), Component(PART, ALL), False),
        (Component(DB, READ), Component(DB, ALL), True),
        (Component(DB, WRITE), Component(TABLE, ALL), True),
    ],
)
def test_what_excludes_what(one: Component, other: Component, excluded: bool) -> None:
    assert exclude(one, other) is excluded
    assert exclude(other, one) is excluded


@given(components, components)
def test_exclusion_is_symmetric(one: Component, other: Component) -> None:
    assert exclude(one, other) == exclude(other, one)


@given(st.lists(components, min_size=1, max_size=5), st.lists(components, max_size=6), st.integers(0, 2))
def test_a_lock_waits_for_all_earlier_ones_that_exclude_it(
    asked: Sequence[Component], others: Sequence[Component], transaction_id: int
) -> None:
    queued = [Queued(other, at, 100 + at, 0, at % 3) for at, other in enumerate(others, 1)]
    blocks = list(Asked(asked, transaction_id).blocks(4, 1, queued))
    expected = [
        one
        for one in queued
        if one.position < 4
        and not (transaction_id and one.transaction_id == transaction_id)
        and any(exclude(component, one.component) for component in asked)
    ]
    assert [block.by for block in blocks] == expected
    assert all(exclude(asked[block.number], block.by.component) for block in blocks)


@given(st.lists(components, min_size=1, max_size=5), st.lists(components, max_size=6), st.integers(0, 2))
def test_each_component_waits_for_the_first_earlier_one_that_excludes_it(
    asked: Sequence[Component], others: Sequence[Component], transaction_id: int
) -> None:
    queued = [Queued(other, at, 100 + at, 0, at % 3) for at, other in enumerate(others, 1)]
    queued += [Queued(one, 4, 1, number, transaction_id) for number, one in enumerate(asked)]
    queued.sort(key=lambda one: (one.component.place, one.position, one.lock_id, one.number))  # as in the store
    queues = Queues(queued)
    for waiting in (one for one in queued if one.lock_id == 1):
        blocks = Asked([waiting.component], transaction_id).blocks(4, 1, queued)
        expected = next((block.by for block in blocks), None)
        assert queues.first_in_the_way(waiting) == expected
