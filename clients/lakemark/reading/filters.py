"""Predicates as Arrow expressions that select exactly the rows that Spark would select."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakemark_core.errors import InvalidSchema, UnsupportedOperation
from lakemark_core.expressions import (
    LIKE_REGEX_CHARS_MAX,
    And,
    ColumnRef,
    Compare,
    Expr,
    FalseConst,
    In,
    IsNull,
    Like,
    Literal,
    Or,
    StartsWith,
    TrueConst,
    Unknown,
    like_regex,
    to_sql,
)
from lakemark_core.types import Schema, Type, is_floating, to_arrow

TERMS_MAX: Final = 1_000

# Expressions are Any here: pyarrow's stubs know only a part of what they can do.
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def to_arrow_filter(expr: Expr, schema: Schema) -> Any:
    """A ``pyarrow.compute.Expression`` over a table's columns, true for the rows for which the predicate is true.

    ``expr`` is bound to ``schema`` and normalized (``lakemark.expressions``). Raises UnsupportedOperation for what only
    an engine can evaluate.
    """
    match expr:
        case TrueConst():
            return pc.scalar(True)
        case FalseConst():
            return pc.scalar(False)
        case And(terms):
            return _joined(operator.and_, terms, schema)
        case Or(terms):
            return _joined(operator.or_, terms, schema)
        case Compare(op, column, literal):
            return _compare(op, _field(column, schema), column, literal)
        case In(column, literals, negated):
            return _among(_field(column, schema), column, literals, negated=negated)
        case IsNull(column, negated):
            field = _field(column, schema)
            return field.is_valid() if negated else field.is_null()
        case Like(column, pattern, negated):
            if len(pattern) > LIKE_REGEX_CHARS_MAX:
                raise UnsupportedOperation(
                    f"a LIKE pattern of {len(pattern)} characters needs an engine; at most {LIKE_REGEX_CHARS_MAX} are "
                    "evaluated here: read with Spark (lakemark_spark.read)"
                )
            return _matches(pc.match_substring_regex, _field(column, schema), like_regex(pattern), negated=negated)
        case StartsWith(column, prefix, negated):
            return _matches(pc.starts_with, _field(column, schema), prefix, negated=negated)
        case _:
            text = expr.text if isinstance(expr, Unknown) else to_sql(expr)
            raise UnsupportedOperation(
                f"'{text}' can only be evaluated by an engine: read the table with Spark (lakemark_spark.read), or "
                "leave that part out and filter the answer"
            )


def _joined(op: Callable[[Any, Any], Any], terms: Sequence[Expr], schema: Schema) -> Any:
    """Raises UnsupportedOperation for so many terms that Arrow, which walks them recursively, would end the process."""
    if len(terms) > TERMS_MAX:
        raise UnsupportedOperation(
            f"{len(terms)} conditions in one chain of AND or OR need an engine; at most {TERMS_MAX} are "
            "evaluated here: write IN (…) for many values of one column, or read with Spark (lakemark_spark.read)"
        )
    return functools.reduce(op, (to_arrow_filter(term, schema) for term in terms))


def _among(field: Any, column: ColumnRef, literals: Sequence[Literal], *, negated: bool) -> Any:
    column_type, values = _type_of(column), [literal.value for literal in literals]
    arrow_type = to_arrow(column_type)
    nan: Any = None
    if is_floating(column_type):
        field, arrow_type = field.cast(pa.float64()), pa.float64()
        nan = pc.is_nan(field) if any(isinstance(one, float) and math.isnan(one) for one in values) else None
        values += [-0.0, 0.0] if 0.0 in values else []  # Arrow's sets tell them apart
    member = field.isin(pa.array(values, arrow_type))
    member = member if nan is None else member | nan
    # A null is in no set, and not outside of it either.
    return ~member & field.is_valid() if negated else member & field.is_valid()


def _type_of(column: ColumnRef) -> Type:
    if column.type is None:
        raise InvalidSchema(f"column {column.name!r} is not bound to a schema")
    return column.type


def _compare(op: str, field: Any, column: ColumnRef, literal: Literal) -> Any:
    column_type = _type_of(column)
    if is_floating(column_type) and isinstance(literal.value, float):
        return _compare_floating(op, field.cast(pa.float64()), literal.value)
    value: Any = pa.scalar(literal.value, to_arrow(column_type))
    return _COMPARE[op](field, pc.scalar(value))


def _compare_floating(op: str, field: Any, value: float) -> Any:
    """Compares as Spark does, unlike Arrow: NaN equals itself and is greater than every other value."""
    nan = pc.is_nan(field)
    if math.isnan(value):
        always = field.is_valid() & (nan | ~nan)
        never = nan & ~nan
        return {"=": nan, "!=": ~nan, "<": ~nan, "<=": always, ">": never, ">=": nan}[op]
    plain = _COMPARE[op](field, pc.scalar(value))
    return plain | nan if op in ("!=", ">", ">=") else plain & ~nan


def _field(column: ColumnRef, schema: Schema) -> Any:
    """The column under the schema's spelling of its name: case matters to Arrow, and not to Spark."""
    fields = [schema.find_path(column.path[:length]) for length in range(1, len(column.path) + 1)]
    return pc.field(*(field.name for field in fields if field is not None))


def _matches(function: Callable[..., Any], field: Any, pattern: str, *, negated: bool) -> Any:
    matching = function(field, pattern)
    return ~matching if negated else matching
