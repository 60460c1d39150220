"""Which types a column may change to: those that hold every value of its old type exactly.

docs/schemas.md has the table with reasons. The rules are those of Delta's type widening, which contain Iceberg's,
without a change of a decimal's scale.
"""

from __future__ import annotations

from lakemark_core.types import (
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER_BITS,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Char,
    Decimal,
    Primitive,
    Type,
    Varchar,
    format_type,
    is_floating,
    is_nested,
    is_textual,
)


def why_not_widen(old: Type, new: Type) -> str:
    """Why a column of type ``old`` cannot become ``new``; "" if it can, or if the two are the same."""
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
    limit = 1 << (INTEGER_BITS[old] - 1)
    if isinstance(new, Decimal):
        digits = len(str(limit))
        if new.precision - new.scale < digits:
            return (
                f"{format_type(new)} has {new.precision - new.scale} digits before the point; "
                f"{format_type(old)} needs {digits}"
            )
        return ""
    if isinstance(new, Primitive) and is_floating(new):
        # Floating-point numbers hold every integer up to 2 to the power of their significand's bits.
        if limit > 1 << new.record.significand_bits:
            return f"{format_type(new)} would round large values of {format_type(old)}"
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
