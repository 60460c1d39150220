"""Tokens of small languages: type strings, and the partition filters of the Hive Metastore."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Token:
    """``kind`` is the name of the pattern's group that matched; ``position`` counts characters from 0."""

    kind: str
    text: str
    position: int

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these words, which are in lower case."""
        return self.kind == "word" and self.text.lower() in words


def tokenize(
    pattern: re.Pattern[str], text: str, refused: Callable[[str, int], Exception], most: int | None = None
) -> list[Token]:
    """The tokens of a text; white space at its end is none. No more than one beyond ``most``, if that is given.

    Raises what ``refused`` makes of the next characters and their position where the pattern does not match.
    """
    tokens: list[Token] = []
    position, end = 0, len(text.rstrip())
    while position < end and (most is None or len(tokens) <= most):
        match = pattern.match(text, position)
        if match is None:
            raise refused(text[position : position + 20], position)
        kind = match.lastgroup or ""
        tokens.append(Token(kind, match.group(kind), match.start(kind)))
        position = match.end()
    return tokens
