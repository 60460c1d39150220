"""Patterns with wildcards, matched without backtracking: Hive's for names, LIKE's, those of filters of events.

A pattern is taken apart at the wildcards for any text; then the first place where each part fits is enough, so that a
text is read once. Users may send any pattern: a regular expression made of one could take years.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias


class Wildcard(Enum):
    """A part of a pattern that is not a plain character."""

    ANY = "%"
    ONE = "_"


Token: TypeAlias = str | Wildcard
"""A wildcard, or plain characters."""


@dataclass(frozen=True, slots=True)
class WildcardPattern:
    """A pattern that the whole of a text fits or not. Made by ``of``."""

    first: _Part
    middle: tuple[_Part, ...]
    last: _Part | None
    """What stands between wildcards for any text: the first begins it, the last ends it. None: there is none."""

    @classmethod
    def of(cls, tokens: Iterable[Token]) -> WildcardPattern:
        """Wildcards for any text may stand side by side, which means the same as one."""
        pieces: list[list[Token]] = [[]]
        for token in tokens:
            if token is Wildcard.ANY:
                pieces.append([])
            elif isinstance(token, str):
                pieces[-1] += token
            else:
                pieces[-1].append(token)
        first, *others = pieces
        if not others:
            return cls(_part(first), (), None)
        *middle, last = others
        return cls(_part(first), tuple(_part(piece) for piece in middle if piece), _part(last))

    def fits(self, text: str) -> bool:
        """Takes time for the characters of the text and of the pattern; for wildcards for one character somewhat more,
        ``len(text)`` steps with a number of as many bits as the part around them has characters."""
        first, last = self.first, self.last
        if last is None and first.text is not None:
            return text == first.text
        if last is None:
            return len(text) == first.size and first.stands_at(text, 0)
        at, end = first.size, len(text) - last.size
        if end < at:
            return False
        # What has no wildcards for one character, as most have, is compared here: names are many.
        if not (text.startswith(first.text) if first.text is not None else first.stands_at(text, 0)):
            return False
        if not (text.endswith(last.text) if last.text is not None else last.stands_at(text, end)):
            return False
        for part in self.middle:
            plain = part.text
            place = text.find(plain, at, end) if plain is not None else part.first_place(text, at, end)
            if place < 0:
                return False
            at = place + part.size
        return True


@dataclass(frozen=True, slots=True)
class _Part:
    """Plain characters, and wildcards for one character each.

    ``text`` is None if there are such wildcards; then ``pieces`` are the plain characters between them and where they
    stand, ``fitting`` has for a character the bits of the places where it may stand, and ``wild`` those where any other
    may.
    """

    size: int
    text: str | None
    pieces: tuple[tuple[int, str], ...] = ()
    wild: int = 0
    fitting: Mapping[str, int] = field(default_factory=dict)

    def stands_at(self, text: str, place: int) -> bool:
        """``text`` has as many characters behind ``place``, at least."""
        return all(text.startswith(piece, place + offset) for offset, piece in self.pieces)

    def first_place(self, text: str, start: int, end: int) -> int:
        """Where it first stands in ``text[start:end]``, or -1."""
        if end - start < self.size:
            return -1
        # Bit i of ``open_`` says that the part fits up to its place i, if it began i characters ago.
        open_, whole = 0, 1 << (self.size - 1)
        for place in range(start, end):
            open_ = (open_ << 1 | 1) & self.fitting.get(text[place], self.wild)
            if open_ & whole:
                return place - self.size + 1
        return -1


def _part(tokens: list[Token]) -> _Part:
    plain = [token for token in tokens if isinstance(token, str)]
    if len(plain) == len(tokens):
        return _Part(len(tokens), "".join(plain))
    wild = sum(1 << place for place, token in enumerate(tokens) if token is Wildcard.ONE)
    fitting = dict.fromkeys(plain, wild)
    for place, token in enumerate(tokens):
        if isinstance(token, str):
            fitting[token] |= 1 << place
    pieces, begin = [], 0
    for place in range(len(tokens) + 1):
        if place == len(tokens) or tokens[place] is Wildcard.ONE:
            pieces.append((begin, "".join(token for token in tokens[begin:place] if isinstance(token, str))))
            begin = place + 1
    return _Part(len(tokens), None, tuple(piece for piece in pieces if piece[1]), wild, fitting)


def pattern_of(text: str, signs: Mapping[str, Wildcard]) -> WildcardPattern:
    """The pattern in which the characters of ``signs`` are wildcards and all others stand for themselves."""
    return WildcardPattern.of(signs.get(character, character) for character in text)
