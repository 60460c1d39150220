"""The metastore's partition filters: how they are parsed (compared with Hive 2.3's parser), and what they select."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Sequence
from decimal import Decimal as Dec

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.errors import InvalidPredicate
from lakemark_core.expressions import to_sql
from lakemark_core.types import Field, parse_type, to_arrow
from lakemark_hms.filters import PartitionColumns, PartitionFilter, evaluate, parse_filter

VALUES = [
    ["x", "y", None, "xz", "a.b", 'a"b'],
    [1, 2, 3, None, -5, 6],
    [dt.date(2024, 1, 1), None, dt.date(2024, 1, 2), dt.date(2024, 1, 3), None, None],
    [Dec("1.50"), None, Dec("2.00"), None, None, None],
]


def partition_columns(declared: str, *values: Sequence[object]) -> PartitionColumns:
    """Columns such as ``p string, i int``, with the values of each."""
    fields = [Field(0, name, parse_type(kind)) for name, kind in (one.split() for one in declared.split(", "))]
    arrays = [pa.array(column, to_arrow(field.type)) for field, column in zip(fields, values, strict=True)]
    return PartitionColumns(fields, arrays)


COLUMNS = partition_columns("p string, i int, d date, m decimal(10,2)", *VALUES)


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        # What Spark 3.5 and 4 send.
        ('p = "x"', "p = 'x'"),
        ('p != "x"', "p != 'x'"),
        ("i > 1 and i <= 3", "i > 1 AND i <= 3"),
        ('(p = "x" or i = 3)', "p = 'x' OR i = 3"),
        ('dt >= "2024-01-01"', "dt >= '2024-01-01'"),
        ("p = 'a\"b'", "p = 'a\"b'"),
        ('p like "x.*"', "p LIKE 'x%'"),
        ('p like ".*y"', "p LIKE '%y'"),
        ('p like ".*x.*"', "p LIKE '%x%'"),
        ('(p) in ("x", "y")', "p IN ('x', 'y')"),
        ('(p) not in ("x", "y")', "NOT p IN ('x', 'y')"),
        ('p = "a\\b"', "p = 'a\\\\b'"),  # neither side unescapes
        # The rest of Hive's grammar.
        ("d = 2024-01-01", "d = DATE '2024-01-01'"),
        ("d = date '2024-01-01'", "d = DATE '2024-01-01'"),
        ('d = DATE "2024-01-01"', "d = DATE '2024-01-01'"),
        ("d = date 2024-01-01", "d = DATE '2024-01-01'"),
        ("1 < p", "p > 1"),
        ("'x' = p", "p = 'x'"),
        ("i = -5", "i = -5"),
        ("i=1.5", "i = 1.5D"),
        ("i == 1 AND p <> 'x' OR i != 2", "(i = 1 AND p != 'x') OR i != 2"),
        ("i between 1 and 3 and p = 'x'", "(i >= 1 AND i <= 3) AND p = 'x'"),
        ("i not between 1 and 3", "NOT (i >= 1 AND i <= 3)"),
        ("not (i = 1)", "NOT i = 1"),
        ("p not like 'x.*'", "p NOT LIKE 'x%'"),
        ("(struct(a,b)) in (struct(1,'x'), const struct(2,'y'))", "(a = 1 AND b = 'x') OR (a = 2 AND b = 'y')"),
        ("hive_filter_field_params__owner = 'me'", "hive_filter_field_params__owner = 'me'"),
        ("`odd name` = 1", "odd name = 1"),
        ("2x = 1", "2x = 1"),
        ("date = '2024-01-01'", "date = '2024-01-01'"),
        ("date = date '2024-01-01'", "date = DATE '2024-01-01'"),
        ("not = 1 and in in (1) and like like 'x'", "not = 1 AND in IN (1) AND like LIKE 'x'"),
        ("p like 'a.*b%_'", "p LIKE 'a%b\\\\%\\\\_'"),
        ("p like 'a.b%_'", "p LIKE 'a.b%_'"),
        ("p = '__HIVE_DEFAULT_PARTITION__'", "p IS NULL"),
        ("p != '__HIVE_DEFAULT_PARTITION__'", "p IS NOT NULL"),
        ("p in ('__HIVE_DEFAULT_PARTITION__', 'x')", "p IN ('x') OR p IS NULL"),
        ("  ", "TRUE"),
    ],
)
def test_forms(text: str, sql: str) -> None:
    assert to_sql(parse_filter(text)).replace("`", "") == sql


@pytest.mark.parametrize(
    "text",
    [
        "p",
        "p =",
        "p = 1 q",
        "(p = 1",
        "p = 'x",
        "p is null",
        "p = q",
        "1 = 1",
        "p < > 1",
        "upper(p) = 'x'",
        "p in ()",
        "p in ('x'",
        "p like 5",
        "p not = 1",
        "i between 1 or 2",
        "d = 2024-02-30",
        "i = 1.2.3",
        'p = "a\\"b"',  # Hive reads on, Spark means a backslash at the end
        'p = "a\\" or q = " or r = ""',
        "and",
        "(" * 200 + "p = 1" + ")" * 200,
        "not " * 200 + "p = 1",
        "p = '" + "x" * 4_000_001 + "'",
    ],
)
def test_what_is_no_filter(text: str) -> None:
    with pytest.raises(InvalidPredicate):
        parse_filter(text)


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ('p = "x"', [0]),
        ('P = "x"', [0]),
        ('p != "x"', [1, 3, 4, 5]),
        ('not (p = "x")', [1, 3, 4, 5]),
        ('p >= "x"', [0, 1, 3]),
        ('p like "x.*"', [0, 3]),
        ('p like ".*z"', [3]),
        ('p like ".*.*"', [0, 1, 3, 4, 5]),
        ('p like "a.b"', [4, 5]),
        ("p not like 'x.*'", [1, 4, 5]),
        ('(p) in ("x", "y")', [0, 1]),
        ('(p) not in ("x", "y")', [3, 4, 5]),
        ("i > 1 and i <= 3", [1, 2]),
        ("i = '2'", [1]),
        ("i < 1.5", [0, 4]),
        ("i not between 1 and 3", [4, 5]),
        ("i > 99999999999999999999", []),
        ('d >= "2024-01-02"', [2, 3]),
        ("d = 2024-01-01", [0]),
        ("m = 1.5", [0]),
        ("m >= 2", [2]),
        ("p = '__HIVE_DEFAULT_PARTITION__'", [2]),
        ("p = 3", [0, 1, 2, 3, 4, 5]),  # not decidable: all
        ("not (p = 3)", [0, 1, 2, 3, 4, 5]),
        ("p = 3 and i = 1", [0]),
        ("", [0, 1, 2, 3, 4, 5]),
    ],
)
@pytest.mark.parametrize("dictionary", [False, True])
def test_selected_partitions(text: str, selected: list[int], dictionary: bool) -> None:
    columns = COLUMNS
    if dictionary:
        texts: pa.StringArray = COLUMNS.values[0]  # type: ignore[assignment]
        columns = PartitionColumns(COLUMNS.fields, [texts.dictionary_encode(), *COLUMNS.values[1:]])
    assert np.flatnonzero(evaluate(parse_filter(text), columns, 6)).tolist() == selected


def test_no_partitions() -> None:
    assert evaluate(parse_filter("i > 1"), partition_columns("i int", []), 0).tolist() == []


def test_texts_compare_as_they_stand_whatever_their_declared_length() -> None:
    for declared in ("p string", "p varchar(3)", "p char(3)"):
        columns = partition_columns(declared, ["a", "b", None])
        assert evaluate(parse_filter("p = 'a'"), columns, 3).tolist() == [True, False, False]


def test_a_filter_knows_its_columns() -> None:
    selection = PartitionFilter("p = 'x' or (I > 1 and d is_no_filter)")
    assert (selection.selects_all, selection.mentions("p")) == (True, False)
    selection = PartitionFilter("p = 'x' or (I > 1)")
    assert [selection.mentions(name) for name in ("p", "i", "d")] == [True, True, False]


@pytest.mark.parametrize("text", ["z = 1", 'i = "abc"', 'd = "soon"'])
def test_what_does_not_fit_the_columns(text: str) -> None:
    with pytest.raises(InvalidPredicate):
        evaluate(parse_filter(text), COLUMNS, 6)


@given(
    st.lists(st.none() | st.text(), min_size=1, max_size=5),
    st.text(),
    st.sampled_from(["=", "startswith", "endswith", "contains"]),
)
def test_what_spark_sends_for_a_text_never_loses_a_partition(values: list[str | None], text: str, how: str) -> None:
    quote = '"' if '"' not in text else "'"
    if quote in text:
        return  # Spark sends no such filter
    pattern = {"=": text, "startswith": f"{text}.*", "endswith": f".*{text}", "contains": f".*{text}.*"}[how]
    try:
        parsed = parse_filter(f"p {'=' if how == '=' else 'like'} {quote}{pattern}{quote}")
    except InvalidPredicate:
        return  # the caller returns all partitions
    values = [*values, text, f"{text}é", f"b{text}"]
    found = evaluate(parsed, partition_columns("p string", values), len(values))
    for value, selected in zip(values, found, strict=True):
        wanted = (
            value is not None
            and {
                "=": value == text,
                "startswith": value.startswith(text),
                "endswith": value.endswith(text),
                "contains": text in value,
            }[how]
        )
        assert selected or not wanted
        if how == "=":
            assert selected == wanted or value is None


@given(st.text(alphabet="p=<>!()'\"\\ andorilkebtw123-.,`", max_size=40))
def test_garbage_is_refused_or_read(text: str) -> None:
    with contextlib.suppress(InvalidPredicate):
        parse_filter(text)
