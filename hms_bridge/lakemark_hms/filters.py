"""The partition filters of the Hive Metastore: ``p = "x" and (i > 1 or d >= 2024-01-01)``.

The grammar is that of Hive 2.3 to 4 as their clients and Spark use it, and a little more: ``==``, backquoted names,
``not`` before any condition. A quoted text is taken as it stands, backslashes included, as Hive and Spark mean it;
where a backslash stands before the text's own quote, the two disagree on where the text ends, and the filter is
refused.

``like`` has the wildcards of the metastore, ``.*`` and ``.``, which Spark sends; nothing else in it is special. A
pattern with ``%`` and without ``.*`` is one of SQL, as Hive 4 has it. Both become SQL's LIKE.
"""

from __future__ import annotations

import datetime
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakemark_core.errors import InvalidPredicate, LakemarkError
from lakemark_core.expressions import (
    FALSE,
    And,
    ColumnRef,
    Compare,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    all_of,
    any_of,
    between,
    bind,
    columns_of,
    escape_like,
)
from lakemark_core.expressions.tree import MIRRORED
from lakemark_core.tokens import Token, tokenize
from lakemark_core.types import (
    BIGINT,
    DATE,
    DEFAULT_PARTITION,
    DOUBLE,
    STRING,
    Field,
    Schema,
    is_textual,
)
from lakemark_server.file_index.arrow import AnyArray
from lakemark_server.file_index.entries.file_stats import FileStats
from lakemark_server.file_index.pruning.rules import prune

log = logging.getLogger(__name__)

