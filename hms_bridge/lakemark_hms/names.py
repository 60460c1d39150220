"""Names as Metastore clients write them: databases with their catalog, and patterns."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from lakemark_core.errors import InvalidArgument, InvalidName
from lakemark_core.wildcards import Wildcard, pattern_of
from lakemark_server.catalog.names import DEFAULT_CATALOG

PATTERN_CHARS_MAX: Final = 10_000
ALTERNATIVES_MAX: Final = 100
"""Those with wildcards; of others there may be as many as the characters allow."""

_PLAIN: Final = "abcdefghijklmnopqrstuvwxyz0123456789_"
_WILDCARDS: Final = {"*": Wildcard.ANY, ".": Wildcard.ONE}


class DatabaseName(NamedTuple):
    catalog: str
    name: str


def database_name(text: str | None, catalog: str | None = None) -> DatabaseName:
    """``db``, or ``@catalog#db`` as clients of Hive 3 and later write it. Raises InvalidName."""
    text = text or ""
    if not text.startswith("@"):
        return DatabaseName((catalog or DEFAULT_CATALOG).lower(), text.lower())
    prefix, separator, name = text[1:].partition("#")
    if not separator:
        raise InvalidName(f"{text!r} begins with @ but is not of the form @catalog#database", name=text)
    # Hive writes ! for a name that is empty, and nothing for one that was not given.
    return DatabaseName((prefix or DEFAULT_CATALOG).lower(), "" if name == "!" else name.lower())


def database_pattern(text: str | None, catalog: str | None = None) -> tuple[str, str | None]:
    """The catalog and pattern of ``pattern`` or ``@catalog#pattern``. An empty pattern asks for all databases."""
    if text is None or not text.startswith("@"):
        return (catalog or DEFAULT_CATALOG).lower(), text
    named, pattern = database_name(text)
    return named, pattern or None


@lru_cache(maxsize=256)
def matcher(pattern: str | None) -> Callable[[str], bool]:
    """A test whether a name fits a pattern of Hive: alternatives between ``|``, ``*`` any text, ``.`` any character.

    Case does not matter. Without a pattern every name fits. Raises InvalidArgument for one that is too large.
    """
    if pattern is None or pattern in ("*", ".*"):
        return lambda _: True
    if len(pattern) > PATTERN_CHARS_MAX:
        raise InvalidArgument(
            f"the pattern {pattern[:40]!r}… has {len(pattern)} characters; at most {PATTERN_CHARS_MAX}: ask for fewer "
            "names at a time, or for * and choose among them"
        )
    alternatives = frozenset(pattern.strip().lower().split("|"))
    plain = frozenset(one for one in alternatives if _WILDCARDS.keys().isdisjoint(one))
    patterns = [pattern_of(one, _WILDCARDS) for one in alternatives - plain]
    if len(patterns) > ALTERNATIVES_MAX:
        raise InvalidArgument(
            f"the pattern {pattern[:40]!r}… has {len(patterns)} alternatives with wildcards; at most {ALTERNATIVES_MAX}"
        )

    if len(patterns) == 1 and not plain:
        single = patterns[0]
        return lambda name: single.fits(name.lower())

    def fits(name: str) -> bool:
        lowered = name.lower()
        return lowered in plain or any(one.fits(lowered) for one in patterns)

    return fits


def beginning_of(pattern: str | None) -> str:
    """How all names begin that fit a pattern (``matcher``), in lower case; "" if they have nothing in common."""
    alternatives = (pattern or "*").strip().lower().split("|")
    beginnings = [one[: len(one) - len(one.lstrip(_PLAIN))] for one in alternatives]
    first, last = min(beginnings), max(beginnings)
    common = (at for at, pair in enumerate(zip(first, last, strict=False)) if len(set(pair)) > 1)
    return first[: next(common, len(first))]
