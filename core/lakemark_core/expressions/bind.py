"""Predicates against a schema: names become column ids, literals become values of the columns' types."""

from __future__ import annotations

import decimal

from lakemark_core.errors import InvalidPredicate
from lakemark_core.expressions import spans
from lakemark_core.expressions.calls import as_decimal_type, call_type
from lakemark_core.expressions.casts import DECIMAL_DIGITS_MAX, decimal_type_of
from lakemark_core.expressions.comparisons import coerce_comparison, is_canonical_text
from lakemark_core.expressions.render import to_sql
from lakemark_core.expressions.tree import (
    NULL,
    And,
    Applied,
    ColumnRef,
    Compare,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Span,
    StartsWith,
    Unknown,
    any_of,
)
from lakemark_core.types import (
    DATE,
    DOUBLE,
    INTEGER_BITS,
    TIMESTAMP_NTZ,
    Char,
    Schema,
    Struct,
    Type,
    is_floating,
    is_nested,
    is_textual,
)


def bind(expr: Expr, schema: Schema) -> Expr:
    """The same predicate with ids and types of the schema, for which every literal is a value of its column's type.

    It selects the rows that Spark would select: where the types differ, operators and literals are adjusted (and
    folded where a literal is out of a type's range), and what cannot be decided exactly becomes Unknown. Literals for
    float and double columns are doubles. Raises InvalidPredicate for a missing column, and for a literal that its
    column cannot be compared with.
    """
    match expr:
        case And(terms):
            return And(tuple(bind(term, schema) for term in terms))
        case Or(terms):
            return Or(tuple(bind(term, schema) for term in terms))
        case Not(term):
            return Not(bind(term, schema))
        case Compare(op, column, literal):
            bound, column_type = _resolve(column, schema)
            if literal.value is None:
                return IsNull(bound) if op == "<=>" else NULL
            coerced = coerce_comparison(op, bound, column_type, literal)
            return Unknown(to_sql(expr), (bound,)) if coerced is None else coerced
        case In(column, literals, negated):
            members = _members(column, literals, schema)
            return Not(members) if negated else members
        case IsNull(column, negated):
            return IsNull(_resolve(column, schema)[0], negated)
        case Like(column) | StartsWith(column):
            return _bind_pattern(expr, column, schema)
        case Span(_, (column,)):
            return spans.bound(expr, *_resolve(column, schema))
        case Applied(_, (column,)):
            return _bind_applied(expr, column, schema)
        case Unknown(text, columns):
            return Unknown(text, tuple(_resolve(column, schema)[0] for column in columns))
        case _:
            return expr


def _bind_applied(expr: Applied, column: ColumnRef, schema: Schema) -> Expr:
    """The bound condition; Unknown if bounds of the column tell nothing about the call's value."""
    bound, column_type = _resolve(column, schema)
    if expr.exact is not None and column_type in (DATE, TIMESTAMP_NTZ):
        return bind(expr.exact, schema)
    unknown = Unknown(expr.text, (bound,))
    kind = call_type(expr.call, column_type)
    if kind is None or expr.condition is None:
        return unknown
    value = ColumnRef(bound.path, bound.id, kind)
    try:
        condition = _bind_condition(expr.condition, value, kind)
    except InvalidPredicate:
        return unknown  # its message would be about the column
    return unknown if condition is None else Applied(expr.text, (bound,), expr.call, condition)


def _bind_condition(condition: Expr, value: ColumnRef, kind: Type) -> Expr | None:
    """A comparison, an IN or a BETWEEN with the value of a call; None if only the engine can decide it."""
    match condition:
        case And(terms):
            bound = [_bind_condition(term, value, kind) for term in terms]
            known = tuple(term for term in bound if term is not None)
            return And(known) if len(known) == len(bound) else None
        case Compare(op, _, literal):
            if literal.value is None:
                return IsNull(value) if op == "<=>" else NULL
            return coerce_comparison(op, value, kind, literal)
        case In(_, literals):
            members = _members_of(value, kind, literals)
            terms = members.terms if isinstance(members, Or) else (members,)
            return None if any(isinstance(term, Unknown) for term in terms) else members
    return None


