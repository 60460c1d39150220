"""Predicates as Spark SQL, for residual filters and for messages."""

from __future__ import annotations

import datetime
import decimal
import math

from lakemark_core.expressions.tree import (
    And,
    ColumnRef,
    Compare,
    Expr,
    FalseConst,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    NullConst,
    Or,
    StartsWith,
    TrueConst,
    Unknown,
)
from lakemark_core.types import FLOAT, TIMESTAMP, Primitive


def to_sql(expr: Expr) -> str:
    """The predicate in Spark SQL. Names are backquoted, so that none can be taken for a keyword; instants name UTC."""
    match expr:
        case And(terms):
            return " AND ".join(map(_within, terms)) or "TRUE"
        case Or(terms):
            return " OR ".join(map(_within, terms)) or "FALSE"
        case Not(term):
            return f"NOT {_within(term)}"
        case Compare(op, column, literal):
            return f"{column_sql(column)} {op} {literal_sql(literal)}"
        case In(column, literals, negated):
            items = ", ".join(map(literal_sql, literals))
            return f"{column_sql(column)} {'NOT ' if negated else ''}IN ({items})"
        case IsNull(column, negated):
            return f"{column_sql(column)} IS {'NOT ' if negated else ''}NULL"
        case Like(column, pattern, negated):
            return f"{column_sql(column)} {'NOT ' if negated else ''}LIKE {_text(pattern)}"
        case StartsWith(column, prefix, negated):
            return f"{'NOT ' if negated else ''}startswith({column_sql(column)}, {_text(prefix)})"
        case TrueConst():
            return "TRUE"
        case FalseConst():
            return "FALSE"
        case NullConst():
            return "NULL"
        case Unknown(text):
            return text


def column_sql(column: ColumnRef) -> str:
    """A column's path in backquotes."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in column.path)


def literal_sql(literal: Literal) -> str:
    """A constant as Spark reads it."""
    match literal.value:
        case None:
            return "NULL"
        case bool() as flag:
            return "TRUE" if flag else "FALSE"
        case int() as number:
            return str(number)
        case decimal.Decimal() as number:
            text = f"{number:f}"
            return text if "." in text else text + "BD"
        case float() as number if literal.type == FLOAT and math.isfinite(number):
            return f"CAST({number!r}D AS FLOAT)"
        case float() as number:
            return f"{number!r}D" if math.isfinite(number) else f"CAST('{number}' AS DOUBLE)"
        case str() as text:
            return _text(text)
        case bytes() as data:
            return f"X'{data.hex().upper()}'"
        case datetime.datetime() as moment:
            text = moment.replace(tzinfo=None).isoformat(sep=" ")
            return f"TIMESTAMP '{text}Z'" if literal.type == TIMESTAMP else f"TIMESTAMP_NTZ '{text}'"
        case datetime.date() as day:
            return f"DATE '{day.isoformat()}'"


def typed_sql(literal: Literal) -> str:
    """A constant as Spark reads it, with its type: ``5L`` is a bigint."""
    text = literal_sql(literal)
    if isinstance(literal.value, int) and isinstance(literal.type, Primitive):
        text += literal.type.record.literal_suffix
    return text


def _within(expr: Expr) -> str:
    return f"({to_sql(expr)})" if isinstance(expr, And | Or | Not | Unknown) else to_sql(expr)


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
