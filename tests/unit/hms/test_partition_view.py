"""The partitions of a table as read methods see them."""

import pytest

from lakemark_core.errors import InvalidArgument, InvalidPredicate
from lakemark_hms.filters import PartitionFilter
from lakemark_hms.partition_view import PartitionView, limited
from lakemark_hms.wire.codec import decode_struct, encode_struct
from lakemark_hms.wire.cut import LIST, STRING
from lakemark_hms.wire.splice import string_value, struct, value_field
from lakemark_thrift import ttypes

NULL = "__HIVE_DEFAULT_PARTITION__"
ROWS = [("1", "a"), ("1", "b/c"), ("2", "a"), (NULL, "a"), ("2", "a")]


def view(types: tuple[str, str] = ("int", "string")) -> PartitionView:
    structs = [encode_struct(ttypes.Partition(values=list(row)))[:-1] for row in ROWS]
    ending = b"".join(value_field(STRING, 2, string_value("db"))) + b"\0"
    return PartitionView(["n", "s"], types, ROWS, structs, ending)


def test_names_are_escaped() -> None:
    assert view().names == ["n=1/s=a", "n=1/s=b%2Fc", "n=2/s=a", f"n={NULL}/s=a", "n=2/s=a"]


def test_values_need_not_be_unique() -> None:
    assert view().at(("2", "a")) == [2, 4]
    assert view().at(("9", "a")) == []


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [((), [0, 1, 2, 3, 4]), (("1",), [0, 1]), (("", "a"), [0, 2, 3, 4]), (("1", "a"), [0]), (("7",), [])],
)
def test_leading_values(wanted: tuple[str, ...], expected: list[int]) -> None:
    assert list(view().with_leading(wanted)) == expected


def test_more_values_than_columns_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="3 partition values for the 2"):
        view().with_leading(("1", "a", "x"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [0, 1, 2, 3, 4]),
        ("n = 1", [0, 1]),
        ("n > 1", [2, 4]),
        ('s = "a" and n < 2', [0]),
        ("N = 1 or S like 'b.*'", [0, 1]),
        ("nonsense ((", [0, 1, 2, 3, 4]),
    ],
)
def test_filters(text: str, expected: list[int]) -> None:
    assert list(view().matching(PartitionFilter(text))) == expected


def test_a_filter_by_another_column_is_refused() -> None:
    with pytest.raises(InvalidPredicate, match="'other', which is no partition column"):
        view().matching(PartitionFilter("n = 1 or other = 1"))


@pytest.mark.parametrize("text", ["nonsense ((", "n = 'x' or n = 1"])
def test_an_exact_filter_must_be_understood(text: str) -> None:
    with pytest.raises(InvalidPredicate):
        view().matching(PartitionFilter(text, exact=True))


def test_a_value_of_another_type_makes_every_filter_select_all() -> None:
    assert list(view(("int", "date")).matching(PartitionFilter("n = 1"))) == [0, 1, 2, 3, 4]


def test_the_encoded_list_holds_the_chosen_ones() -> None:
    for chosen, expected in (([4, 0], [["2", "a"], ["1", "a"]]), (None, [list(row) for row in ROWS]), ([], [])):
        field = value_field(LIST, 1, b"".join(view().list_value(chosen)))
        result = decode_struct(ttypes.PartitionsResponse, b"".join(struct(field)))
        assert [one.values for one in result.partitions or ()] == expected
        assert {one.dbName for one in result.partitions or ()} <= {"db"}


def test_limits() -> None:
    assert [list(limited(range(3), n)) for n in (-1, None, 0, 2, 9)] == [[0, 1, 2], [0, 1, 2], [], [0, 1], [0, 1, 2]]