TEXT_LENGTH_MAX = 1_000_000
TOKENS_MAX = 100_000
"""Words, texts, numbers and signs; about a second's work."""
DEPTH_MAX = 100
DIGITS_MAX = 38
"""Of a number, as in the widest decimal type."""

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<timestamp>\d{4}-\d{2}-\d{2}[ ]\d{2}:\d{2}:\d{2}(?:\.\d+)?(?!\w))
    |(?P<date>\d{4}-\d{2}-\d{2}(?!\w))
    |(?P<number>[+-]?\d+(?:\.\d+)?(?![\w.]))
    |(?P<sign><=>|<=|>=|<>|!=|==|[=<>(),])
    |`(?P<quoted>(?:[^`]|``)+)`
    |(?P<word>\w+)
    )""",
    re.VERBOSE | re.DOTALL,
)
_OPERATORS: dict[str, Operator] = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}


def parse_filter(text: str) -> Expr:
    """The tree of a filter, not bound to columns; an empty filter is true. Raises InvalidPredicate.

    The metastore knows null partitions by a text, so ``= "__HIVE_DEFAULT_PARTITION__"`` becomes IS NULL.
    """
    if len(text) > TEXT_LENGTH_MAX:
        raise InvalidPredicate(f"the partition filter has {len(text)} characters; at most {TEXT_LENGTH_MAX} are read")
    if not text.strip():
        return And(())
    return _Parser(text).whole()


@dataclass(frozen=True, slots=True)
class PartitionColumns:
    """Partition columns with the values of all partitions in each of them; the default partition is null."""

    fields: Sequence[Field]
    values: Sequence[AnyArray]


class PartitionFilter:
    """A filter as a client sends it.

    One that is not understood, or compares what cannot be compared, selects all partitions: the client filters them
    again. A column that the table does not have is no matter of understanding (``require_columns``).

    ``exact``: nobody filters again, so that all of this raises InvalidPredicate.
    """

    def __init__(self, text: str, *, exact: bool = False) -> None:
        self._text = text
        self._exact = exact
        self._condition: Expr | None = None
        if text.strip():
            try:
                self._condition = parse_filter(text)
            except InvalidPredicate as error:
                self._select_all(error)

    @property
    def selects_all(self) -> bool:
        """Whether that is known before the partitions are looked at."""
        return self._condition is None

    def mentions(self, column: str) -> bool:
        """Whether the filter's condition is about this column, among others; case does not matter."""
        if self._condition is None:
            return False
        return any(reference.name.lower() == column.lower() for reference in columns_of(self._condition))

    def mask(self, columns: Callable[[], PartitionColumns], size: int) -> npt.NDArray[np.bool_]:
        """Which of ``size`` partitions are selected. ``columns`` may raise LakemarkError, and then all are."""
        if self._condition is not None:
            try:
                return evaluate(self._condition, columns(), size)
            except LakemarkError as error:
                self._select_all(error)
        return np.ones(size, np.bool_)

    def require_columns(self, known: Sequence[str]) -> None:
        """Raises InvalidPredicate if the filter names a column that is none of these; case does not matter."""
        names = {name.lower() for name in known}
        for column in columns_of(self._condition) if self._condition is not None else ():
            if column.name.lower() not in names:
                raise InvalidPredicate(
                    f"the partition filter names {column.name!r}, which is no partition column: there are "
                    f"[{', '.join(known)}]"
                )

    def _select_all(self, error: LakemarkError) -> None:
        if self._exact:
            raise InvalidPredicate(f"the partition filter is not understood: {error.message}") from error
        log.info("the partition filter %r selects all: %s", self._text[:500], error)


def evaluate(expr: Expr, columns: PartitionColumns, size: int) -> npt.NDArray[np.bool_]:
    """Which of ``size`` partitions a filter selects.

    The answer is exact as far as the types allow; else (a text column against a number) it has more partitions, and
    never fewer. A null satisfies no comparison, which is what Spark then makes of the rows. Raises InvalidPredicate for
    a missing column and for a literal that a column cannot be compared with.
    """
    fields = [
        # The metastore compares texts as they stand, without a declared length.
        Field(number, field.name, STRING if is_textual(field.type) else field.type)
        for number, field in enumerate(columns.fields, 1)
    ]
    values = {field.id: array for field, array in zip(fields, columns.values, strict=True)}
    bound = bind(expr, Schema(tuple(fields)))
    return prune(bound, FileStats(np.ones(size, dtype=np.int64), partition=values)).may_match


def _unreadable(rest: str, position: int) -> InvalidPredicate:
    # One character: what follows may be a part of a URL with a secret, which nobody could tell from here.
    return InvalidPredicate(f"partition filter: cannot read {rest[:1]!r} at {position}")


class _Parser:
    """Recursive descent; ``or`` binds weaker than ``and``, ``and`` weaker than ``not``."""

    def __init__(self, text: str):
        self._text = text
        self._tokens = tokenize(_TOKEN, text, _unreadable, TOKENS_MAX)
        if len(self._tokens) > TOKENS_MAX:
            raise InvalidPredicate(
                f"the partition filter has more than {TOKENS_MAX} words, values and signs; ask for fewer partitions at "
                "a time"
            )
        self._next = 0

    def whole(self) -> Expr:
        expr = self._disjunction(0)
        if self._next < len(self._tokens):
            raise self._unexpected("the end of the filter")
        return expr

    def _disjunction(self, depth: int) -> Expr:
        terms = [self._conjunction(depth)]
        while self._word_if("or"):
            terms.append(self._conjunction(depth))
        return any_of(terms)

    def _conjunction(self, depth: int) -> Expr:
        terms = [self._condition(depth)]
        while self._word_if("and"):
            terms.append(self._condition(depth))
        return all_of(terms)

    def _condition(self, depth: int) -> Expr:
        if depth > DEPTH_MAX:
            raise InvalidPredicate(f"the partition filter is nested deeper than {DEPTH_MAX} levels")
        if self._peek_is_word("not") and not self._is_operator(1):
            self._next += 1
            return Not(self._condition(depth + 1))
        if self._peek_sign() != "(":
            return self._comparison()
        columns = self._parenthesized_columns()
        if columns is not None:
            return self._membership(columns)
        self._next += 1
        inner = self._disjunction(depth + 1)
        self._sign(")")
        return inner

    def _comparison(self) -> Expr:
        if not self._peek_is_column():
            literal = self._literal()
            op = self._operator()
            return _compare(MIRRORED[op], self._column(), literal)
        column = self._column()
        negated = self._word_if("not")
        if self._word_if("like"):
            pattern = self._literal()
            if not isinstance(pattern.value, str):
                raise self._unexpected("a quoted pattern before")
            return Like(column, _like_pattern(pattern.value), negated)
        if self._word_if("between"):
            low = self._literal()
            if not self._word_if("and"):
                raise self._unexpected("'and'")
            within = between(column, low, self._literal())
            return Not(within) if negated else within
        if negated or self._peek_is_word("in"):
            if negated:
                self._next -= 1
            return self._membership([column])
        return _compare(self._operator(), column, self._literal())

    def _membership(self, columns: list[ColumnRef]) -> Expr:
        """What follows ``p``, ``(p)`` or ``(struct(p, q))``: ``[not] in (…)``."""
        negated = self._word_if("not")
        if not self._word_if("in"):
            raise self._unexpected("'in'")
        self._sign("(")
        if len(columns) == 1:
            literals = [self._literal()]
            while self._sign_if(","):
                literals.append(self._literal())
            members = _members(columns[0], literals)
        else:
            rows = [self._row(columns)]
            while self._sign_if(","):
                rows.append(self._row(columns))
            members = Or(tuple(rows))
        self._sign(")")
        return Not(members) if negated else members

    def _row(self, columns: list[ColumnRef]) -> Expr:
        self._word_if("const")
        if not self._word_if("struct"):
            raise self._unexpected("'struct'")
        self._sign("(")
        terms: list[Expr] = []
        for index, column in enumerate(columns):
            if index:
                self._sign(",")
            terms.append(_compare("=", column, self._literal()))
        self._sign(")")
        return And(tuple(terms))

    def _parenthesized_columns(self) -> list[ColumnRef] | None:
        """The columns of ``(p)`` or ``(struct(p, q))``, if that stands here; else nothing is read."""
        start = self._next
        self._next += 1
        is_struct = self._peek_is_word("struct") and self._peek_sign(1) == "("
        if is_struct:
            self._next += 2
        columns: list[ColumnRef] = []
        while self._peek_is_column():
            columns.append(self._column())
            if not (is_struct and self._sign_if(",")):
                break
        if columns and self._sign_if(")") and (not is_struct or self._sign_if(")")):
            return columns
        self._next = start
        return None

    def _column(self) -> ColumnRef:
        if not self._peek_is_column():
            raise self._unexpected("the name of a partition column")
        token = self._tokens[self._next]
        self._next += 1
        return ColumnRef((token.text.replace("``", "`") if token.kind == "quoted" else token.text,))

    def _operator(self) -> Operator:
        if not self._is_operator(0):
            raise self._unexpected("a comparison")
        self._next += 1
        return _OPERATORS[self._tokens[self._next - 1].text]

    def _literal(self) -> Literal:
        token = self._peek()
        if self._is_typed("date"):
            self._next += 2
            return _date(self._tokens[self._next - 1])
        if self._is_typed("timestamp"):
            self._next += 2
            return _timestamp(self._tokens[self._next - 1])
        if token is None or token.kind not in ("text", "timestamp", "date", "number"):
            raise self._unexpected("a value")
        self._next += 1
        if token.kind == "text":
            return Literal(_unquoted(token), STRING)
        if token.kind == "date":
            return _date(token)
        if token.kind == "timestamp":
            return _timestamp(token)
        digits = sum(map(str.isdigit, token.text))
        if digits > DIGITS_MAX:
            raise InvalidPredicate(
                f"partition filter: the number at position {token.position} has {digits} digits; at most {DIGITS_MAX}"
            )
        if "." in token.text:
            return Literal(float(token.text), DOUBLE)
        return Literal(int(token.text), BIGINT)

    def _peek(self, ahead: int = 0) -> Token | None:
        position = self._next + ahead
        return self._tokens[position] if position < len(self._tokens) else None

    def _peek_kind(self, ahead: int) -> str:
        token = self._peek(ahead)
        return "" if token is None else token.kind

    def _peek_sign(self, ahead: int = 0) -> str:
        token = self._peek(ahead)
        return token.text if token is not None and token.kind == "sign" else ""

    def _peek_is_word(self, word: str) -> bool:
        token = self._peek()
        return token is not None and token.is_word(word)

    def _peek_is_column(self) -> bool:
        kind = self._peek_kind(0)
        # A column may be called date, or like a number with letters behind it.
        return kind == "quoted" or (kind == "word" and not (self._is_typed("date") or self._is_typed("timestamp")))

    def _is_typed(self, word: str) -> bool:
        """Whether ``date`` or ``timestamp`` with a value behind it stands here."""
        return self._peek_is_word(word) and self._peek_kind(1) in ("text", word)

    def _is_operator(self, ahead: int) -> bool:
        return self._peek_sign(ahead) in _OPERATORS

    def _word_if(self, word: str) -> bool:
        if not self._peek_is_word(word):
            return False
        self._next += 1
        return True

    def _sign_if(self, sign: str) -> bool:
        if self._peek_sign() != sign:
            return False
        self._next += 1
        return True

    def _sign(self, sign: str) -> None:
        if not self._sign_if(sign):
            raise self._unexpected(f"'{sign}'")

    def _unexpected(self, wanted: str) -> InvalidPredicate:
        token = self._peek()
        here = "the end" if token is None else f"'{token.text}' at position {token.position}"
        shown = self._text if len(self._text) <= 200 else self._text[:200] + "…"
        return InvalidPredicate(f"partition filter '{shown}': expected {wanted}, found {here}")


