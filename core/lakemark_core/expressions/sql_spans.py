"""Functions in Spark SQL whose value is a span of dates (``spans``)."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from lakemark_core.expressions.spans import of_day, of_trunc, of_year
from lakemark_core.expressions.sql_values import column_of, literal_of, text_of, type_of
from lakemark_core.expressions.tree import And, Expr, Literal, Operator, Or, Span
from lakemark_core.types import DATE

if TYPE_CHECKING:
    from sqlglot import exp


def span(function: exp.Expr, op: Operator, constant: exp.Expr, whole: exp.Expr) -> Span | None:
    """The span that ``year(day) = 2026`` is; None for a function whose values do not stand for spans of dates."""
    from sqlglot import exp

    literal = literal_of(constant)
    if literal is None:
        return None
    match function:
        case exp.Paren():
            return span(function.this, op, constant, whole)
        case exp.Year():
            column, number = column_of(as_date(function.this)), literal.value
            dates = of_year(number) if type(number) is int else None
        case exp.DateTrunc(args={"unit": exp.Literal(is_string=True) as unit}):
            column, day = column_of(as_date(function.this)), _date(literal)
            dates = None if day is None else of_trunc(unit.this, day)
        case _:
            inner = as_date(function)
            column, day = None if inner is function else column_of(inner), _date(literal)
            dates = None if day is None else of_day(day)
    return None if column is None or dates is None else Span(text_of(whole), (column,), op, *dates)


def spans(node: exp.Expr) -> Expr | None:
    """The same for ``year(day) IN (2025, 2026)`` and BETWEEN."""
    from sqlglot import exp

    members: list[Span | None]
    match node:
        case exp.In() if not any(node.args.get(name) for name in ("query", "unnest", "field")):
            members = [span(node.this, "=", item, node) for item in node.expressions]
        case exp.Between() if not node.args.get("symmetric"):
            members = [span(node.this, ">=", node.args["low"], node), span(node.this, "<=", node.args["high"], node)]
        case _:
            return None
    terms = [one for one in members if one is not None]
    if not terms or len(terms) < len(members):
        return None
    return Or(tuple(terms)) if isinstance(node, exp.In) else And(tuple(terms))


def as_date(node: exp.Expr) -> exp.Expr:
    """The argument of ``CAST(… AS DATE)``, ``to_date(…)`` or ``date(…)``; ``node`` itself if it is none of these."""
    from sqlglot import exp

    to_date = isinstance(node, exp.TsOrDsToDate) and not node.args.get("format")
    cast = isinstance(node, exp.Cast) and type_of(node.args["to"]) == DATE
    inner: exp.Expr = node.this if to_date or cast else node
    return inner


def _date(literal: Literal) -> datetime.date | None:
    """A date constant, or a text constant of the form ``2026-01-31``; None for anything else."""
    value = literal.value
    if isinstance(value, str):
        try:
            day = datetime.date.fromisoformat(value)
        except ValueError:
            return None
        return day if value == day.isoformat() else None
    return value if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime) else None
