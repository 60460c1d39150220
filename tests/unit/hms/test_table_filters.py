"""Filters over tables."""

from __future__ import annotations

import pytest

from lakemark_core.errors import InvalidPredicate
from lakemark_hms.table_filters import TableFilter
from lakemark_thrift.ttypes import Table

TABLES = [
    Table(tableName="a", owner="ann", lastAccessTime=10, parameters={"k": "v", "table_type": "ICEBERG"}),
    Table(tableName="b", owner="bob", lastAccessTime=20, parameters={"k": "w", "x.y-z": "1", "k2": "it's"}),
    Table(tableName="c", owner=None, parameters=None),
]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "abc"),
        ('hive_filter_field_params__k = "v"', "a"),
        ('hive_filter_field_params__k != "v"', "b"),
        ('hive_filter_field_params__k <> "v"', "b"),
        ('not hive_filter_field_params__k = "v"', "b"),
        ('hive_filter_field_params__table_type like "ICE.*"', "a"),
        ('hive_filter_field_params__table_type like "ICE%"', "a"),
        ('hive_filter_field_params__x.y-z = "1"', "b"),
        ('hive_filter_field_params__k2 = "it\'s"', "b"),
        ("hive_filter_field_params__x.y-z = 1", "b"),
        ("not hive_filter_field_params__x.y-z = 1", ""),
        ("hive_filter_field_params__x.y-z > 1", ""),
        ("hive_filter_field_params__x.y-z in (0, 1) or hive_filter_field_owner__ = 2024-01-01", "b"),
        ("hive_filter_field_params__x.y-z between 10 and 2", ""),
        ("hive_filter_field_params__x.y-z between 0 and 2", "b"),
        ('hive_filter_field_owner__ = "ann"', "a"),
        ('hive_filter_field_owner__ like "b.*" or hive_filter_field_params__table_type = "ICEBERG"', "ab"),
        ('hive_filter_field_owner__ in ("ann", "bob") and hive_filter_field_last_access__ > 10', "b"),
        ("hive_filter_field_last_access__ between 0 and 10", "ac"),
        ("(hive_filter_field_last_access__ = 0 or hive_filter_field_last_access__ >= 20)", "bc"),
        ('hive_filter_field_params__K = "v"', ""),
        ('"hive_filter_field_params__k" = hive_filter_field_params__k', ""),
    ],
)
def test_tables_are_selected(text: str, names: str) -> None:
    assert "".join(TABLES[at].tableName or "" for at in TableFilter(text).chosen(TABLES)) == names


@pytest.mark.parametrize(
    "text",
    [
        "owner = 'ann'",
        "hive_filter_field_owner__ =",
        "((",
        "hive_filter_field_params__a = 'x' or hive_filter_field_params__A = 'x'",
    ],
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(InvalidPredicate):
        TableFilter(text)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(InvalidPredicate):
        TableFilter("hive_filter_field_last_access__ = 'soon'").chosen(TABLES)
