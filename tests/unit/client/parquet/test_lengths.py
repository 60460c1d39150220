"""Which texts are too long for varchar(n) and char(n), compared with Python's own lengths."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.parquet.lengths import too_long
from lakemark_core.types import Field, parse_type, to_arrow


def problem(column_type: str, values: list[Any], *, after: int = 0) -> str | None:
    """The problem of a column; ``after``: of a slice of it that begins there."""
    field = Field(1, "c", parse_type(column_type))
    array = pa.array(values, to_arrow(field.type))
    return too_long(pa.chunked_array([array.slice(after)]), field)


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)), st.integers(1, 5))
def test_texts_are_counted_in_characters(values: list[str | None], length: int) -> None:
    longer = sum(len(value) > length for value in values if value is not None)
    for kind in ("varchar", "char"):
        found = problem(f"{kind}({length})", values)
        assert (found is not None) == (longer > 0)
        if found is not None:
            assert found.startswith(f"{longer} texts of column 'c' are longer than {kind}({length})")


@pytest.mark.parametrize(
    ("column_type", "fits", "longer"),
    [
        ("struct<a:varchar(2),b:string>", {"a": "xy", "b": "long"}, {"a": "xyz", "b": ""}),
        ("array<varchar(2)>", ["a", None, "bb"], ["a", "bbb"]),
        ("map<varchar(2),int>", [("ab", 1)], [("abc", 1)]),
        ("map<string,varchar(2)>", [("long", "ab")], [("a", "abc")]),
        ("array<struct<a:map<string,char(2)>>>", [{"a": [("x", "yy")]}], [{"a": [("x", "yyy")]}]),
    ],
)
def test_texts_within_other_values_are_counted_too(column_type: str, fits: Any, longer: Any) -> None:
    assert problem(column_type, [fits, None, fits]) is None
    assert "1 texts of column 'c' are longer than" in (problem(column_type, [fits, longer]) or "")
    assert problem(column_type, [longer, fits, None], after=1) is None
    assert problem(column_type, []) is None


def test_other_types_have_no_length() -> None:
    assert problem("string", ["x" * 1000]) is None
    assert problem("array<string>", [["x" * 1000]]) is None
