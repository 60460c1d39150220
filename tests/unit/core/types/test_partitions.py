"""Partition values as texts and paths. The expected results are those of Hive 2.3's FileUtils and Spark."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal as Dec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.errors import InvalidArgument
from lakemark_core.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DEFAULT_PARTITION,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    ColumnValue,
    Decimal,
    Type,
    Varchar,
    escape_path_name,
    parse_partition_name,
    partition_name,
    partition_value_from_string,
    partition_value_to_string,
    unescape_path_name,
)

# Asked of FileUtils.escapePathName in Hive 2.3.10, for every character below 300.
HIVE_ESCAPES = {*range(32), 34, 35, 37, 39, 42, 47, 58, 61, 63, 91, 92, 93, 94, 123, 127}


def test_the_escaped_characters_are_those_of_hive() -> None:
    assert {code for code in range(300) if escape_path_name(chr(code)) != chr(code)} == HIVE_ESCAPES
    assert escape_path_name(":\n") == "%3A%0A"
    assert escape_path_name("") == DEFAULT_PARTITION
    assert unescape_path_name("%zz%4") == "%zz%4"


@given(st.text(min_size=1))
def test_escaping_is_undone(text: str) -> None:
    assert unescape_path_name(escape_path_name(text)) == text


@given(st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1)), min_size=1, max_size=3))
def test_partition_names_are_read_back(pairs: list[tuple[str, str]]) -> None:
    name = partition_name([column for column, _ in pairs], [value for _, value in pairs])
    assert parse_partition_name(name) == pairs


def test_partition_names() -> None:
    assert partition_name(["month", "origin"], ["1", "J/K"]) == "month=1/origin=J%2FK"
    assert partition_name(["a", "b"], [None, ""]) == f"a={DEFAULT_PARTITION}/b={DEFAULT_PARTITION}"
    assert parse_partition_name("a=b=c/d=") == [("a", "b=c"), ("d", DEFAULT_PARTITION)]
    with pytest.raises(InvalidArgument, match="1 partition values for the 2"):
        partition_name(["a", "b"], ["x"])
    for bad in ("", "a", "a=1//b=2", "=1"):
        with pytest.raises(InvalidArgument, match="column=value"):
            parse_partition_name(bad)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, INT, DEFAULT_PARTITION),
        ("", STRING, DEFAULT_PARTITION),
        (True, BOOLEAN, "true"),
        (-5, INT, "-5"),
        (Dec("1.5"), Decimal(10, 2), "1.50"),
        (Dec("1E+3"), Decimal(10, 0), "1000"),
        ("x y", Varchar(5), "x y"),
        (b"ab", BINARY, "ab"),
        (dt.date(2013, 1, 31), DATE, "2013-01-31"),
        (dt.datetime(2013, 1, 31, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), TIMESTAMP, "2013-01-31 00:00:00"),
        (dt.datetime(2013, 1, 31, 12, 0, 0, 120_000), TIMESTAMP_NTZ, "2013-01-31 12:00:00.12"),
        (1.0, DOUBLE, "1.0"),
        (1e7, DOUBLE, "1.0E7"),
        (9999999.0, DOUBLE, "9999999.0"),
        (-1.25e-5, DOUBLE, "-1.25E-5"),
        (0.001, DOUBLE, "0.001"),
        (-0.0, DOUBLE, "-0.0"),
        (math.inf, DOUBLE, "Infinity"),
        (math.nan, DOUBLE, "NaN"),
    ],
)
def test_texts_of_values(value: ColumnValue, kind: Type, text: str) -> None:
    assert partition_value_to_string(value, kind) == text


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, INT),
        (128, TINYINT),
        (1, BOOLEAN),
        (1, STRING),
        (Dec("1.005"), Decimal(10, 2)),
        (Dec("1000"), Decimal(3, 0)),
        (Dec("NaN"), Decimal(3, 0)),
        (dt.datetime(2013, 1, 1), DATE),
        (dt.date(2013, 1, 1), TIMESTAMP),
        ("2013-01-01", DATE),
    ],
)
def test_values_of_another_type(value: ColumnValue, kind: Type) -> None:
    with pytest.raises(InvalidArgument):
        partition_value_to_string(value, kind)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        (DEFAULT_PARTITION, INT, None),
        ("007", BIGINT, 7),
        ("TRUE", BOOLEAN, True),
        ("1.5", Decimal(10, 2), Dec("1.50")),
        ("2013-1-5", DATE, dt.date(2013, 1, 5)),
        ("2013-01-31 12:00:00.5", TIMESTAMP, dt.datetime(2013, 1, 31, 12, 0, 0, 500_000, tzinfo=dt.UTC)),
        ("2013-01-31", TIMESTAMP_NTZ, dt.datetime(2013, 1, 31)),
        ("1.0E7", DOUBLE, 1e7),
        ("", STRING, ""),
    ],
)
def test_values_of_texts(text: str, kind: Type, value: ColumnValue) -> None:
    assert partition_value_from_string(text, kind) == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", INT),
        ("", INT),
        ("1.0", INT),
        ("1_000", INT),
        ("٣", INT),
        ("2147483648", INT),
        ("yes", BOOLEAN),
        ("x", Decimal(3, 0)),
        ("1.5", Decimal(3, 0)),
        ("2013-02-30", DATE),
        ("2013-01-31 25:00:00", TIMESTAMP),
    ],
)
def test_texts_that_are_no_values(text: str, kind: Type) -> None:
    with pytest.raises(InvalidArgument, match="is not a value of type"):
        partition_value_from_string(text, kind)


@given(
    st.one_of(
        st.tuples(st.dates(dt.date(1000, 1, 1)), st.just(DATE)),
        st.tuples(st.datetimes(dt.datetime(1000, 1, 1), timezones=st.just(dt.UTC)), st.just(TIMESTAMP)),
        st.tuples(st.datetimes(dt.datetime(1000, 1, 1)), st.just(TIMESTAMP_NTZ)),
        st.tuples(st.integers(-(1 << 63), (1 << 63) - 1), st.just(BIGINT)),
        st.tuples(
            st.decimals(allow_nan=False, allow_infinity=False, places=38, min_value=0, max_value=0.5),
            st.just(Decimal(38, 38)),
        ),
        st.tuples(st.floats(allow_nan=False), st.just(DOUBLE)),
        st.tuples(st.text(min_size=1), st.just(STRING)),
    )
)
def test_values_survive_their_texts(pair: tuple[ColumnValue, Type]) -> None:
    value, kind = pair
    assert partition_value_from_string(partition_value_to_string(value, kind), kind) == value
