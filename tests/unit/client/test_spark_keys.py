"""Keys of upserts: which columns can be keys, and the predicate that plans the files that may have them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from lakemark.errors import InvalidArgument, InvalidSchema
from lakemark.expressions import (
    TRUE,
    ColumnRef,
    Compare,
    Expr,
    Literal,
    LiteralValue,
    all_of,
    any_of,
    bind,
    normalize,
    parse_predicate,
    to_sql,
)
from lakemark.types import Field, Schema, assign_ids, parse_type
from lakemark_spark.keys import BOUND_LENGTH_MAX, bounds_of, key_fields, range_of

TYPES = {
    "b": "boolean",
    "id": "bigint",
    "i8": "tinyint",
    "f": "float",
    "d": "double",
    "n": "decimal(12,3)",
    "s": "string",
    "v": "varchar(9)",
    "c": "char(3)",
    "bin": "binary",
    "day": "date",
    "ts": "timestamp",
    "ntz": "timestamp_ntz",
    "arr": "array<int>",
    "st": "struct<a:int>",
    "p": "int",
    "q": "string",
}
SCHEMA, _ = assign_ids(Schema.build([Field(0, name, parse_type(text)) for name, text in TYPES.items()], ["p", "q"]))


def test_partition_columns_are_the_first_of_the_keys() -> None:
    found = key_fields(["ID", "q", "s", "P"], SCHEMA, ["p", "S", "id", "Q"], "db.t")

    assert [field.name for field in found] == ["q", "p", "id", "s"]
    assert key_fields("id", SCHEMA, ["id"], "db.t") == [SCHEMA.field("id")]


@pytest.mark.parametrize(
    ("keys", "error", "says"),
    [
        ([], InvalidArgument, "names no column"),
        (["id", "ID"], InvalidArgument, "names a column twice"),
        ("arr", InvalidArgument, "cannot be a key"),
        ("st", InvalidArgument, "cannot be a key"),
        ("id", InvalidArgument, "'id' is a key of db.t, and the DataFrame does not have it"),
        ("dey", InvalidSchema, "did you mean 'day'"),
    ],
)
def test_what_cannot_be_a_key(keys: str | list[str], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        key_fields(keys, SCHEMA, ["arr", "st"], "db.t")


DAYS = dt.timedelta(days=1)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

# What Spark gives of the least and the greatest value, and how a predicate says it.
BOUNDS: list[tuple[str, object, object, LiteralValue, LiteralValue]] = [
    ("id", -5, 7, -5, 7),
    ("i8", 1, 100, 1, 100),
    ("f", -0.5, float("inf"), -0.5, float("inf")),
    ("d", 1.0, float("nan"), 1.0, float("nan")),
    ("n", Decimal("-1.500"), Decimal("7.000"), Decimal("-1.500"), Decimal("7.000")),
    ("s", "it's", "é\\n`", "it's", "é\\n`"),
    ("s", "a" * 500, "b" * 500, "a" * BOUND_LENGTH_MAX, None),
    ("s", "a\ufffdz", "b\ufffd", "a", None),
    ("v", "a", "b", "a", "b"),
    ("c", "a  ", "b  ", "a  ", "b  "),
    ("bin", bytearray(b"\x00"), bytearray(b"\xff"), b"\x00", b"\xff"),
    ("bin", bytearray(b"\x01" * 500), bytearray(b"\xff" * 500), b"\x01" * BOUND_LENGTH_MAX, None),
    ("day", 10 * DAYS, 2_932_896 * DAYS, dt.date(1970, 1, 11), dt.date(9999, 12, 31)),
    ("day", -800_000 * DAYS, 2_932_897 * DAYS, None, None),
    ("ts", -1, 0, EPOCH - dt.timedelta(microseconds=1), EPOCH),
    ("ts", 0, 2**63 - 1, EPOCH, None),
    ("ntz", DAYS / 2, DAYS, dt.datetime(1970, 1, 1, 12), dt.datetime(1970, 1, 2)),
]


@pytest.mark.parametrize(("name", "low", "high", "first", "last"), BOUNDS)
def test_a_range_is_what_the_service_understands(
    name: str, low: object, high: object, first: LiteralValue, last: LiteralValue
) -> None:
    field = SCHEMA.field(name)
    expected: list[Expr] = []
    for op, value in ((">=", first), ("<=", last)):
        if value is not None:
            expected.append(Compare(op, ColumnRef((name,)), Literal(value, field.type)))  # type: ignore[arg-type]

    found = range_of({field: bounds_of(low, high, field)})

    assert repr(found) == repr(all_of(expected))
    assert understood(found) == repr(normalize(bind(found, SCHEMA)))


def test_a_single_value_and_a_boolean() -> None:
    both, one = range_of({SCHEMA.field("b"): (False, True)}), range_of({SCHEMA.field("b"): (True, True)})

    assert both == TRUE
    assert to_sql(one) == "`b` = TRUE"
    assert understood(one) == repr(normalize(bind(one, SCHEMA)))


def test_ranges_of_several_columns() -> None:
    ranges = any_of(
        range_of({SCHEMA.field("p"): (p, p), SCHEMA.field("id"): (low, low + 9)}) for p, low in ((1, 0), (2, 50))
    )

    assert to_sql(ranges) == "(`p` = 1 AND `id` >= 0 AND `id` <= 9) OR (`p` = 2 AND `id` >= 50 AND `id` <= 59)"
    assert to_sql(any_of([])) == "FALSE"


def understood(expr: Expr) -> str:
    """The predicate after a round trip through text, as the service reads it."""
    return repr(normalize(bind(parse_predicate(to_sql(expr)), SCHEMA)))
