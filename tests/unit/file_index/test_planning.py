"""Plans, their pages, and the tokens that pin them."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark_core.errors import InvalidArgument, InvalidPredicate
from lakemark_core.expressions import parse_predicate
from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.file_index.entries.columns import from_messages
from lakemark_server.file_index.parts.fold import Origin, Snapshot, empty
from lakemark_server.file_index.planning.partitions import partition_totals
from lakemark_server.file_index.planning.planner import Planner
from lakemark_server.rpc.snapshot import PageToken
from tests.lakes import ID, PLACE, SCHEMA, X, file, stat
from tests.snapshots import folded

INSTANT = 1_800_000_000_000


def snapshot() -> Snapshot:
    """Files a0 … a9 (ids 10n to 10n+9, month n % 3) in one version, b in month 1 without statistics, c a big part."""
    first = [file(INSTANT, f"a{n}", n % 3, stats=[stat(ID, 10 * n, 10 * n + 9, 0)]) for n in range(10)]
    gone = [file(INSTANT, "gone", 7)]
    second = [file(INSTANT, "b", 1, rows=7, size=70)]
    versions = [
        (VersionRecord(version=1, operation=t.APPEND), [from_messages(first + gone, SCHEMA)]),
        (
            VersionRecord(version=2, operation=t.OVERWRITE_PARTITIONS, partitions=["m=7"]),
            [from_messages([], SCHEMA)],
        ),
        (VersionRecord(version=3, operation=t.APPEND), [from_messages(second, SCHEMA)]),
    ]
    return folded(empty(SCHEMA), versions, SCHEMA)


def names(paths: list[str | None]) -> list[str]:
    return [(path or "").split("/")[2] for path in paths]


@pytest.mark.parametrize(
    ("sql", "expected", "entirely"),
    [
        ("id >= 85", ["a8", "a9", "b"], 1),
        ("id = 15 AND m = 1", ["a1", "b"], 0),
        ("m = 2", ["a2", "a5", "a8"], 3),
        ("m = 7", [], 0),
        ("id < 0", ["b"], 0),
        ("TRUE", [*(f"a{n}" for n in range(10)), "b"], 11),
        ("FALSE", [], 0),
        ("place IS NULL", [*(f"a{n}" for n in range(10)), "b"], 0),
    ],
)
def test_a_predicate(sql: str, expected: list[str], entirely: int) -> None:
    plan = Planner().plan(snapshot(), parse_predicate(sql))
    assert names(plan.page(0, 100, []).column("path").to_pylist()) == expected
    assert plan.files == len(expected)
    assert plan.files_matching_entirely == entirely
    assert (plan.residual == "") == (entirely == len(expected))
    assert plan.rows == 5 * len(expected) + (2 if "b" in expected else 0)
    assert plan.size_bytes == 10 * len(expected) + (60 if "b" in expected else 0)


@pytest.mark.parametrize("sql", ["nope = 1", "id = 'x'", "place = 1"])
def test_a_predicate_that_does_not_fit(sql: str) -> None:
    with pytest.raises(InvalidPredicate):
        Planner().plan(snapshot(), parse_predicate(sql))


def test_statistics_travel_if_asked_for() -> None:
    plan = Planner().plan(snapshot(), parse_predicate("id >= 85"))
    page = plan.page(0, 10, [ID, X, PLACE])
    assert page.column("min.1").to_pylist() == [80, 90, None]
    assert page.column("nan_count.2").to_pylist() == [None] * 3
    assert page.column("added_version").to_pylist() == [1, 1, 3]
    assert page.column("matches_entirely").to_pylist() == [False, True, False]
    assert "min.1" not in plan.page(0, 10, []).schema.names


@settings(max_examples=60)
@given(st.integers(0, 14), st.integers(0, 14))
def test_any_page_is_that_piece_of_the_whole(offset: int, limit: int) -> None:
    plan = Planner().plan(snapshot(), None)
    everything = plan.page(0, 100, [ID])
    assert plan.page(offset, limit, [ID]).equals(everything.slice(offset, limit))


def test_partitions_are_summed_up() -> None:
    plan = Planner().plan(snapshot(), None)
    assert partition_totals(plan) == [("m=0", 4, 20, 40), ("m=1", 4, 22, 100), ("m=2", 3, 15, 30)]


def test_a_token_survives_the_way() -> None:
    token = PageToken(3, 20_000, "abc", Origin(1 << 61, 2))
    assert PageToken.decode(token.encode()) == token


@pytest.mark.parametrize(
    "text",
    ["", "x", "ä", "====", "a" * 5_000]
    + [
        base64.urlsafe_b64encode(text.encode()).decode()
        for text in ("1.2", "a.b.c.1.1", "1.-2.c.0.0", "-1.2.c.0.0", "1.2.c", "1.2.c.0", "1.2.c.9.2", "1.2.c.-1.0")
    ]
    + [
        base64.urlsafe_b64encode(b"\xff\xfe.1.2").decode(),
        base64.urlsafe_b64encode(b"9" * 6_000 + b".1.x.0.0").decode(),
    ],
)
def test_tokens_that_this_service_never_gave(text: str) -> None:
    with pytest.raises(InvalidArgument, match="not one that this service gave"):
        PageToken.decode(text)
