"""LIKE patterns taken apart: what they say about the beginning of a string, and whether they say more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from lakemark_core.errors import InvalidPredicate
from lakemark_core.wildcards import Token, Wildcard


class PatternKind(Enum):
    """How much of a pattern its prefix tells."""

    EXACT = "exact"  # only the prefix itself matches
    PREFIX = "prefix"  # everything that begins with the prefix matches
    OTHER = "other"  # what matches begins with the prefix, but not all of it matches


@dataclass(frozen=True, slots=True)
class LikePrefix:
    prefix: str
    kind: PatternKind


def like_tokens(pattern: str) -> Iterator[Token]:
    """The characters of a pattern, unescaped, and its wildcards.

    Raises InvalidPredicate where Spark does: a backslash may stand only before ``%``, ``_`` and a backslash.
    """
    characters = iter(pattern)
    for char in characters:
        if char == "\\":
            escaped = next(characters, "")
            if escaped not in ("%", "_", "\\"):
                raise InvalidPredicate(
                    f"LIKE pattern '{pattern}': a backslash can only stand before %, _ or a backslash"
                )
            yield escaped
        elif char == "%":
            yield Wildcard.ANY
        elif char == "_":
            yield Wildcard.ONE
        else:
            yield char


def escape_like(text: str) -> str:
    """A pattern that matches exactly this text."""
    return "".join("\\" + char if char in "%_\\" else char for char in text)


LIKE_REGEX_CHARS_MAX: Final = 1_000
"""Of a pattern that is searched for with RE2, which fails for larger ones, or fills the log."""


def like_regex(pattern: str) -> str:
    """A regular expression, in RE2's and Python's common syntax, that the whole of a matching string satisfies.

    For patterns of up to ``LIKE_REGEX_CHARS_MAX`` characters.
    """
    pieces = {Wildcard.ANY: ".*", Wildcard.ONE: "."}
    body = (pieces[token] if isinstance(token, Wildcard) else re.escape(token) for token in like_tokens(pattern))
    return r"(?s)\A(?:" + "".join(body) + r")(?:\z)"


def like_prefix(pattern: str) -> LikePrefix:
    """The plain characters before the first wildcard, and what follows from them."""
    tokens = list(like_tokens(pattern))
    plain = next((index for index, token in enumerate(tokens) if isinstance(token, Wildcard)), len(tokens))
    prefix = "".join(token for token in tokens[:plain] if isinstance(token, str))
    rest = tokens[plain:]
    if not rest:
        return LikePrefix(prefix, PatternKind.EXACT)
    if all(token is Wildcard.ANY for token in rest):
        return LikePrefix(prefix, PatternKind.PREFIX)
    return LikePrefix(prefix, PatternKind.OTHER)
