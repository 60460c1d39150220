"""The predicate tree: immutable values that say which rows of a table are meant.

A predicate is true, false or null for a row (SQL's three-valued logic), and selects the rows for which it is true.
Floating point is ordered as Spark orders it: NaN equals itself and is greater than everything else, and -0.0 equals
0.0.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias
from typing import Literal as OneOf

from lakemark_core.errors import InvalidPredicate
from lakemark_core.types import ColumnValue, Type

LiteralValue: TypeAlias = ColumnValue
"""None is SQL's NULL."""
Operator: TypeAlias = OneOf["=", "!=", "<", "<=", ">", ">=", "<=>"]

StepName: TypeAlias = OneOf[
    "date",
    "year",
    "quarter",
    "month",
    "day",
    "dayofyear",
    "hour",
    "minute",
    "second",
    "trunc",
    "date_trunc",
    "add",
    "subtract",
    "subtract_from",
    "multiply",
]
Call: TypeAlias = "tuple[Step, ...]"
"""The steps of a call, the innermost first."""

MIRRORED: dict[Operator, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}
"""``5 < a`` is ``a > 5``."""
COMPLEMENT: dict[Operator, Operator] = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""``NOT a < 5`` is ``a >= 5``, null if a is null, for NaN too; ``<=>`` has no complement among the operators."""


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column or, with a longer path, a field within structs. ``bind`` sets id and type; id 0 means not bound."""

    path: tuple[str, ...]
    id: int = 0
    type: Type | None = None

    @property
    def name(self) -> str:
        """The path joined with dots, for messages."""
        return ".".join(self.path)

    @classmethod
    def parse(cls, text: str) -> ColumnRef:
        """``a``, ``a.b`` or, for names with dots in them, backquoted parts."""
        path: list[str] = []
        position, ends = 0, ""
        while position < len(text) or ends:
            match = _PATH_PART.match(text, position)
            if match is None:
                break
            quoted, plain, ends = match.groups()
            path.append(quoted[1:-1].replace("``", "`") if quoted else plain)
            position = match.end()
        if not path or position < len(text) or ends:
            raise InvalidPredicate(f"{text[:COLUMN_CHARS_SHOWN]!r} is not the name of a column")
        return cls(tuple(path))


COLUMN_CHARS_SHOWN: Final = 200
_PATH_PART: Final = re.compile(r"(?:(`(?:[^`]|``)+`)|([^`.]+))(\.|\Z)")


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. Dates are ``date``, instants aware ``datetime`` in UTC, wall-clock times naive; null has no type."""

    value: LiteralValue
    type: Type | None = None


@dataclass(frozen=True, slots=True)
class And:
    terms: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Or:
    terms: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Not:
    term: Expr


@dataclass(frozen=True, slots=True)
class Compare:
    """``column op literal``; ``<=>`` is equality that holds between nulls and is never null."""

    op: Operator
    column: ColumnRef
    literal: Literal


@dataclass(frozen=True, slots=True)
class In:
    column: ColumnRef
    literals: tuple[Literal, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    column: ColumnRef
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like:
    """SQL's LIKE: ``%`` any characters, ``_`` one character, backslash takes the next one as it is."""

    column: ColumnRef
    pattern: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class StartsWith:
    column: ColumnRef
    prefix: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class TrueConst:
    pass


@dataclass(frozen=True, slots=True)
class FalseConst:
    pass


@dataclass(frozen=True, slots=True)
class NullConst:
    """Neither true nor false, as a comparison with NULL is."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A condition that only the engine can decide (functions, casts, two columns); a row may satisfy it or not."""

    text: str
    columns: tuple[ColumnRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One function or operation. ``unit``: of those that truncate. ``constant``: the other operand of arithmetic."""

    name: StepName
    unit: str = ""
    constant: Literal | None = None


@dataclass(frozen=True, slots=True)
class Applied(Unknown):
    """A condition on a call of one column (``month(day) = 3``, ``x + 1 > 5``): the engine decides each row.

    Once it is bound, ``condition`` is about the value of ``call``, of which bounds of the column tell something; its
    column has the id of the one in ``columns`` and the type of the value. ``exact`` says the same of a column of
    dates or wall-clock times itself, if that is possible; ``bind`` takes it then.
    """

    call: Call = ()
    condition: Expr | None = None
    exact: Expr | None = None


@dataclass(frozen=True, slots=True)
class Span(Unknown):
    """A function of one column beside a constant (``year(day) = 2026``): ``op`` compares the column's value with the
    dates from ``low`` to the one before ``high``. Like Unknown until ``bind`` knows that it is a column of dates."""

    op: Operator = "="
    low: datetime.date = datetime.date.min
    high: datetime.date = datetime.date.max


Expr: TypeAlias = (
    And | Or | Not | Compare | In | IsNull | Like | StartsWith | TrueConst | FalseConst | NullConst | Unknown
)

TRUE = TrueConst()
FALSE = FalseConst()
NULL = NullConst()


def between(column: ColumnRef, low: Literal, high: Literal) -> And:
    """``column BETWEEN low AND high``, both ends included."""
    return And((Compare(">=", column, low), Compare("<=", column, high)))


def columns_of(expr: Expr) -> frozenset[ColumnRef]:
    """Every column that the predicate refers to."""
    match expr:
        case And(terms) | Or(terms):
            return frozenset().union(*map(columns_of, terms))
        case Not(term):
            return columns_of(term)
        case Compare(_, column) | In(column) | IsNull(column) | Like(column) | StartsWith(column):
            return frozenset((column,))
        case Unknown(_, columns):
            return frozenset(columns)
        case _:
            return frozenset()


def all_of(terms: Iterable[Expr]) -> Expr:
    """AND of any number of terms: TRUE for none, the term itself for one."""
    given = tuple(terms)
    return given[0] if len(given) == 1 else And(given) if given else TRUE


def any_of(terms: Iterable[Expr]) -> Expr:
    """OR of any number of terms: FALSE for none, the term itself for one."""
    given = tuple(terms)
    return given[0] if len(given) == 1 else Or(given) if given else FALSE
