"""Functions of a date whose value stands for a span of dates: ``year(day) = 2026`` are the dates of that year.

The session's time zone decides which day an instant lies on, so this holds for dates and wall-clock times only.
"""

from __future__ import annotations

import datetime
from typing import Final

from lakemark_core.expressions.tree import (
    ColumnRef,
    Compare,
    Expr,
    IsNull,
    Literal,
    Operator,
    Span,
    Unknown,
    all_of,
    any_of,
)
from lakemark_core.types import DATE, TIMESTAMP_NTZ, Type

_YEAR_MAX: Final = datetime.MAXYEAR - 1
_MONTHS: Final = {"year": 12, "yyyy": 12, "yy": 12, "quarter": 3, "month": 1, "mm": 1, "mon": 1}
"""Of the spans that Spark's ``trunc`` knows under these names."""


def of_year(year: int) -> tuple[datetime.date, datetime.date] | None:
    """The first date of the year and of the next one; None for years that dates do not have."""
    if not 1 <= year <= _YEAR_MAX:
        return None
    return datetime.date(year, 1, 1), datetime.date(year + 1, 1, 1)


def of_day(day: datetime.date) -> tuple[datetime.date, datetime.date] | None:
    return None if day == datetime.date.max else (day, day + datetime.timedelta(days=1))


def of_trunc(unit: str, first: datetime.date) -> tuple[datetime.date, datetime.date] | None:
    """The first date of the unit and of the next one; None if no unit begins with this date."""
    months = _MONTHS.get(unit.lower())
    if months is None or first.day != 1 or (first.month - 1) % months or first.year > _YEAR_MAX:
        return None
    behind = first.year * 12 + first.month - 1 + months
    return first, datetime.date(behind // 12, behind % 12 + 1, 1)


def bound(span: Span, column: ColumnRef, column_type: Type) -> Expr:
    """The span as comparisons with a column of this type; Unknown if the type is neither date nor timestamp_ntz."""
    if column_type == DATE:
        low, high = Literal(span.low, DATE), Literal(span.high, DATE)
    elif column_type == TIMESTAMP_NTZ:
        low, high = (
            Literal(datetime.datetime.combine(day, datetime.time()), TIMESTAMP_NTZ) for day in (span.low, span.high)
        )
    else:
        return Unknown(span.text, (column,))

    def compared(op: Operator, end: Literal) -> Expr:
        return Compare(op, column, end)

    match span.op:
        case "=":
            return all_of((compared(">=", low), compared("<", high)))
        case "<=>":
            return all_of((IsNull(column, negated=True), compared(">=", low), compared("<", high)))
        case "!=":
            return any_of((compared("<", low), compared(">=", high)))
        case "<" | ">=":
            return compared(span.op, low)
        case "<=":
            return compared("<", high)
        case ">":
            return compared(">=", high)
