"""What is secret in a text: it never stands in errors, logs or answers of the command line."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "…"

_CONTAINER_SCHEMES: Final = ("abfs", "abfss", "wasb", "wasbs")  # there, what stands before the @ is no user
_PLACEHOLDERS: Final = ("//user@", "//user:password@")  # in messages that say how a URL is written
# The numbers bound what is looked through for each place where a secret could begin.
_USER_INFO: Final = re.compile(
    r"""(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}):/{1,3}
    (?: (?P<user>[^\s/@:?'"]{0,1000}) @                       # s3://KEY@bucket
      | (?P<name>[^\s/@:?'"]{0,1000}) : (?!\d{1,5}/) [^\s@'"]{0,1000} @  # s3://KEY:SEC/RET@bucket, but no port
    )""",
    re.VERBOSE,
)
_QUERY: Final = re.compile(r"""([A-Za-z][A-Za-z0-9+.-]{0,30}:/[^\s?'"]{0,1000}\?)[^\s'"]+""")
_NAMED: Final = re.compile(
    r"""((?:signature|credential|token|secret|passw(?:or)?d|pwd|access[_-]?key(?:[_-]?id)?|api[_-]?key|\bsig)
    [\w.-]{0,50}=)[^\s&'",;)]+""",
    re.VERBOSE | re.IGNORECASE,
)
_BEARER: Final = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)


def redacted(text: str) -> str:
    """The text without users and passwords of URLs, their queries, and values that are named like secrets."""
    if "@" in text:
        text = _USER_INFO.sub(_without_user, text)
    if "?" in text:
        text = _QUERY.sub(rf"\1{HIDDEN}", text)
    if "=" in text:
        text = _NAMED.sub(rf"\1{HIDDEN}", text)
    return _BEARER.sub(rf"\1 {HIDDEN}", text) if " " in text else text


def _without_user(match: re.Match[str]) -> str:
    if match[0].endswith(_PLACEHOLDERS):
        return match[0]
    front = match[0][: match.start("user" if match["user"] is not None else "name") - match.start()]
    if match["scheme"].lower() in _CONTAINER_SCHEMES:
        return match[0] if match["user"] is not None else f"{front}{match['name']}:{HIDDEN}@"
    return f"{front}{HIDDEN}@"
