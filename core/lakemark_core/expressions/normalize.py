"""Predicates in a simple form, which is easy to evaluate: no NOT, no constants inside, no nested AND or OR."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lakemark_core.expressions.tree import (
    COMPLEMENT,
    FALSE,
    TRUE,
    And,
    Applied,
    Compare,
    Expr,
    FalseConst,
    In,
    IsNull,
    Like,
    Not,
    NullConst,
    Or,
    StartsWith,
    TrueConst,
    Unknown,
    all_of,
    any_of,
)


def normalize(expr: Expr) -> Expr:
    """A predicate that selects the same rows, in negation normal form, flattened, constants folded.

    Only rows for which the predicate is true matter, and without NOT no null can become true. So null is folded to
    false. The result contains no Not, NullConst or ``<=>``; TRUE and FALSE occur only as the whole of it.
    """
    return _positive(expr)


def _positive(expr: Expr) -> Expr:
    match expr:
        case And(terms):
            return _conjunction(map(_positive, terms))
        case Or(terms):
            return _disjunction(map(_positive, terms))
        case Not(term):
            return _negative(term)
        case NullConst():
            return FALSE
        case Compare(op, column, literal):
            if literal.value is None:
                return IsNull(column) if op == "<=>" else FALSE
            return Compare("=", column, literal) if op == "<=>" else expr
        case In(column, literals, negated):
            values = tuple(literal for literal in literals if literal.value is not None)
            if negated and len(values) < len(literals):
                return FALSE
            if not values:
                return IsNull(column, negated=True) if negated else FALSE
            return In(column, values, negated)
        case Applied(text, columns, call, condition) if condition is not None:
            return Applied(text, columns, call, _positive(condition))
        case _:
            return expr


def _negative(expr: Expr) -> Expr:
    match expr:
        case And(terms):
            return _disjunction(map(_negative, terms))
        case Or(terms):
            return _conjunction(map(_negative, terms))
        case Not(term):
            return _positive(term)
        case Compare("<=>", column, literal):
            if literal.value is None:
                return IsNull(column, negated=True)
            return Or((IsNull(column), Compare("!=", column, literal)))
        case Compare(op, column, literal):
            return _positive(Compare(COMPLEMENT[op], column, literal))
        case In(column, literals, negated):
            return _positive(In(column, literals, not negated))
        case IsNull(column, negated):
            return IsNull(column, not negated)
        case Like(column, pattern, negated):
            return Like(column, pattern, not negated)
        case StartsWith(column, prefix, negated):
            return StartsWith(column, prefix, not negated)
        case Applied(text, columns, call, condition) if condition is not None:
            return Applied(f"NOT ({text})", columns, call, _negative(condition))
        case Unknown(text, columns):
            return Unknown(f"NOT ({text})", columns)
        case TrueConst() | NullConst():
            return FALSE
        case FalseConst():
            return TRUE


def _conjunction(terms: Iterable[Expr]) -> Expr:
    return _junction(terms, And, TRUE, FALSE, all_of)


def _disjunction(terms: Iterable[Expr]) -> Expr:
    return _junction(terms, Or, FALSE, TRUE, any_of)


def _junction(
    terms: Iterable[Expr],
    kind: type[And] | type[Or],
    neutral: Expr,
    dominant: Expr,
    join: Callable[[Iterable[Expr]], Expr],
) -> Expr:
    flat: dict[Expr, None] = {}
    for term in terms:
        for inner in term.terms if isinstance(term, kind) else (term,):
            if inner == dominant:
                return dominant
            if inner != neutral:
                flat[inner] = None
    return join(flat)
