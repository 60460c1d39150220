"""Patterns, filters and predicates that are made to take long, or to end in an exception."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import MetaException

from lakemark_proto.v1 import snapshot_pb2 as s
from lakemark_proto.v1 import types_pb2 as p
from tests.integration.attacks.thrift_client import Client
from tests.integration.hms_objects import partition, table
from tests.lakes import file
from tests.wire import Wire, refused

SECONDS_MAX = 10.0
"""Of this process's own time, in which the service runs: more than all that is answered here takes."""

MANY_A = "a" * 100


@contextmanager
def soon() -> Iterator[None]:
    begun = time.process_time()
    yield
    assert time.process_time() - begun < SECONDS_MAX


@pytest.mark.timeout(120)
def test_patterns_of_names_are_answered_at_once(client: Client) -> None:
    client.create_table(table(MANY_A))
    for pattern in ("*a*a*a*a*a*ab", "*.a*.a*.a*.a*.a*.ab", "*a" * 40 + "*b"):
        with soon():
            assert client.get_tables("default", pattern) == []
            assert client.get_databases(pattern) == []
            assert client.get_functions("default", pattern) == []
            assert client.get_table_meta(pattern, pattern, []) == []
            assert client.get_tables_by_type("default", pattern, "MANAGED_TABLE") == []
    assert client.get_tables("default", "*a*a.a*") == [MANY_A]


def test_patterns_that_are_too_large_are_refused_in_words(client: Client) -> None:
    with pytest.raises(MetaException, match="100001 characters; at most 10000"):
        client.get_tables("default", "*" + "a" * 100_000)
    with pytest.raises(MetaException, match="101 alternatives with wildcards; at most 100"):
        client.get_tables("default", "|".join(f"t{number}*" for number in range(101)))


@pytest.mark.timeout(120)
def test_filters_of_tables_are_answered_at_once(client: Client) -> None:
    client.create_table(table("t", parameters={"p": "a" * 10_000}))
    for pattern in ("%a" * 30 + "%b", ".*a" * 30 + ".*b"):
        with soon():
            assert (
                client.get_table_names_by_filter("default", f'hive_filter_field_params__p like "{pattern}"', -1) == []
            )
    assert client.get_table_names_by_filter("default", 'hive_filter_field_params__p like "%aa%a"', -1) == ["t"]


@pytest.fixture
def partitioned(client: Client) -> str:
    client.create_table(table("parts", keys="d string, n bigint"))
    client.add_partitions([partition([MANY_A, "1"], of="parts"), partition(["b", "2"], of="parts")])
    return "parts"


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "text",
    [
        f"n = {'9' * 5_000}",
        f"n = 1.{'9' * 5_000}",
        f"n = {'9' * 38}",
        "n in (" + ",".join(["1"] * 400_000) + ")",
        " or ".join(["n = 1"] * 150_000),
        "(" * 900_000,
        "not " * 200_000 + "n = 1",
        'd = "' + "\\x" * 400_000,
    ],
    ids=lambda text: text[:12],
)
def test_filters_of_partitions_that_ask_too_much_select_all(client: Client, partitioned: str, text: str) -> None:
    # As one that is not understood: who asked filters again.
    with soon():
        names = [one.values[1] for one in client.get_partitions_by_filter("default", partitioned, text, -1)]
    assert "9" * 38 in text or names == ["1", "2"]


@pytest.mark.timeout(120)
def test_patterns_in_filters_of_partitions_are_answered_at_once(client: Client, partitioned: str) -> None:
    for pattern, wanted in ((".*a" * 40 + ".*b", []), (".*a" * 40 + ".*", ["1"]), ("a" * 2_000 + ".*", [])):
        with soon():
            chosen = client.get_partitions_by_filter("default", partitioned, f'd like "{pattern}"', -1)
        assert [one.values[1] for one in chosen] == wanted


@pytest.fixture
def lake(wire: Wire) -> Wire:
    wire.create()
    instant = wire.open().instant
    wire.commit(instant, file(instant, "a"))
    return wire


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"id = {'9' * 5_000}", "more than 38 digits"),
        (f"id = cast('1' as decimal({'9' * 5_000}, 0))", "too many digits"),
        ("id in (" + ",".join(["1"] * 450_000) + ")", "at most 100000"),
        (" or ".join(["id = 1"] * 90_000), "at most 100000"),
        ("not " * 20_000 + "id = 1", "nested too deeply"),
        ("(" * 90_000, "nested too deeply"),
        ("'" + "\\'" * 490_000, "cannot be read"),
        ("id = 1 or " * 100_001 + "id = 1", "1000016 characters; at most 1000000"),
    ],
    ids=lambda text: text[:12],
)
def test_predicates_that_ask_too_much_are_refused_in_words(lake: Wire, text: str, words: str) -> None:
    with soon(), refused("invalid_predicate", words):
        lake.plan(text)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "text",
    [
        "name rlike '(a+)+$'",
        "name like '" + "%a" * 40 + "%b'",
        "name like '" + "%ab" * 100_000 + "_'",
        f"substr(name, {'9' * 300}) = 'a'",
        f"id = '{'9' * 5_000}'",
        "x = 1e308",
        "m = cast('1e999999999' as decimal(38, 0))",
        f"id = '1e{'9' * 9}'",
        "id = '1e-999999999'",
    ],
    ids=lambda text: text[:30],
)
def test_predicates_that_may_be_true_are_answered_at_once(lake: Wire, text: str) -> None:
    with soon():
        lake.plan(text)


def comparison(column: str, **value: object) -> p.Expression:
    literal = p.Value(**value)  # type: ignore[arg-type]
    return p.Expression(comparison=p.Comparison(column=column, operator=p.Comparison.EQUAL, literal=literal))


def planned(wire: Wire, expression: p.Expression) -> s.PlanFilesResponse:
    predicate = p.Predicate(expression=expression)
    return wire.snapshots.PlanFiles(s.PlanFilesRequest(table=wire.table, predicate=predicate))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", ["1e99999999", "1e-99999999", "9" * 5_000, "9" * 5_000_000, "NaN", "1e" + "9" * 50])
def test_decimals_of_expressions_that_are_too_large_are_refused_in_words(lake: Wire, number: str) -> None:
    for column in ("id", "x", "name", "m"):
        with soon(), refused("invalid_predicate", "decimal", "out of range"):
            planned(lake, comparison(column, decimal=number))


@pytest.mark.timeout(120)
def test_expressions_that_are_too_large_are_refused_in_words(lake: Wire) -> None:
    values = [p.Value(integer=number) for number in range(100_000)]
    wide = p.Expression(membership=p.Membership(column="id", literals=values))
    many = p.Expression(any_of=p.Junction(terms=[comparison("id", integer=1)] * 60_000))
    deep = comparison("id", integer=1)
    for _ in range(60):
        deep = p.Expression(negation=deep)
    for expression, words in (
        (wide, "more than 100000"),
        (p.Expression(all_of=p.Junction(terms=[many, many])), "more than 100000"),
        (deep, "nested deeper than 50"),
    ):
        with soon(), refused("invalid_predicate", words):
            planned(lake, expression)
    with soon(), refused("invalid_predicate", "is not the name of a column"):
        planned(lake, comparison("`" * 300_001 + "x", integer=1))
