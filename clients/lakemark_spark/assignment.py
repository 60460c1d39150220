"""Values as a table's columns take them: the rules of Spark's own INSERT (ANSI store assignment). Pure.

A type is assigned to another one if some of its values fit: numbers to numbers, dates and instants to one another,
everything atomic to text. A value that does not fit fails the job, whatever ``spark.sql.ansi.enabled`` says; digits
after the point that a column has no room for are rounded (decimals) or cut (integers). Nothing else is: a text never
becomes a number by itself.
"""

from __future__ import annotations

from typing import Final

from lakemark_core.evolution import why_not_widen
from lakemark_core.evolution.sql import quoted, type_sql
from lakemark_core.types import (
    DATE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Char,
    Decimal,
    ListOf,
    MapOf,
    Struct,
    Type,
    Varchar,
    format_type,
    is_floating,
    is_integer,
    is_nested,
    is_textual,
)

_TIMES: Final = (DATE, TIMESTAMP, TIMESTAMP_NTZ)


def misfits(given: Type, wanted: Type, name: str) -> list[str]:
    """Why values of one type are not assigned to column ``name`` of another, in words; [] if they are."""
    match wanted, given:
        case Struct(fields), Struct(others):
            # Fields are matched by position: names and order must agree.
            ours, theirs = [one.name.lower() for one in fields], [one.name.lower() for one in others]
            if ours != theirs:
                return [f"struct '{name}' has the fields {', '.join(theirs)}; the table has {', '.join(ours)}"]
            pairs = zip(fields, others, strict=True)
            return [text for a, b in pairs for text in misfits(b.type, a.type, f"{name}.{a.name}")]
        case ListOf(element), ListOf(other):
            return misfits(other, element, f"{name}.element")
        case MapOf(key, value), MapOf(other_key, other_value):
            return misfits(other_key, key, f"{name}.key") + misfits(other_value, value, f"{name}.value")
    if _is_assigned(given, wanted):
        return []
    advice = "; cast it yourself if that is what you want" if not is_nested(given) and not is_nested(wanted) else ""
    return [f"column '{name}' is {format_type(given)}; the table has {format_type(wanted)}{advice}"]


def assigned_sql(expression: str, given: Type, wanted: Type, name: str) -> str:
    """``expression`` as a value for column ``name``, in Spark SQL. The types have no ``misfits``.

    A value that does not fit fails the job with a message that has it.
    """
    return _value(expression, given, wanted, name, 0)


def _is_assigned(given: Type, wanted: Type) -> bool:
    if is_nested(given) or is_nested(wanted):
        return False
    if given == wanted or is_textual(wanted):
        return True
    return (_is_number(given) and _is_number(wanted)) or (given in _TIMES and wanted in _TIMES)


def _value(expression: str, given: Type, wanted: Type, name: str, depth: int) -> str:
    variable = f"lakemark_{depth}"
    if not _is_checked(given, wanted):
        return f"CAST({expression} AS {type_sql(wanted)})"
    match given, wanted:
        case Struct(others), Struct(fields):
            pairs = ", ".join(
                f"{_text(field.name)}, "
                + _value(f"{expression}.{quoted(other.name)}", other.type, field.type, f"{name}.{field.name}", depth)
                for other, field in zip(others, fields, strict=True)
            )
            return f"IF({expression} IS NULL, NULL, named_struct({pairs}))"
        case ListOf(other), ListOf(element):
            value = _value(variable, other, element, f"{name}.element", depth + 1)
            return f"transform({expression}, {variable} -> {value})"
        case MapOf(other_key, other_value), MapOf(key, value):
            keys = _value(variable, other_key, key, f"{name}.key", depth + 1)
            values = _value(variable, other_value, value, f"{name}.value", depth + 1)
            return (
                f"map_from_arrays(transform(map_keys({expression}), {variable} -> {keys}), "
                f"transform(map_values({expression}), {variable} -> {values}))"
            )
    if isinstance(wanted, Varchar | Char):
        return _of_length(f"CAST({expression} AS STRING)", wanted, name)
    cast = f"TRY_CAST({expression} AS {type_sql(wanted)})"
    told = _told(f"a value of column '{name}' does not fit into {format_type(wanted)}: ", expression)
    return f"CASE WHEN {expression} IS NULL OR {cast} IS NOT NULL THEN {cast} ELSE raise_error({told}) END"


def _is_checked(given: Type, wanted: Type) -> bool:
    """Whether a cast alone would lose a value in silence, or, depending on the session, fail without saying which."""
    match given, wanted:
        case Struct(others), Struct(fields):
            return any(_is_checked(other.type, field.type) for other, field in zip(others, fields, strict=True))
        case ListOf(other), ListOf(element):
            return _is_checked(other, element)
        case MapOf(other_key, other_value), MapOf(key, value):
            return _is_checked(other_key, key) or _is_checked(other_value, value)
    if isinstance(wanted, Varchar | Char):
        return True
    return _is_number(given) and not is_floating(wanted) and not is_textual(wanted) and not _widens(given, wanted)


def _widens(given: Type, wanted: Type) -> bool:
    """Whether every value of one type is one of the other."""
    if isinstance(given, Decimal) and isinstance(wanted, Decimal):
        # A file keeps its scale; a cast may add zeros.
        return wanted.scale >= given.scale and wanted.precision - wanted.scale >= given.precision - given.scale
    return not why_not_widen(given, wanted)


def _of_length(text: str, wanted: Varchar | Char, name: str) -> str:
    """Spaces at the end that are too many are cut, other characters fail the job; char(n) is padded."""
    length = wanted.length
    told = _told(f"a value of column '{name}' is longer than {format_type(wanted)}: ", text)
    checked = (
        f"CASE WHEN {text} IS NULL OR length({text}) <= {length} THEN {text} "
        f"WHEN length(rtrim({text})) <= {length} THEN substr({text}, 1, {length}) ELSE raise_error({told}) END"
    )
    return f"rpad({checked}, {length}, ' ')" if isinstance(wanted, Char) else checked


def _told(message: str, value: str) -> str:
    return f"concat({_text(message)}, {value})"


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _is_number(column_type: Type) -> bool:
    return is_integer(column_type) or is_floating(column_type) or isinstance(column_type, Decimal)
