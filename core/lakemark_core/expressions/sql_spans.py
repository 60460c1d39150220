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
    """``year(day) = 2026``; None if it is none of the functions whose value is a span of dates."""
    from sqlglot import exp

    literal = literal_of(constant)
    if literal is None:
        return None
    match function:
        case exp.Paren():
            return span(function.this, op, constant, whole)
        case exp.Year():
            column, number = column_of(as_date(function.this)), literal.value
            found = of_year(number) if type(number) is int else None
        case exp.DateTrunc(args={"unit": exp.Literal(is_string=True) as unit}):
            column, day = column_of(as_date(function.this)), _date(literal)
            found = None if day is None else of_trunc(unit.this, day)
        case _:
            inner = as_date(function)
            column, day = None if inner is function else column_of(inner), _date(literal)
            found = None if day is None else of_day(day)
    return None if column is None or found is None else Span(text_of(whole), (column,), op, *found)


def spans(node: exp.Expr) -> Expr | None:
    """``year(day) IN (2025, 2026)`` and BETWEEN."""
    from sqlglot import exp

    found: list[Span | None]
    match node:
        case exp.In() if not any(node.args.get(name) for name in ("query", "unnest", "field")):
            found = [span(node.this, "=", item, node) for item in node.expressions]
        case exp.Between() if not node.args.get("symmetric"):
            found = [span(node.this, ">=", node.args["low"], node), span(node.this, "<=", node.args["high"], node)]
        case _:
            return None
    terms = [one for one in found if one is not None]
    if not terms or len(terms) < len(found):
        return None
    return Or(tuple(terms)) if isinstance(node, exp.In) else And(tuple(terms))


def as_date(node: exp.Expr) -> exp.Expr:
    """What is made a date of by ``CAST(… AS DATE)``, ``to_date(…)`` or ``date(…)``; else ``node`` itself."""
    from sqlglot import exp

    to_date = isinstance(node, exp.TsOrDsToDate) and not node.args.get("format")
    cast = isinstance(node, exp.Cast) and type_of(node.args["to"]) == DATE
    inner: exp.Expr = node.this if to_date or cast else node
    return inner


def _date(literal: Literal) -> datetime.date | None:
    """A date, or a text that is one as dates are written."""
    value = literal.value
    if isinstance(value, str):
        try:
            found = datetime.date.fromisoformat(value)
        except ValueError:
            return None
        return found if value == found.isoformat() else None
    return value if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime) else None
