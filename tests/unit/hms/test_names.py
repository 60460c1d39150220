"""Names and patterns of the Metastore protocol."""

import pytest

from lakemark_core.errors import InvalidName
from lakemark_hms.errors import NotGiven
from lakemark_hms.given import given_database, given_name
from lakemark_hms.names import beginning_of, database_name, database_pattern, matcher


@pytest.mark.parametrize(
    ("text", "catalog", "expected"),
    [
        ("Sales", None, ("hive", "sales")),
        ("sales", "Spark", ("spark", "sales")),
        ("@hive#Sales", None, ("hive", "sales")),
        ("@Other#sales", "ignored", ("other", "sales")),
        ("@hive#", None, ("hive", "")),
        ("@hive#!", None, ("hive", "")),
        (None, None, ("hive", "")),
    ],
)
def test_a_catalog_may_stand_before_a_database(
    text: str | None, catalog: str | None, expected: tuple[str, str]
) -> None:
    assert database_name(text, catalog) == expected


def test_an_at_sign_without_a_hash_is_no_name() -> None:
    with pytest.raises(InvalidName, match="@catalog#database"):
        database_name("@hive")


@pytest.mark.parametrize("text", [None, "@hive#", "@#"])
def test_null_is_no_name_of_a_database(text: str | None) -> None:
    with pytest.raises(NotGiven, match="name of the database is null"):
        given_database(text)


def test_an_empty_name_is_one() -> None:
    assert given_database("@hive#!") == ("hive", "")
    assert given_database("", "Spark") == ("spark", "")
    assert given_name("table", "") == ""
    with pytest.raises(NotGiven, match="name of the table is null"):
        given_name("table", None)


def test_patterns_may_have_a_catalog_too() -> None:
    assert database_pattern("a*") == ("hive", "a*")
    assert database_pattern("@x#a*") == ("x", "a*")
    assert database_pattern("@x#") == ("x", None)
    assert database_pattern(None) == ("hive", None)


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        (None, "anything", True),
        ("*", "anything", True),
        (".*", "anything", True),
        ("", "a", False),
        ("a*", "abc", True),
        ("a*", "bca", False),
        ("A|b", "a", True),
        ("a|b*", "bx", True),
        ("a|b", "ab", False),
        ("a.c", "abc", True),
        ("a[b]c", "abc", False),
        ("a+", "aa", False),
        ("t$1", "t$1", True),
    ],
)
def test_patterns(pattern: str | None, name: str, fits: bool) -> None:
    assert matcher(pattern)(name) is fits


@pytest.mark.parametrize(
    ("pattern", "beginning"),
    [
        (None, ""),
        ("", ""),
        ("*", ""),
        ("Orders_*", "orders_"),
        ("orders", "orders"),
        ("o.ders*", "o"),
        ("orders_a*|orders_b", "orders_"),
        ("orders|*", ""),
        ("orders|", ""),
        ("or\u00e4*", "or"),
        (" t* ", "t"),
    ],
)
def test_how_all_names_begin_that_fit(pattern: str | None, beginning: str) -> None:
    assert beginning_of(pattern) == beginning
