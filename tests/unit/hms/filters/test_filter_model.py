"""Filters of the whole grammar select what a simple model selects, partition by partition."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hypothesis import assume, given
from hypothesis import strategies as st

from lakemark_core.types import DEFAULT_PARTITION
from lakemark_hms.filters import PartitionFilter
from lakemark_hms.partition_view import PartitionView

Row = dict[str, Any]
Truth = bool | None  # None: unknown, as of a comparison with null


class Condition(NamedTuple):
    """A filter's text, and what it means."""

    text: str
    holds: Callable[[Row], Truth]


COLUMNS = {"n": "int", "s": "string", "v": "varchar(4)", "d": "date", "at": "timestamp", "m": "decimal(10,2)"}
TEXTS = ["a", "ab", "b", "a b", "x'y", 'x"y', "ä", "and", "%", "a_b", "10", "9"]
DAYS = [datetime.date(2023, 12, 31), datetime.date(2024, 1, 1), datetime.date(2024, 2, 29)]
TIMES = [datetime.datetime(2024, 1, 1, hour, 30) for hour in (0, 1, 23)]
AMOUNTS = [decimal.Decimal(text) for text in ("-2.25", "0.10", "0.30", "1.50", "9", "10.00")]
VALUES: dict[str, Sequence[Any]] = {
    "n": range(-3, 12), "s": TEXTS, "v": TEXTS, "d": DAYS, "at": TIMES, "m": AMOUNTS,
}  # fmt: skip
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}

rows = st.lists(
    st.fixed_dictionaries({name: st.none() | st.sampled_from(values) for name, values in VALUES.items()}), max_size=12
)


def quoted(text: str) -> str:
    return f"'{text}'" if "'" not in text else f'"{text}"'


def forms(value: Any) -> list[str]:
    """How a literal can be written."""
    if isinstance(value, datetime.datetime):
        return [str(value), f"timestamp '{value}'", f"'{value}'"]
    if isinstance(value, datetime.date):
        return [str(value), f"DATE '{value}'", f"'{value}'"]
    if isinstance(value, decimal.Decimal):
        return [str(value), f"{value.normalize():f}", f"'{value}'"]
    return [str(value)] if isinstance(value, int) else [quoted(value)]


@st.composite
def literals(draw: st.DrawFn, column: str) -> tuple[str, Any]:
    value = draw(st.sampled_from(VALUES[column]))
    return draw(st.sampled_from(forms(value))), value


names = st.sampled_from(list(COLUMNS))
spellings = st.sampled_from([str.lower, str.upper, lambda name: f"`{name}`"])


def compared(column: str, holds: Callable[[Any], bool]) -> Callable[[Row], Truth]:
    return lambda row: None if row[column] is None else holds(row[column])


def negated(truth: Truth) -> Truth:
    return None if truth is None else not truth


@st.composite
def comparisons(draw: st.DrawFn) -> Condition:
    column, sign = draw(names), draw(st.sampled_from(list(OPERATORS)))
    text, value = draw(literals(column))
    name = draw(spellings)(column)
    if draw(st.booleans()):
        return Condition(f"{name} {sign} {text}", compared(column, lambda own: OPERATORS[sign](own, value)))
    return Condition(f"{text}{sign}{name}", compared(column, lambda own: OPERATORS[sign](value, own)))


@st.composite
def betweens(draw: st.DrawFn) -> Condition:
    column = draw(names)
    (low, least), (high, most) = draw(literals(column)), draw(literals(column))
    word = draw(st.sampled_from(["between", "NOT BETWEEN"]))
    holds = compared(column, lambda own: least <= own <= most)
    text = f"{column} {word} {low} AND {high}"
    return Condition(text, holds if word == "between" else lambda row: negated(holds(row)))


@st.composite
def memberships(draw: st.DrawFn) -> Condition:
    column = draw(names)
    members = draw(st.lists(literals(column), min_size=1, max_size=4))
    # A list of numbers and texts is no filter of Hive, and selects everything here.
    assume(len({text[0] in "'\"" for text, _ in members}) == 1)
    word = draw(st.sampled_from(["in", "NOT IN"]))
    wanted = [value for _, value in members]
    holds = compared(column, lambda own: own in wanted)
    text = f"({column}) {word} ({', '.join(text for text, _ in members)})"
    return Condition(text, holds if word == "in" else lambda row: negated(holds(row)))


@st.composite
def memberships_of_several(draw: st.DrawFn) -> Condition:
    columns = draw(st.lists(names, min_size=2, max_size=3, unique=True))
    structs = draw(st.lists(st.tuples(*(literals(column) for column in columns)), min_size=1, max_size=3))
    listed = ", ".join(f"const struct({', '.join(text for text, _ in struct)})" for struct in structs)

    def holds(row: Row) -> Truth:
        each = [
            every(
                compared(column, lambda own, value=value: own == value)(row)  # type: ignore[misc]
                for column, (_, value) in zip(columns, struct, strict=True)
            )
            for struct in structs
        ]
        return negated(every(negated(one) for one in each))

    return Condition(f"(struct({', '.join(columns)})) IN ({listed})", holds)


@st.composite
def likes(draw: st.DrawFn) -> Condition:
    """With the wildcards of the Metastore, ``.*`` and ``.``, or of SQL, ``%`` and ``_``."""
    pieces = st.lists(st.sampled_from(["a", "b", " ", "ä"]), max_size=2).map("".join)
    any_text, one = draw(st.sampled_from([(".*", "."), ("%", "_")]))
    parts = [draw(pieces), any_text, draw(pieces), draw(st.sampled_from(["", one])), draw(pieces)]
    pattern = "".join({any_text: ".*", one: "."}.get(part) or re.escape(part) for part in parts)
    return Condition(
        f"s like {quoted(''.join(parts))}",
        compared("s", lambda own: re.fullmatch(pattern, own, re.DOTALL) is not None),
    )


def every(truths: Any) -> Truth:
    known = list(truths)
    return False if False in known else None if None in known else True


leaves = comparisons() | betweens() | memberships() | memberships_of_several() | likes()


def nested(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    several = st.lists(inner, min_size=2, max_size=3)

    def both(terms: list[Condition]) -> Condition:
        text = " and ".join(f"({term.text})" for term in terms)
        return Condition(text, lambda row: every(term.holds(row) for term in terms))

    def either(terms: list[Condition]) -> Condition:
        text = "(" + " OR ".join(f"({term.text})" for term in terms) + ")"
        return Condition(text, lambda row: negated(every(negated(term.holds(row)) for term in terms)))

    def opposite(term: Condition) -> Condition:
        return Condition(f"not ({term.text})", lambda row: negated(term.holds(row)))

    return several.map(both) | several.map(either) | inner.map(opposite)


conditions = st.recursive(leaves, nested, max_leaves=6)


@given(rows, conditions)
def test_a_filter_selects_what_the_model_selects(partitions: list[Row], condition: Condition) -> None:
    values = [
        tuple(DEFAULT_PARTITION if row[name] is None else str(row[name]) for name in COLUMNS) for row in partitions
    ]
    view = PartitionView(list(COLUMNS), list(COLUMNS.values()), values, [b""] * len(values))
    expected = [at for at, row in enumerate(partitions) if condition.holds(row)]
    assert list(view.matching(PartitionFilter(condition.text, exact=True))) == expected, condition.text
