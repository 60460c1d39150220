"""Functions of one column in Spark SQL, beside constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lakemark_core.expressions.calls import truncation
from lakemark_core.expressions.sql_spans import as_date, span, spans
from lakemark_core.expressions.sql_values import column_of, literal_of, text_of
from lakemark_core.expressions.tree import (
    MIRRORED,
    Applied,
    Call,
    ColumnRef,
    Compare,
    Expr,
    In,
    Literal,
    Operator,
    Step,
    StepName,
    between,
)
from lakemark_core.types import INT, TINYINT

if TYPE_CHECKING:
    from sqlglot import exp

_EXTRACTED: Final[dict[str, StepName]] = {
    "year": "year",
    "quarter": "quarter",
    "month": "month",
    "day": "day",
    "doy": "dayofyear",
    "hour": "hour",
    "minute": "minute",
}
_ARITHMETIC: Final[dict[str, tuple[StepName, StepName]]] = {
    "add": ("add", "add"),
    "sub": ("subtract", "subtract_from"),
    "mul": ("multiply", "multiply"),
}
"""By sqlglot's key: with the constant behind the sign, and before it."""


def applied(node: exp.Expr, op: Operator | None = None) -> Applied | None:
    """``month(day) = 3`` (``op``: its operator), ``x + 1 IN (…)``, ``year(at) BETWEEN … AND …``; None for others."""
    from sqlglot import exp

    if op is not None:
        return _comparison(node, op)
    match node:
        case exp.In() if node.expressions and not any(node.args.get(name) for name in ("query", "unnest", "field")):
            literals = _literals(node.expressions)
            return (
                None
                if literals is None
                else _applied(node, node.this, lambda column: In(column, literals), spans(node))
            )
        case exp.Between() if not node.args.get("symmetric"):
            ends = _literals([node.args["low"], node.args["high"]])
            if ends is None:
                return None
            low, high = ends
            return _applied(node, node.this, lambda column: between(column, low, high), spans(node))
    return None


def _literals(nodes: list[exp.Expr]) -> tuple[Literal, ...] | None:
    literals = [literal_of(node) for node in nodes]
    known = tuple(literal for literal in literals if literal is not None)
    return known if len(known) == len(literals) else None


def _comparison(node: exp.Expr, op: Operator) -> Applied | None:
    for one, way, other in ((node.this, op, node.expression), (node.expression, MIRRORED[op], node.this)):
        literal = literal_of(other)
        if literal is not None:
            compared = Compare(way, ColumnRef(()), literal)
            return _applied(
                node,
                one,
                lambda column, of=compared: Compare(of.op, column, of.literal),  # type: ignore[misc]
                span(one, way, other, node),
            )
    return None


def _applied(
    whole: exp.Expr, value: exp.Expr, condition: Callable[[ColumnRef], Expr], exact: Expr | None
) -> Applied | None:
    """``exact`` is the same condition as spans of dates."""
    found = call_of(value)
    if found is None or not found[1]:
        return None
    column, call = found
    return Applied(text_of(whole), (column,), call, condition(column), exact)


def call_of(node: exp.Expr) -> tuple[ColumnRef, Call] | None:
    """The column of a call and the steps that lead from its value to that of the call."""
    from sqlglot import exp

    column = column_of(node)
    if column is not None:
        return column, ()
    match node:
        case exp.Paren():
            return call_of(node.this)
        case exp.Year():
            return _step(node.this, Step("year"))
        case exp.Quarter():
            return _step(node.this, Step("quarter"))
        case exp.Month():
            return _step(node.this, Step("month"))
        case exp.Day() | exp.DayOfMonth():
            return _step(node.this, Step("day"))
        case exp.DayOfYear():
            return _step(node.this, Step("dayofyear"))
        case exp.Hour():
            return _step(node.this, Step("hour"))
        case exp.Minute():
            return _step(node.this, Step("minute"))
        case exp.Second():
            return _step(node.this, Step("second"))
        case exp.Extract():
            return _part(node.name, node.expression)
        case exp.Anonymous(this=str() as name, expressions=[exp.Literal(is_string=True) as unit, of]):
            return _part(unit.name, of) if name.lower() in ("date_part", "datepart") else None
        case exp.DateTrunc(args={"unit": exp.Literal(is_string=True) as unit}):
            return _step(node.this, truncation("trunc", unit.name))
        case exp.TimestampTrunc(args={"unit": exp.Var() as unit}) if not node.args.get("zone"):
            return _step(node.this, truncation("date_trunc", unit.name))
        case exp.TsOrDsAdd(args={"unit": exp.Var(this="DAY")}):
            days = literal_of(node.expression)
            return None if days is None else _days_after(node.this, days)
        case exp.Add() | exp.Sub() | exp.Mul():
            return _arithmetic(node)
        case exp.Neg():
            return _step(node.this, Step("subtract_from", constant=Literal(0, TINYINT)))
    inner = as_date(node)
    return None if inner is node else _step(inner, Step("date"))


def _step(of: exp.Expr, *steps: Step | None) -> tuple[ColumnRef, Call] | None:
    inner = call_of(of)
    known = tuple(step for step in steps if step is not None)
    return None if inner is None or len(known) < len(steps) else (inner[0], (*inner[1], *known))


def _part(name: str, of: exp.Expr) -> tuple[ColumnRef, Call] | None:
    step = _EXTRACTED.get(name.lower())
    return None if step is None else _step(of, Step(step))


def _days_after(of: exp.Expr, days: Literal) -> tuple[ColumnRef, Call] | None:
    return _step(of, Step("date"), Step("add", constant=days)) if days.type == INT else None


def _arithmetic(node: exp.Binary) -> tuple[ColumnRef, Call] | None:
    behind, before = _ARITHMETIC[node.key]
    for name, of, other in ((behind, node.this, node.expression), (before, node.expression, node.this)):
        constant = literal_of(other)
        if constant is not None:
            return _step(of, Step(name, constant=constant))
    return None
