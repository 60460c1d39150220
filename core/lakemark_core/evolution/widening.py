"""Which types of a column may take the place of which others: those that hold every value of the old type, exactly.

docs/schemas.md has the table with reasons. The rules are those of Delta's type widening, which contain Iceberg's,
without a change of a decimal's scale.
"""

from __future__ import annotations

from typing import Final

from lakemark_core.types import (
    BIGINT,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTEGER_BITS,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    Char,
    Decimal,
    Type,
    Varchar,
    format_type,
    is_nested,
    is_textual,
)

_DIGITS: Final[dict[Type, int]] = {TINYINT: 3, SMALLINT: 5, INT: 10, BIGINT: 19}
# Floating-point numbers hold every integer up to 2 to the 24th (float) or the 53rd (double).
_EXACT_AS_FLOATING: Final[dict[Type, tuple[Type, ...]]] = {FLOAT: (TINYINT, SMALLINT), DOUBLE: (TINYINT, SMALLINT, INT)}


def why_not_widen(old: Type, new: Type) -> str:
    """Why a column of type ``old`` cannot become ``new``; "" if it can, or is it already."""
    if is_nested(old) or is_nested(new):
        return "the fields of a struct, list or map are changed one by one, by their own paths"
    if old == new:
        return ""
    if old in INTEGER_BITS:
        return _integer(old, new)
    if old == FLOAT and new == DOUBLE:
        return ""
    if isinstance(old, Decimal) and isinstance(new, Decimal):
        return _decimal(old, new)
    if old == DATE:
        return _date(new)
    if is_textual(old) and is_textual(new):
        return _text(old, new)
    return _not_lossless(old, new)


def keeps_text(old: Type, new: Type) -> bool:
    """Whether every value has the same text in both types, so that the names of partitions stay as they are."""
    if isinstance(old, Char):
        return False  # its values compare as if padded, the others' do not
    if old == DATE:
        return False
    if old in INTEGER_BITS and isinstance(new, Decimal):
        return new.scale == 0
    return True


def _not_lossless(old: Type, new: Type) -> str:
    return (
        f"a change from {format_type(old)} to {format_type(new)} is not lossless: values, their order or what readers "
        f"of older files see would differ; add a column of type {format_type(new)} and fill it instead"
    )


def _integer(old: Type, new: Type) -> str:
    if new in INTEGER_BITS:
        if INTEGER_BITS[new] < INTEGER_BITS[old]:
            return f"{format_type(new)} is narrower than {format_type(old)}"
        return ""
    if isinstance(new, Decimal):
        if new.precision - new.scale < _DIGITS[old]:
            return (
                f"{format_type(new)} has {new.precision - new.scale} digits before the point; "
                f"{format_type(old)} needs {_DIGITS[old]}"
            )
        return ""
    if new in (FLOAT, DOUBLE) and old not in _EXACT_AS_FLOATING[new]:
        return f"{format_type(new)} would round large values of {format_type(old)}"
    if new in (FLOAT, DOUBLE):
        return ""
    return _not_lossless(old, new)


def _decimal(old: Decimal, new: Decimal) -> str:
    if new.scale != old.scale:
        return f"the scale of a decimal stays as it is ({old.scale}); only the precision may grow"
    if new.precision < old.precision:
        return f"{format_type(new)} is narrower than {format_type(old)}"
    return ""


def _date(new: Type) -> str:
    if new == TIMESTAMP_NTZ:
        return ""
    if new == TIMESTAMP:
        return "which instant a date begins at depends on a time zone; use timestamp_ntz"
    return _not_lossless(DATE, new)


def _text(old: Type, new: Type) -> str:
    if new == STRING:
        return ""
    if isinstance(new, Char):
        return f"values of {format_type(new)} are padded to their length; use varchar or string"
    if not isinstance(old, Varchar | Char) or not isinstance(new, Varchar) or new.length < old.length:
        return f"{format_type(new)} is narrower than {format_type(old)}"
    return ""
