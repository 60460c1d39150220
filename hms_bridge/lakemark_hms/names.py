"""Names as Metastore clients write them: databases with their catalog, and patterns."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from lakemark_core.errors import InvalidName
from lakemark_server.catalog.names import DEFAULT_CATALOG


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

    Case does not matter. Without a pattern every name fits.
    """
    if pattern is None or pattern in ("*", ".*"):
        return lambda _: True
    alternatives = [re.escape(part).replace(r"\*", ".*").replace(r"\.", ".") for part in pattern.strip().split("|")]
    compiled = re.compile("|".join(f"(?:{part})" for part in alternatives), re.IGNORECASE | re.DOTALL)
    return lambda name: compiled.fullmatch(name) is not None
