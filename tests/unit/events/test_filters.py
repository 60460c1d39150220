"""Filters of events: patterns fit names, and what can never fit is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.errors import InvalidArgument
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.catalog_pb2 import Table
from lakemark_proto.v1.types_pb2 import TableName
from lakemark_server.events.filters import PATTERNS_MAX, filter_of, fits, subject_of

COMMIT = pb.Event(kind=pb.COMMITTED, database="sales", table="orders_eu")


def wanted(*patterns: str, kinds: tuple[pb.EventKind.ValueType, ...] = ()) -> pb.EventFilter:
    return pb.EventFilter(patterns=patterns, kinds=kinds)


def lets_through(message: pb.EventFilter, event: pb.Event) -> bool:
    return filter_of(message).fits(subject_of(event))


@given(st.text("ab*", max_size=8), st.text("ab", max_size=8))
def test_a_star_stands_for_any_characters(pattern: str, name: str) -> None:
    expected = re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name) is not None
    assert fits(pattern, name) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("sales", True),
        ("SALES", True),
        ("sal*", True),
        ("*", True),
        ("sales.*", True),
        ("sales.orders_eu", True),
        ("*.orders_*", True),
        ("s*s.*_eu", True),
        ("sale", False),
        ("sales.orders", False),
        ("orders_eu", False),
        ("*.orders", False),
        ("hr.*", False),
    ],
)
def test_a_pattern_names_a_database_or_tables(pattern: str, expected: bool) -> None:
    assert lets_through(wanted(pattern), COMMIT) is expected


def test_a_database_without_a_dot_is_itself_and_everything_in_it() -> None:
    created = pb.Event(kind=pb.DATABASE_CREATED, database="sales")
    function = pb.Event(kind=pb.FUNCTION_CREATED, database="sales")
    quota = pb.Event(kind=pb.QUOTA_CHANGED)
    assert lets_through(wanted("sales"), created)
    assert lets_through(wanted("sales"), function)
    assert not lets_through(wanted("*"), quota)
    assert not lets_through(wanted("sales.*"), created)


def test_one_pattern_and_one_kind_have_to_fit() -> None:
    assert lets_through(wanted("hr", "sales.o*"), COMMIT)
    assert lets_through(wanted(kinds=(pb.TABLE_CREATED, pb.COMMITTED)), COMMIT)
    assert not lets_through(wanted("sales", kinds=(pb.TABLE_CREATED,)), COMMIT)
    assert lets_through(wanted(), pb.Event(kind=pb.QUOTA_CHANGED))


def test_a_rename_fits_by_the_old_name_and_by_the_new_one() -> None:
    before = Table(name=TableName(database="sales", table="old"))
    renamed = pb.Event(
        kind=pb.TABLE_RENAMED, database="hr", table="new", table_change=pb.TableChange(before=before, after=Table())
    )
    assert lets_through(wanted("sales.old"), renamed)
    assert lets_through(wanted("hr.new"), renamed)
    assert not lets_through(wanted("sales.new"), renamed)


@pytest.mark.parametrize("pattern", ["", ".", "a.", ".a", "a.b.c", "a b", "a-b", "a.%", "é", "a" * 300])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidArgument, match="is no pattern of names"):
        filter_of(wanted(pattern))


def test_a_filter_that_nothing_can_fit_is_refused_in_words() -> None:
    with pytest.raises(InvalidArgument, match="quota_changed concerns a whole catalog"):
        filter_of(wanted("sales", kinds=(pb.QUOTA_CHANGED,)))
    with pytest.raises(InvalidArgument, match="database_created, function_dropped concerns no table"):
        filter_of(wanted("sales.*", kinds=(pb.DATABASE_CREATED, pb.FUNCTION_DROPPED)))
    filter_of(wanted("sales.*", "hr", kinds=(pb.DATABASE_CREATED,)))
    filter_of(wanted("sales.*", kinds=(pb.DATABASE_CREATED, pb.COMMITTED)))


def test_unknown_kinds_and_too_many_patterns_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="no kind of events with number 0"):
        filter_of(pb.EventFilter(kinds=[pb.EVENT_KIND_UNSPECIFIED]))
    with pytest.raises(InvalidArgument, match="no kind of events with number 999"):
        filter_of(pb.EventFilter.FromString(pb.EventFilter(kinds=[999]).SerializeToString()))  # type: ignore[list-item]
    with pytest.raises(InvalidArgument, match=f"at most {PATTERNS_MAX} patterns"):
        filter_of(wanted(*["a"] * (PATTERNS_MAX + 1)))
