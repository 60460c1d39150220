"""Hive and Spark type strings to types and back: ``array<struct<a:int,b:map<string,double>>>``."""

from __future__ import annotations

import re
from typing import Final

from lakemark_core.errors import InvalidSchema
from lakemark_core.tokens import Token, tokenize
from lakemark_core.types.model import Char, Decimal, Field, ListOf, MapOf, Primitive, Struct, Type, Varchar
from lakemark_core.types.primitives import PRIMITIVES

TEXT_LENGTH_MAX = 1_000_000
DEPTH_MAX = 64

_PRIMITIVES: Final[dict[str, Primitive]] = {
    name: Primitive(record.name) for record in PRIMITIVES.values() for name in (record.name, *record.aliases)
}
_DECIMALS = ("decimal", "dec", "numeric")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_]+")
# A quoted name doubles its backquotes; a comment is a SQL string, with backslash escapes or doubled quotes.
_TOKEN = re.compile(
    r"\s*(?:(?P<punct>[<>(),:])|`(?P<name>(?:[^`]|``)+)`|'(?P<text>(?:[^'\\]|\\.|'')*)'|(?P<word>[^\s<>(),:`']+))",
    re.DOTALL,
)


def parse_type(text: str) -> Type:
    """The type that a Hive or Spark type string names; ids are 0.

    Names of types are case-insensitive. Struct fields may be written as ``a:int`` or ``a int``, may be ``NOT NULL``
    and may have a ``COMMENT 'text'``. Raises InvalidSchema with the position of what is not understood.
    """
    if len(text) > TEXT_LENGTH_MAX:
        raise InvalidSchema(f"the type string has {len(text)} characters; at most {TEXT_LENGTH_MAX} are read")
    parser = _Parser(text)
    parsed = parser.type(0)
    parser.expect_end()
    return parsed


def format_type(column_type: Type) -> str:
    """The type string that Hive understands. It has no place for ids, nullability and comments of nested fields."""
    match column_type:
        case Primitive(name):
            return name
        case Decimal(precision, scale):
            return f"decimal({precision},{scale})"
        case Varchar(length):
            return f"varchar({length})"
        case Char(length):
            return f"char({length})"
        case ListOf(element):
            return f"array<{format_type(element)}>"
        case MapOf(key, value):
            return f"map<{format_type(key)},{format_type(value)}>"
        case Struct(fields):
            return "struct<" + ",".join(f"{_quote(field.name)}:{format_type(field.type)}" for field in fields) + ">"


def _quote(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _unreadable(rest: str, position: int) -> InvalidSchema:
    return InvalidSchema(f"type string: cannot read {rest!r} at position {position}")


class _Parser:
    """Recursive descent over the tokens of one type string."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(_TOKEN, text, _unreadable)
        self._next = 0

    def type(self, depth: int) -> Type:
        if depth > DEPTH_MAX:
            raise InvalidSchema(f"types are nested deeper than {DEPTH_MAX} levels")
        token = self._take("word", "a type")
        name = token.text.lower()
        if name == "double":
            self._word_if("precision")
        if name == "timestamp":
            self._time_zone()
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        if name in _DECIMALS:
            numbers = self._numbers(2, optional=True)
            return Decimal(numbers[0] if numbers else 10, numbers[1] if len(numbers) > 1 else 0)
        if name == "varchar":
            return Varchar(self._numbers(1)[0])
        if name in ("char", "character"):
            return Char(self._numbers(1)[0])
        if name == "array":
            self._punct("<")
            element = self.type(depth + 1)
            self._punct(">")
            return ListOf(element)
        if name == "map":
            self._punct("<")
            key = self.type(depth + 1)
            self._punct(",")
            value = self.type(depth + 1)
            self._punct(">")
            return MapOf(key, value)
        if name == "struct":
            return self._struct(depth)
        raise InvalidSchema(f"'{token.text}' is not a type of a table column (position {token.position})")

    def expect_end(self) -> None:
        if self._next < len(self._tokens):
            raise self._unexpected("the end of the type")

    def _struct(self, depth: int) -> Struct:
        self._punct("<")
        fields = [self._field(depth)]
        while self._punct_if(","):
            fields.append(self._field(depth))
        self._punct(">")
        names = [field.name.lower() for field in fields]
        for name in names:
            if names.count(name) > 1:
                raise InvalidSchema(f"the struct has two fields '{name}'")
        return Struct(tuple(fields))

    def _field(self, depth: int) -> Field:
        token = self._peek()
        if token is None or token.kind not in ("word", "name"):
            raise self._unexpected("a field name")
        self._next += 1
        name = token.text.replace("``", "`") if token.kind == "name" else token.text
        self._punct_if(":")
        field_type = self.type(depth + 1)
        nullable = True
        if self._word_if("not"):
            if not self._word_if("null"):
                raise self._unexpected("NULL")
            nullable = False
        comment = ""
        if self._word_if("comment"):
            comment = re.sub(r"\\(.)|''", lambda m: m.group(1) or "'", self._take("text", "a quoted comment").text)
        return Field(0, name, field_type, nullable, comment)

    def _time_zone(self) -> None:
        if self._word_if("with"):  # Hive 3 writes timestamp_ltz out in full
            for word in ("local", "time", "zone"):
                if not self._word_if(word):
                    raise self._unexpected(f"'{word}'")

    def _numbers(self, most: int, *, optional: bool = False) -> list[int]:
        if not self._punct_if("("):
            if optional:
                return []
            raise self._unexpected("'('")
        numbers = [self._number()]
        while len(numbers) < most and self._punct_if(","):
            numbers.append(self._number())
        self._punct(")")
        return numbers

    def _number(self) -> int:
        token = self._take("word", "a number")
        if not (token.text.isascii() and token.text.isdigit() and len(token.text) <= 9):
            raise InvalidSchema(f"expected a number, found '{token.text}' at position {token.position}")
        return int(token.text)

    def _peek(self) -> Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _take(self, kind: str, wanted: str) -> Token:
        token = self._peek()
        if token is None or token.kind != kind:
            raise self._unexpected(wanted)
        self._next += 1
        return token

    def _punct_if(self, sign: str) -> bool:
        token = self._peek()
        if token is None or token.kind != "punct" or token.text != sign:
            return False
        self._next += 1
        return True

    def _punct(self, sign: str) -> None:
        if not self._punct_if(sign):
            raise self._unexpected(f"'{sign}'")

    def _word_if(self, word: str) -> bool:
        token = self._peek()
        if token is None or not token.is_word(word):
            return False
        self._next += 1
        return True

    def _unexpected(self, wanted: str) -> InvalidSchema:
        token = self._peek()
        here = "the end" if token is None else f"'{token.text}' at position {token.position}"
        shown = self._text if len(self._text) <= 100 else self._text[:100] + "…"
        return InvalidSchema(f"type string '{shown}': expected {wanted}, found {here}")
