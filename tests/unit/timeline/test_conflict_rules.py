"""The conflict rules cell by cell, with the reason for each."""

from __future__ import annotations

import pytest

from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.timeline.conflicts import (
    NAMES_IN_MESSAGE_MAX,
    OPERATIONS,
    RULES,
    Change,
    Operation,
    Verdict,
    find_collision,
    named_partitions,
)

A, P, T = t.APPEND, t.OVERWRITE_PARTITIONS, t.OVERWRITE_TABLE
NO, SAME, YES = Verdict.NEVER, Verdict.SAME_PARTITION, Verdict.ALWAYS

TABLE = [
    # policy, mine, theirs, verdict, why
    ("partition", A, A, NO, "rows that are only added take nothing from each other"),
    ("partition", A, P, SAME, "whether my rows belong to the new content of the partition is not known"),
    ("partition", A, T, YES, "the same, for every partition"),
    ("partition", P, A, SAME, "I would throw away rows that I have not read"),
    ("partition", P, P, SAME, "I would throw away what they wrote without having read it"),
    ("partition", P, T, YES, "what I read is gone in every partition"),
    ("partition", T, A, YES, "I would throw away rows that I have not read"),
    ("partition", T, P, YES, "I would throw away what they wrote without having read it"),
    ("partition", T, T, YES, "the same, for every partition"),
    ("table", A, A, YES, "one writer at a time"),
    ("table", A, P, YES, "one writer at a time"),
    ("table", A, T, YES, "one writer at a time"),
    ("table", P, A, YES, "one writer at a time"),
    ("table", P, P, YES, "one writer at a time"),
    ("table", P, T, YES, "one writer at a time"),
    ("table", T, A, YES, "one writer at a time"),
    ("table", T, P, YES, "one writer at a time"),
    ("table", T, T, YES, "one writer at a time"),
]


def change(operation: Operation, *partitions: str, everything: bool = False, **more: object) -> Change:
    fields = {"instant": 7, "version": 3} | more
    return Change(operation=operation, partitions=frozenset(partitions), all_partitions=everything, **fields)  # type: ignore[arg-type]


def test_the_table_here_is_the_whole_table() -> None:
    cells = {(policy, *pair) for policy, rules in RULES.items() for pair in rules}
    assert cells == {(policy, mine, theirs) for policy, mine, theirs, _, _ in TABLE}
    assert len(TABLE) == len(RULES) * len(OPERATIONS) ** 2


@pytest.mark.parametrize(("policy", "mine", "theirs", "verdict", "why"), TABLE)
def test_cell(policy: str, mine: Operation, theirs: Operation, verdict: Verdict, why: str) -> None:
    assert RULES[policy][mine, theirs] is verdict, why
    everywhere = {T}
    same = find_collision(
        policy,
        change(mine, "m=1", "m=2", everything=mine in everywhere),
        [change(theirs, "m=2", "m=3", everything=theirs in everywhere)],
    )
    apart = find_collision(
        policy,
        change(mine, "m=1", everything=mine in everywhere),
        [change(theirs, "m=2", everything=theirs in everywhere)],
    )
    assert (same is not None) == (verdict is not NO), why
    assert (apart is not None) == (verdict is YES), why


@pytest.mark.parametrize(
    ("mine", "theirs", "shared"),
    [
        (change(P, "m=1", "m=2"), change(P, "m=2"), {"m=2"}),
        (change(P, "m=1"), change(P, "m=2"), set()),
        (change(P, "m=1"), change(A, everything=True), {"m=1"}),
        (change(A, everything=True), change(P, "m=1"), {"m=1"}),
        (change(A, everything=True), change(T, everything=True), None),
        (change(P), change(A, everything=True), set()),
    ],
)
def test_shared_partitions(mine: Change, theirs: Change, shared: set[str] | None) -> None:
    assert mine.shared(theirs) == shared
    assert theirs.shared(mine) == shared


def test_more_partitions_than_are_listed_collide_with_each_other() -> None:
    many = change(A, everything=True)
    assert find_collision("partition", change(P, "m=1"), [many]) is not None
    assert find_collision("partition", change(A), [many]) is None, "appends stay free"


def test_the_first_that_excludes_is_named_and_the_others_are_not_asked() -> None:
    def others() -> object:
        yield change(A, "m=1", instant=1)
        yield change(P, "m=9", instant=2)
        yield change(P, "m=1", instant=3, owner="etl", version=12)
        raise AssertionError("asked for more than was needed")

    found = find_collision("partition", change(A, "m=1"), others())  # type: ignore[arg-type]
    assert found is not None
    assert found.theirs.instant == 3
    assert found.details() == {
        "instant": "3",
        "version": "12",
        "operation": "OVERWRITE_PARTITIONS",
        "policy": "partition",
        "partitions": "m=1",
    }
    text = found.describe()
    for part in ("instant 3", "of etl", "committed version 12", "OVERWRITE_PARTITIONS", "partition m=1", "'partition'"):
        assert part in text


def test_a_live_writer_is_said_to_be_in_flight() -> None:
    found = find_collision("table", change(A), [change(A, version=0)])
    assert found is not None
    assert "in flight" in found.describe()
    assert "one writer at a time" in found.describe()


def test_names_in_messages_are_few() -> None:
    assert named_partitions([""]) == "the table, which has no partitions"
    assert named_partitions(["m=1"]) == "partition m=1"
    names = [f"m={number}" for number in range(NAMES_IN_MESSAGE_MAX + 3)]
    assert named_partitions(names).endswith("and 3 more")
