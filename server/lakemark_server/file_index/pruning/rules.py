"""Which files may have rows that a predicate selects, and which have no other rows. All files at once, from statistics.

Sound in both directions, whatever statistics are missing: a file with a matching row always may match, and a file whose
rows are all said to match has no other row. Nulls never satisfy a comparison. NaN is greater than every number and
equal to itself, and lies outside the bounds. Two verdicts for each file are the idea of min/max indexes (small
materialized aggregates, Moerkotte 1998).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark_core.expressions import (
    LIKE_REGEX_CHARS_MAX,
    And,
    Applied,
    ColumnRef,
    Compare,
    Expr,
    FalseConst,
    In,
    IsNull,
    Like,
    Literal,
    LiteralValue,
    Operator,
    Or,
    PatternKind,
    StartsWith,
    TrueConst,
    like_prefix,
    like_regex,
    normalize,
)
from lakemark_server.file_index.arrow import AnyArray
from lakemark_server.file_index.entries.bounds import Bound, Mask, Order, both, either, filled, flags
from lakemark_server.file_index.entries.file_stats import FileStats, PreparedColumn, PreparedStats, prepare
from lakemark_server.file_index.pruning.calls import call_bounds


@dataclass(frozen=True, slots=True)
class PruneResult:
    """For each file: whether any row may satisfy the predicate, and whether every row surely does (false for empty
    files)."""

    may_match: npt.NDArray[np.bool_]
    all_match: npt.NDArray[np.bool_]


@dataclass(slots=True)
class _Verdict:
    """``all`` is computed on demand: nobody asks where no file may match."""

    may: Mask
    all: Callable[[], Mask]


def _yes() -> Mask:
    return np.True_


def _no() -> Mask:
    return np.False_


_UNDECIDED = _Verdict(np.True_, _no)
_NEVER = _Verdict(np.False_, _no)


def prune(expr: Expr, stats: FileStats | PreparedStats) -> PruneResult:
    """The verdicts on a predicate from ``lakemark_core.expressions.bind``. For many calls pass ``prepare(stats)``."""
    prepared = stats if isinstance(stats, PreparedStats) else prepare(stats)
    return prune_normal(normalize(expr), prepared)


def prune_normal(expr: Expr, prepared: PreparedStats) -> PruneResult:
    """Like ``prune``, for a predicate from ``normalize``."""
    verdict = _verdict(expr, prepared)
    may = both(verdict.may, prepared.not_empty)
    sure = both(verdict.all(), may) if may.any() else np.False_
    return PruneResult(_spread(may, prepared.size), _spread(sure, prepared.size))


def _spread(mask: Mask, size: int) -> npt.NDArray[np.bool_]:
    return mask if isinstance(mask, np.ndarray) else np.full(size, mask, dtype=np.bool_)


def _verdict(expr: Expr, stats: PreparedStats) -> _Verdict:
    match expr:
        case And(terms):
            return _all_of(terms, stats)
        case Or(terms):
            return _any_of([_verdict(term, stats) for term in terms])
        case TrueConst():
            return _Verdict(np.True_, _yes)
        case FalseConst():
            return _NEVER
        case Compare() | In() | IsNull() | Like() | StartsWith():
            column = _column(expr.column, stats)
            return _UNDECIDED if column is None else _leaf(expr, column)
        case Applied():
            return _call(expr, stats)
        case _:
            return _UNDECIDED


def _call(expr: Applied, stats: PreparedStats) -> _Verdict:
    (column,) = expr.columns
    if expr.condition is None or column.type is None:
        return _UNDECIDED
    value = stats.applied(column.id, partial(call_bounds, expr.call, column.type))
    return _UNDECIDED if value is None else _of_value(expr.condition, value)


def _of_value(condition: Expr, value: PreparedColumn) -> _Verdict:
    """The verdict on a condition about one value only."""
    match condition:
        case And(terms):
            verdicts = [_of_value(term, value) for term in terms]
            return _Verdict(
                both(*(verdict.may for verdict in verdicts)), lambda: both(*(verdict.all() for verdict in verdicts))
            )
        case Or(terms):
            return _any_of([_of_value(term, value) for term in terms])
        case TrueConst():
            return _Verdict(np.True_, _yes)
        case FalseConst():
            return _NEVER
        case Compare() | In() | IsNull():
            return _leaf(condition, value)
        case _:
            return _UNDECIDED


def _all_of(terms: Sequence[Expr], stats: PreparedStats) -> _Verdict:
    """The verdict on all terms. Once no file is left, columns of further terms are not read."""
    may: Mask = np.True_
    verdicts = []
    for term in terms:
        verdicts.append(_verdict(term, stats))
        may = both(may, verdicts[-1].may)
        if not may.any():
            return _NEVER
    return _Verdict(may, lambda: both(*(verdict.all() for verdict in verdicts)))


def _any_of(verdicts: Sequence[_Verdict]) -> _Verdict:
    return _Verdict(
        either(*(verdict.may for verdict in verdicts)), lambda: either(*(verdict.all() for verdict in verdicts))
    )


def _column(column: ColumnRef, stats: PreparedStats) -> PreparedColumn | None:
    if column.id == 0:
        raise ValueError(f"column '{column.name}' is not bound to a schema")
    return stats.column(column.id)


def _leaf(expr: Compare | In | IsNull | Like | StartsWith, column: PreparedColumn) -> _Verdict:
    match expr:
        case IsNull(_, negated):
            return _null_test(column, negated=negated)
        case Compare(op, _, literal):
            return _comparison(op, literal.value, column)
        case In(_, literals, negated):
            return _membership(literals, column, negated=negated)
        case StartsWith(_, prefix, negated):
            return _prefix(prefix, column, negated=negated)
        case Like(_, pattern, negated):
            return _pattern(pattern, column, negated=negated)


def _null_test(column: PreparedColumn, *, negated: bool) -> _Verdict:
    if negated:
        return _Verdict(~column.all_null, lambda: column.no_nulls)
    return _Verdict(~column.no_nulls, lambda: column.all_null)


def _sure(bound: Bound | None, order: Order, value: LiteralValue) -> Mask:
    return np.False_ if bound is None else bound.compare(order, value)


def _comparable(column: PreparedColumn, values: Sequence[LiteralValue]) -> bool:
    bounds = [bound for bound in (column.low, column.high) if bound is not None]
    return all(bound.accepts(value) for bound in bounds for value in values)


def _comparison(op: Operator, value: LiteralValue, column: PreparedColumn) -> _Verdict:
    """Verdicts over the two kinds of values in a file: numbers between the bounds, and NaN."""
    if isinstance(value, float) and math.isnan(value):
        return _comparison_with_nan(op, column)
    some = ~column.all_null
    if not _comparable(column, (value,)):
        return _Verdict(some, _no)
    low, high, full = column.low, column.high, column.no_nulls
    some_nan = both(some, column.may_nan)
    some_number, no_nan = both(some, ~column.all_nan), ~column.may_nan
    match op:
        case "<":
            may = both(some_number, ~_sure(low, ">=", value))
            return _Verdict(may, lambda: both(full, no_nan, _sure(high, "<", value)))
        case "<=":
            may = both(some_number, ~_sure(low, ">", value))
            return _Verdict(may, lambda: both(full, no_nan, _sure(high, "<=", value)))
        case ">":
            may = either(both(some_number, ~_sure(high, "<=", value)), some_nan)
            return _Verdict(may, lambda: both(full, either(_sure(low, ">", value), column.all_nan)))
        case ">=":
            may = either(both(some_number, ~_sure(high, "<", value)), some_nan)
            return _Verdict(may, lambda: both(full, either(_sure(low, ">=", value), column.all_nan)))

    def outside() -> Mask:
        return either(_sure(low, ">", value), _sure(high, "<", value))

    def only() -> Mask:
        return both(_sure(low, ">=", value), _sure(high, "<=", value))

    if op == "!=":
        may = either(both(some_number, ~only()), some_nan)
        return _Verdict(may, lambda: both(full, either(outside(), column.all_nan)))
    return _Verdict(both(some_number, ~outside()), lambda: both(full, no_nan, only()))


def _comparison_with_nan(op: Operator, column: PreparedColumn) -> _Verdict:
    some = ~column.all_null
    is_nan = _Verdict(both(some, column.may_nan), lambda: both(column.no_nulls, column.all_nan))
    is_number = _Verdict(both(some, ~column.all_nan), lambda: both(column.no_nulls, ~column.may_nan))
    match op:
        case "=" | ">=" | "<=>":
            return is_nan
        case "!=" | "<":
            return is_number
        case "<=":
            return _Verdict(some, lambda: column.no_nulls)
        case ">":
            return _NEVER


def _membership(literals: tuple[Literal, ...], column: PreparedColumn, *, negated: bool) -> _Verdict:
    values = [literal.value for literal in literals]
    numbers = [value for value in values if not (isinstance(value, float) and math.isnan(value))]
    nan_listed = np.bool_(len(numbers) < len(values))
    some, full, low, high = ~column.all_null, column.no_nulls, column.low, column.high
    if low is None or high is None or not _comparable(column, numbers):
        return _Verdict(some, _no)
    reached = low.reaches(numbers, high) if numbers else np.False_

    def single() -> Mask:
        return both(low.equals(high), reached)

    some_number, no_nan = both(some, ~column.all_nan), ~column.may_nan
    if negated:
        may = either(both(some_number, ~single()), both(some, column.may_nan, ~nan_listed))
        return _Verdict(may, lambda: both(full, either(~reached, column.all_nan), either(no_nan, ~nan_listed)))
    may = either(both(some_number, reached), both(some, column.may_nan, nan_listed))
    return _Verdict(may, lambda: both(full, either(single(), column.all_nan), either(no_nan, nan_listed)))


def _prefix(prefix: str, column: PreparedColumn, *, negated: bool) -> _Verdict:
    some, full = ~column.all_null, column.no_nulls
    if not prefix:
        return _NEVER if negated else _Verdict(some, lambda: full)
    first = prefix.encode("utf-8", "surrogatepass")
    if not _comparable(column, (first,)):
        return _Verdict(some, _no)
    # UTF-8 has no byte 0xFF, so the last byte can be incremented: an upper bound of all strings with the prefix.
    behind = first[:-1] + bytes((first[-1] + 1,))

    def outside() -> Mask:
        return either(_sure(column.high, "<", first), _sure(column.low, ">=", behind))

    def inside() -> Mask:
        return both(_sure(column.low, ">=", first), _sure(column.high, "<", behind))

    if negated:
        return _Verdict(both(some, ~inside()), lambda: both(full, outside()))
    return _Verdict(both(some, ~outside()), lambda: both(full, inside()))


def _pattern(pattern: str, column: PreparedColumn, *, negated: bool) -> _Verdict:
    known = like_prefix(pattern)
    if known.kind is PatternKind.EXACT:
        return _comparison("!=" if negated else "=", known.prefix, column)
    if known.kind is PatternKind.PREFIX:
        return _prefix(known.prefix, column, negated=negated)
    some, full = ~column.all_null, column.no_nulls
    searched = len(pattern) <= LIKE_REGEX_CHARS_MAX  # of a longer one only the prefix is looked at
    if searched and column.exact is not None and pa.types.is_string(_plain_type(column.exact)):
        matched = _matches(column.exact, pattern)
        matched = ~matched if negated else matched
        return _Verdict(both(some, matched), lambda: both(full, matched))
    with_prefix = _prefix(known.prefix, column, negated=False)
    if negated:
        return _Verdict(some, lambda: both(full, ~with_prefix.may))
    return _Verdict(with_prefix.may, _no)


def _plain_type(array: AnyArray) -> pa.DataType:
    kind: pa.DataType = array.type.value_type if isinstance(array.type, pa.DictionaryType) else array.type
    return kind


def _matches(values: AnyArray, pattern: str) -> Mask:
    if isinstance(values, pa.DictionaryArray):
        if not len(values.dictionary):
            return np.False_
        codes = filled(values.indices, 0).to_numpy(zero_copy_only=False)
        return np.asarray(np.asarray(_matches(values.dictionary, pattern))[codes], dtype=np.bool_)
    return flags(pc.match_substring_regex(values, like_regex(pattern)))
