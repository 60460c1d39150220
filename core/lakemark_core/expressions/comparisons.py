"""A comparison of a column with a constant, made exact in the column's own type.

Spark brings both sides of a comparison to a common type. The statistics of files are in the column's type, so the
constant is brought to that type instead, and the operator is adjusted so that the same rows are selected:
``int_column > 1.5`` becomes ``int_column >= 2``. ``casts`` computes constants; this module decides what they mean
beside a column.

The answer is None, for Unknown, where the two forms cannot be proved to be the same: where a cast loses something, and
where Spark's ANSI mode and its old one differ. A constant that no version of Spark accepts raises InvalidPredicate.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable
from typing import TypeAlias

from lakemark_core.errors import InvalidArgument, InvalidPredicate
from lakemark_core.expressions.casts import (
    DECIMAL_DIGITS_MAX,
    EXACT,
    boolean_of_text,
    integer_of_text,
    is_plain_text,
    number_of_text,
    significant_digits,
    to_float32,
)
from lakemark_core.expressions.literals import parse_date, parse_local, parse_timestamp
from lakemark_core.expressions.render import literal_sql
from lakemark_core.expressions.tree import (
    NULL,
    And,
    ColumnRef,
    Compare,
    Expr,
    IsNull,
    Literal,
    LiteralValue,
    Operator,
    Or,
)
from lakemark_core.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER_BITS,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Char,
    Decimal,
    Type,
    ValueKind,
    format_type,
    is_floating,
    partition_value_to_string,
)

_DOUBLE_EXACT_INTEGERS = 1 << 53
_DOUBLE_EXACT_DIGITS = 15
_FLOAT_EXACT_BITS = 16

_Number: TypeAlias = int | float | decimal.Decimal
_Outcome: TypeAlias = tuple[Operator, LiteralValue] | bool | None
"""An operator and a value of the column's type; true or false for every value but null; None: not decidable here."""


def coerce_comparison(op: Operator, column: ColumnRef, column_type: Type, literal: Literal) -> Expr | None:
    """``column op literal`` in the column's type, or None if only the engine can decide it. The literal is not null."""
    outcome = _outcome(op, column, column_type, literal)
    if outcome is None:
        return None
    if isinstance(outcome, bool):
        return _unless_null(column, outcome) if op != "<=>" else _never_null(column, outcome)
    new_op, value = outcome
    # A float column is compared in double precision: its statistics widen without loss, the literal may not narrow.
    return Compare(new_op, column, Literal(value, DOUBLE if column_type == FLOAT else column_type))


def is_canonical_text(text: str, column_type: Type, value: LiteralValue) -> bool:
    """Whether a string equals the text of the value that it was parsed to.

    In an IN list, some modes of Spark compare the texts, others the values: for these strings both agree.
    """
    if isinstance(value, decimal.Decimal) and not is_plain_text(value):
        return False
    try:
        return partition_value_to_string(value, column_type) == text
    except InvalidArgument:
        return False


def _unless_null(column: ColumnRef, outcome: bool) -> Expr:
    return Or((IsNull(column, negated=True), NULL)) if outcome else And((IsNull(column), NULL))


def _never_null(column: ColumnRef, outcome: bool) -> Expr:
    # <=> with a value that the column cannot hold is false for null, too; it is never true for all values.
    return IsNull(column, negated=True) if outcome else And((IsNull(column), IsNull(column, negated=True)))


def _outcome(op: Operator, column: ColumnRef, column_type: Type, literal: Literal) -> _Outcome:
    value = literal.value
    match column_type.kind:
        case ValueKind.TEXT:
            # A char is padded when it is read, perhaps not where it was written.
            return (op, value) if isinstance(value, str) and not isinstance(column_type, Char) else None
        case ValueKind.BINARY:
            return (op, value) if isinstance(value, bytes) else None
        case ValueKind.BOOLEAN:
            return _boolean(op, column, literal)
        case ValueKind.DATE | ValueKind.TIMESTAMP | ValueKind.TIMESTAMP_NTZ:
            return _temporal(op, column, column_type, literal)
        case ValueKind.INTEGER | ValueKind.FLOATING | ValueKind.DECIMAL:
            return _numeric(op, column, column_type, literal)
        case None:
            raise _mismatch(column, column_type, literal, "; compare one of its fields")


def _numeric(op: Operator, column: ColumnRef, column_type: Type, literal: Literal) -> _Outcome:
    value = literal.value
    if isinstance(value, str):
        number = _number_from_text(column, column_type, literal, value)
    elif isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool):
        number = value
    else:
        raise _mismatch(column, column_type, literal)
    if number is None:
        return None
    if literal.type == FLOAT and INTEGER_BITS.get(column_type, 0) > _FLOAT_EXACT_BITS:
        return None  # Spark 3.5 casts the column to float, Spark 4 to double
    if is_floating(column_type):
        return _to_double(op, column_type, number)
    return _to_exact(op, column_type, number)


def _mismatch(column: ColumnRef, column_type: Type, literal: Literal, advice: str = "") -> InvalidPredicate:
    return InvalidPredicate(
        f"column '{column.name}' is of type {format_type(column_type)} and cannot be compared with "
        f"{literal_sql(literal)}{advice}",
        column=column.name,
    )


