"""Predicates between protobuf and the tree of ``lakemark_core.expressions``."""

from __future__ import annotations

from decimal import Decimal as PyDecimal
from decimal import InvalidOperation
from typing import Final

from lakemark_core.errors import InvalidArgument, InvalidPredicate
from lakemark_core.expressions import (
    FALSE,
    TRUE,
    ColumnRef,
    Compare,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    all_of,
    any_of,
    checked_text,
    parse_predicate,
)
from lakemark_core.messages.values import value_from_proto
from lakemark_core.types import PRIMITIVES, Decimal, Primitive, Type
from lakemark_proto.v1 import types_pb2 as pb

DEPTH_MAX: Final = 50
TERMS_MAX: Final = 100_000
"""Nodes and literals of an expression."""
DECIMAL_CHARS_MAX: Final = 100
_OPERATORS: Final[dict[int, Operator]] = {
    pb.Comparison.EQUAL: "=",
    pb.Comparison.NOT_EQUAL: "!=",
    pb.Comparison.LESS: "<",
    pb.Comparison.LESS_OR_EQUAL: "<=",
    pb.Comparison.GREATER: ">",
    pb.Comparison.GREATER_OR_EQUAL: ">=",
    pb.Comparison.NULL_SAFE_EQUAL: "<=>",
}
_WIDEST: Final[dict[str, Type]] = {record.kind: Primitive(record.name) for record in PRIMITIVES.values()}
"""For each kind of values the type that holds them all, which is the last one of the table."""


def predicate_from_proto(message: pb.Predicate) -> Expr:
    """The tree, not yet bound to a schema. Raises InvalidPredicate."""
    match message.WhichOneof("form"):
        case "sql":
            return parse_predicate(message.sql)
        case "expression":
            return _Expressions().tree(message.expression, 0)
        case _:
            raise InvalidPredicate("the predicate is empty: give SQL text or an expression, or leave it out")


def predicate_to_proto(text: str) -> pb.Predicate:
    """A condition in Spark SQL for the service, which parses it. Raises InvalidPredicate for what is no UTF-8."""
    return pb.Predicate(sql=checked_text(text))


class _Expressions:
    """Makes one tree, and counts what it has."""

    def __init__(self) -> None:
        self._terms = 0

    def tree(self, node: pb.Expression, depth: int) -> Expr:
        """Raises InvalidPredicate, also for a tree that is too deep or too large."""
        if depth > DEPTH_MAX:
            raise InvalidPredicate(f"the expression is nested deeper than {DEPTH_MAX}")
        self._count(1)
        match node.WhichOneof("node"):
            case "constant":
                return TRUE if node.constant else FALSE
            case "all_of":
                return all_of(self.tree(term, depth + 1) for term in node.all_of.terms)
            case "any_of":
                return any_of(self.tree(term, depth + 1) for term in node.any_of.terms)
            case "negation":
                return Not(self.tree(node.negation, depth + 1))
            case "comparison":
                comparison = node.comparison
                operator = _OPERATORS.get(comparison.operator)
                if operator is None:
                    raise InvalidPredicate(f"the comparison of column {comparison.column!r} has no operator")
                return Compare(operator, ColumnRef.parse(comparison.column), literal_from_proto(comparison.literal))
            case "membership":
                self._count(len(node.membership.literals))
                literals = tuple(literal_from_proto(value) for value in node.membership.literals)
                if not literals:
                    return TRUE if node.membership.negated else FALSE
                return In(ColumnRef.parse(node.membership.column), literals, node.membership.negated)
            case "null_test":
                return IsNull(ColumnRef.parse(node.null_test.column), node.null_test.negated)
            case "pattern":
                return Like(ColumnRef.parse(node.pattern.column), node.pattern.like, node.pattern.negated)
            case _:
                raise InvalidPredicate("an expression has an empty node, or one that this release does not know")

    def _count(self, terms: int) -> None:
        self._terms += terms
        if self._terms > TERMS_MAX:
            raise InvalidPredicate(
                f"the expression has more than {TERMS_MAX} conditions and values; ask several times, for some of them "
                "each"
            )


def literal_from_proto(value: pb.Value) -> Literal:
    """A constant with the widest type of its kind. Raises InvalidPredicate."""
    kind = value.WhichOneof("kind")
    if kind is None:
        raise InvalidPredicate("a literal has no value")
    if kind == "null":
        return Literal(None)
    try:
        column_type = _smallest_decimal(value.decimal) if kind == "decimal" else _WIDEST[kind]
        return Literal(value_from_proto(value, column_type), column_type)
    except (InvalidArgument, InvalidOperation, ValueError) as error:
        raise InvalidPredicate(f"a literal of kind {kind} is out of range") from error


def _smallest_decimal(text: str) -> Type:
    """The smallest type that holds the number. Raises InvalidOperation, ValueError, InvalidSchema."""
    if len(text) > DECIMAL_CHARS_MAX:
        raise ValueError(text)
    number = PyDecimal(text).as_tuple()
    exponent = int(number.exponent)
    scale = max(0, -exponent)
    return Decimal(max(scale, len(number.digits) + max(exponent, 0), 1), scale)