def _bind_pattern(expr: Like | StartsWith, column: ColumnRef, schema: Schema) -> Expr:
    bound, column_type = _resolve(column, schema)
    if is_nested(column_type):
        raise InvalidPredicate(
            f"column '{column.name}' is not text: '{to_sql(expr)}' cannot be evaluated", column=column.name
        )
    if not is_textual(column_type) or isinstance(column_type, Char):
        return Unknown(to_sql(expr), (bound,))  # the text that the engine casts to, or pads
    if isinstance(expr, Like):
        return Like(bound, expr.pattern, expr.negated)
    return StartsWith(bound, expr.prefix, expr.negated)


def _members(column: ColumnRef, literals: tuple[Literal, ...], schema: Schema) -> Expr:
    """``column IN (…)`` as a list of values of the column's type, joined by OR with the other members."""
    return _members_of(*_resolve(column, schema), literals)


def _members_of(bound: ColumnRef, column_type: Type, literals: tuple[Literal, ...]) -> Expr:
    values: dict[Literal, None] = {}
    others: dict[Expr, None] = {}
    # One double in the list makes Spark compare all of it as doubles.
    as_double = any(isinstance(literal.value, float) for literal in literals) and not is_floating(column_type)
    for literal in literals:
        item = _member(bound, column_type, _as_double(literal) if as_double else literal)
        if isinstance(item, Compare):
            values[item.literal] = None
        else:
            others[item] = None
    undecided = any(isinstance(item, Unknown) for item in others)
    if undecided or _mixes_texts(column_type, literals) or _loses_digits(column_type, literals):
        # The types of all members decide together how each is compared: such a list must not be taken apart.
        return Unknown(to_sql(In(bound, literals)), (bound,))
    if values:
        return any_of((In(bound, tuple(values)), *others))
    return any_of(others)


def _mixes_texts(column_type: Type, literals: tuple[Literal, ...]) -> bool:
    """Whether texts stand beside numbers: some modes of Spark compare all of them as texts."""
    texts = sum(isinstance(literal.value, str) for literal in literals)
    numbers = sum(isinstance(literal.value, int | float | decimal.Decimal) for literal in literals)
    return not is_textual(column_type) and texts > 0 and numbers > 0


def _loses_digits(column_type: Type, literals: tuple[Literal, ...]) -> bool:
    """Whether the decimal type that Spark brings a column and a list to has too few digits for all of them."""
    own = as_decimal_type(column_type)
    numbers = [literal.value for literal in literals if isinstance(literal.value, decimal.Decimal)]
    if own is None or not numbers:
        return False
    whole = [as_decimal_type(literal.type) for literal in literals if literal.type in INTEGER_BITS]
    kinds = [own, *map(decimal_type_of, numbers), *(kind for kind in whole if kind is not None)]
    return max(kind.precision - kind.scale for kind in kinds) + max(kind.scale for kind in kinds) > DECIMAL_DIGITS_MAX


def _member(column: ColumnRef, column_type: Type, literal: Literal) -> Expr:
    if literal.value is None:
        return NULL
    coerced = coerce_comparison("=", column, column_type, literal)
    unknown = Unknown(to_sql(Compare("=", column, literal)), (column,))
    if coerced is None:
        return unknown
    if (
        isinstance(coerced, Compare)
        and isinstance(literal.value, str)
        and not is_textual(column_type)
        and not is_canonical_text(literal.value, column_type, coerced.literal.value)
    ):
        return unknown
    return coerced


def _as_double(literal: Literal) -> Literal:
    if isinstance(literal.value, int | float | decimal.Decimal) and not isinstance(literal.value, bool):
        return Literal(float(literal.value), DOUBLE)
    return literal


def _resolve(column: ColumnRef, schema: Schema) -> tuple[ColumnRef, Type]:
    field = schema.find_path(column.path)
    if field is None:
        raise _missing(column, schema)
    return ColumnRef(column.path, field.id, field.type), field.type


def _missing(column: ColumnRef, schema: Schema) -> InvalidPredicate:
    first = schema.find(column.path[0])
    without = next((path for at in (1, 2) if schema.find_path(path := column.path[at:])), None) if not first else None
    if without:
        message = (
            f"there is no column '{column.path[0]}'; if '{'.'.join(column.path[: -len(without)])}' is the table, leave "
            f"it out: '{'.'.join(without)}'"
        )
    elif first is None or len(column.path) == 1:
        message = f"there is no column '{column.path[0]}'{schema.suggest(column.path[0])}"
    else:
        kind = "has no such field" if isinstance(first.type, Struct) else "is not a struct"
        message = f"there is no field '{column.name}': column '{first.name}' {kind}"
    return InvalidPredicate(message, column=column.name)
