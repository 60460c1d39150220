"""Functions of one column that keep bounds: ``month(day)``, ``x + 1``, ``date_trunc(…)``.

A call is a chain of steps, the innermost first. This module knows which types a step accepts and which type it returns.
The service computes the bounds of a step's value (``file_index/pruning/calls.py``). A session's time zone decides which
day an instant lies on, so steps from instants are inexact by 18 hours, the most that a zone can differ from UTC.
"""

from __future__ import annotations

import decimal
import math
from typing import Final
from typing import Literal as OneOf

from lakemark_core.expressions.casts import DECIMAL_DIGITS_MAX
from lakemark_core.expressions.tree import Call, Literal, Step
from lakemark_core.types import (
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTEGER_BITS,
    SMALLINT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    Decimal,
    Primitive,
    Type,
)

_DATED: Final = (DATE, TIMESTAMP_NTZ, TIMESTAMP)
_PARTS_OF_DATE: Final = ("year", "quarter", "month", "day", "dayofyear")
_PARTS_OF_DAY: Final = ("hour", "minute", "second")
_TRUNC_UNITS: Final = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    "quarter": "quarter",
    **dict.fromkeys(("month", "mm", "mon"), "month"),
    "week": "week",
}
_DATE_TRUNC_UNITS: Final = {
    **_TRUNC_UNITS,
    **dict.fromkeys(("day", "dd"), "day"),
    "hour": "hour",
    "minute": "minute",
    "second": "second",
}


def truncation(name: OneOf["trunc", "date_trunc"], unit: str) -> Step | None:
    """The step that truncates to a unit; None for a unit that is not known here."""
    known = (_TRUNC_UNITS if name == "trunc" else _DATE_TRUNC_UNITS).get(unit.lower())
    return None if known is None else Step(name, known)


def call_type(call: Call, column_type: Type) -> Type | None:
    """The type of the call's value for a column of this type, None if bounds say nothing of it."""
    result: Type | None = column_type
    for step in call:
        if result is None:
            return None
        result = step_type(step, result)
    return result


def step_type(step: Step, of: Type) -> Type | None:
    """The type of one step's value; None as in ``call_type``."""
    if step.constant is not None:
        return _arithmetic_type(step, step.constant, of)
    if step.name in _PARTS_OF_DAY:
        return INT if of == TIMESTAMP_NTZ else None
    if of not in _DATED:
        return None
    return INT if step.name in _PARTS_OF_DATE else TIMESTAMP if step.name == "date_trunc" else DATE


def _arithmetic_type(step: Step, constant: Literal, of: Type) -> Type | None:
    value, kind = constant.value, constant.type
    if kind is None or isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        return None
    if of == DATE:
        return DATE if step.name in ("add", "subtract") and kind in (INT, SMALLINT, TINYINT) else None
    if of == DOUBLE or (kind == DOUBLE and (of == FLOAT or of in INTEGER_BITS)):
        number = float(value)
        # Zero times infinity is NaN, and so is the difference of infinities.
        return DOUBLE if math.isfinite(number) and (number or step.name != "multiply") else None
    if of in INTEGER_BITS and kind in INTEGER_BITS:
        return max(of, kind, key=lambda each: INTEGER_BITS[each])
    left, right = as_decimal_type(of), as_decimal_type(kind)
    return None if left is None or right is None else _decimal_result(step, left, right)


def as_decimal_type(kind: Type) -> Decimal | None:
    """The decimal type that Spark brings a number to beside a decimal; None for what is not an exact number."""
    if isinstance(kind, Decimal):
        return kind
    digits = kind.record.decimal_digits if isinstance(kind, Primitive) else 0
    return Decimal(digits, 0) if digits else None


def _decimal_result(step: Step, left: Decimal, right: Decimal) -> Decimal | None:
    """The type of the exact result; None if it has too many digits, and Spark rounds it or returns null."""
    if step.name == "multiply":
        precision, scale = left.precision + right.precision + 1, left.scale + right.scale
    else:
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
    return Decimal(precision, scale) if precision <= DECIMAL_DIGITS_MAX else None
