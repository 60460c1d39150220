"""Values as people read them. Pure."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_NOTHING: Final = "–"
# Control characters but for tab and line feed; marks and overrides of direction; what has no width.
_UNSEEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000


def size(size_bytes: int | None) -> str:
    """Bytes with a unit (powers of 1,000) and three digits, such as "1.25 GB"; a dash for None."""
    if size_bytes is None:
        return _NOTHING
    value = float(size_bytes)
    for unit in _UNITS:
        if abs(value) < 999.5 or unit == _UNITS[-1]:
            return (
                f"{size_bytes} B" if unit == "B" else f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"
            )
        value /= 1_000
    raise AssertionError


def count(number: int | None) -> str:
    """With thousands separated; a dash for None."""
    return _NOTHING if number is None else f"{number:,}"


def counted(number: int, one: str, many: str = "") -> str:
    """The number with its noun, such as "1 file" or "2 files"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def time(ms: int) -> str:
    """The time in UTC to the second; a dash for 0."""
    moment = _moment(ms)
    return _NOTHING if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S")


def iso_time(ms: int) -> str:
    """The time in UTC as attributes of HTML have it; "" for 0."""
    moment = _moment(ms)
    return "" if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _moment(ms: int) -> dt.datetime | None:
    if not ms:
        return None
    try:
        return dt.datetime.fromtimestamp(ms / 1_000, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return None


def duration(ms: int) -> str:
    """About how long, such as "40 s" or "3 h"."""
    ms = abs(ms)
    for unit_ms, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (_SECOND, "s")):
        if ms >= unit_ms * (2 if unit_ms > _SECOND else 1):
            return f"{ms // unit_ms} {name}"
    return f"{ms} ms"


def ago(ms: int, now_ms: int) -> str:
    """How long before now, such as "40 s ago" or "in 3 h"; "never" for 0."""
    if not ms:
        return "never"
    return f"in {duration(ms - now_ms)}" if ms > now_ms else f"{duration(now_ms - ms)} ago"


class Exact(str):
    """A text that a form sends back, which stays as it is."""

    __slots__ = ()


def visible(text: str) -> str:
    """The text with characters that nobody sees, or that turn what follows them around, as ‹U+202E›."""
    return _UNSEEN.sub(lambda one: f"‹U+{ord(one[0]):04X}›", text)


def words(name: str) -> str:
    """The name of an enum's value in words: OVERWRITE_TABLE becomes "overwrite table"."""
    return name.replace("_", " ").lower()