def _unquoted(token: Token) -> str:
    text = token.text[1:-1]
    if "\\" + token.text[0] in text:
        raise InvalidPredicate(f"partition filter: the end of the text at position {token.position} is ambiguous")
    return text


def _date(token: Token) -> Literal:
    text = token.text[1:-1] if token.kind == "text" else token.text
    try:
        return Literal(datetime.date.fromisoformat(text), DATE)
    except ValueError:
        raise InvalidPredicate(f"partition filter: '{text}' at position {token.position} is not a date") from None


def _timestamp(token: Token) -> Literal:
    """As a text, which a timestamp column compares as a timestamp, and a text column as it stands, as in Hive."""
    text = token.text[1:-1] if token.kind == "text" else token.text
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        raise InvalidPredicate(f"partition filter: '{text}' at position {token.position} is not a timestamp") from None
    return Literal(text, STRING)


def _compare(op: Operator, column: ColumnRef, literal: Literal) -> Expr:
    if literal.value == DEFAULT_PARTITION and op in ("=", "!="):
        return IsNull(column, negated=op == "!=")
    return Compare(op, column, literal)


def _members(column: ColumnRef, literals: list[Literal]) -> Expr:
    values = tuple(literal for literal in literals if literal.value != DEFAULT_PARTITION)
    members = In(column, values) if values else FALSE
    return members if len(values) == len(literals) else Or((members, IsNull(column)))


def _like_pattern(text: str) -> str:
    if "%" in text and ".*" not in text:
        return text
    return "%".join("_".join(map(escape_like, part.split("."))) for part in text.split(".*"))