def _boolean(op: Operator, column: ColumnRef, literal: Literal) -> _Outcome:
    if isinstance(literal.value, bool):
        return op, literal.value
    if isinstance(literal.value, str):
        value = boolean_of_text(literal.value)
        if value is not None:
            return op, value
    raise _mismatch(column, BOOLEAN, literal)


def _temporal(op: Operator, column: ColumnRef, column_type: Type, literal: Literal) -> _Outcome:
    value = literal.value
    try:
        if isinstance(value, str):
            value = _PARSE[column_type](value)
    except InvalidPredicate as error:
        raise _mismatch(column, column_type, literal, f": {error.message}") from None
    if not isinstance(value, datetime.date):
        raise _mismatch(column, column_type, literal)
    if column_type == DATE:
        if not isinstance(value, datetime.datetime):
            return op, value
        if value.tzinfo is not None:
            return None  # a day begins at an instant that the engine's session zone decides
        exact = value.time() == datetime.time()
        return _on_grid(op, value.date(), exact=exact)
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    naive = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
    return op, naive.replace(tzinfo=datetime.UTC) if column_type == TIMESTAMP else naive


_PARSE: dict[Type, Callable[[str], datetime.date]] = {
    DATE: parse_date,
    TIMESTAMP: parse_timestamp,
    TIMESTAMP_NTZ: parse_local,
}


def _number_from_text(column: ColumnRef, column_type: Type, literal: Literal, text: str) -> _Number | None:
    number = number_of_text(text)
    if number is None:
        raise _mismatch(column, column_type, literal)
    if is_floating(column_type) or isinstance(column_type, Decimal):
        # A float column casts the text to float in one mode and to double in another; decimals become doubles in both.
        return None if column_type == FLOAT else number
    whole, limit = integer_of_text(text), 1 << (INTEGER_BITS[column_type] - 1)
    return whole if whole is not None and -limit <= whole < limit else None


def _to_double(op: Operator, column_type: Type, number: _Number) -> _Outcome:
    try:
        value = float(number)
    except OverflowError:
        return None
    if column_type == FLOAT and isinstance(number, int) and to_float32(number) != number:
        return None  # cast to float or to double, by Spark's mode
    return op, value


def _to_exact(op: Operator, column_type: Type, number: _Number) -> _Outcome:
    """A number against an integer or decimal column."""
    if isinstance(number, float):
        if math.isnan(number) or math.isinf(number):
            return _beyond(op, above=math.isnan(number) or number > 0)
        exact = _double_as_exact(column_type, number)
        if exact is None:
            return None
        number = exact
    precision, scale = (column_type.precision, column_type.scale) if isinstance(column_type, Decimal) else (19, 0)
    with decimal.localcontext(EXACT):
        value = decimal.Decimal(number)
        literal_scale = max(-int(value.as_tuple().exponent), 0)
        literal_digits = max(value.adjusted() + 1, 1)
        if max(precision - scale, literal_digits) + max(scale, literal_scale) > DECIMAL_DIGITS_MAX:
            return None  # Spark's common type would lose digits
        unit = decimal.Decimal(1).scaleb(-scale)
        floor = value.quantize(unit, rounding=decimal.ROUND_FLOOR)
        if isinstance(column_type, Decimal):
            limit = decimal.Decimal(10) ** (precision - scale)
            low, high = -limit + unit, limit - unit
        else:
            half = decimal.Decimal(1 << (INTEGER_BITS[column_type] - 1))
            low, high = -half, half - 1
        if value > high:
            return _beyond(op, above=True)
        if value < low:
            return _beyond(op, above=False)
        return _on_grid(op, floor if isinstance(column_type, Decimal) else int(floor), exact=floor == value)


def _double_as_exact(column_type: Type, number: float) -> _Number | None:
    """The number that compares with the column as the double does with the column cast to double, if there is one."""
    if not isinstance(column_type, Decimal):
        return decimal.Decimal(number) if abs(number) < _DOUBLE_EXACT_INTEGERS else None
    # Decimals of up to 15 digits keep their order as doubles; the shortest text of a double names the one it came from.
    shortest = decimal.Decimal(repr(number))
    if column_type.precision <= _DOUBLE_EXACT_DIGITS and significant_digits(shortest) <= _DOUBLE_EXACT_DIGITS:
        return shortest
    return None


def _beyond(op: Operator, *, above: bool) -> bool:
    """Every value of the column is below (``above``) or above the literal."""
    if op in ("=", "<=>"):
        return False
    if op == "!=":
        return True
    return (op in ("<", "<=")) == above


def _on_grid(op: Operator, floor: LiteralValue, *, exact: bool) -> _Outcome:
    """The operator with the highest value of the column's type that is not above the literal."""
    if exact:
        return op, floor
    moved: dict[Operator, tuple[Operator, LiteralValue] | bool] = {
        "=": False,
        "<=>": False,
        "!=": True,
        "<": ("<=", floor),
        "<=": ("<=", floor),
        ">": (">", floor),
        ">=": (">", floor),
    }
    return moved[op]
