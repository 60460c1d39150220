"""Texts to dates and timestamps, by the rules by which Spark casts strings."""

from __future__ import annotations

import datetime
import re
import zoneinfo

from lakemark.errors import InvalidPredicate

_DATE = r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})"
_CLOCK = r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?"
_ZONE = r"(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?|\w+/[\w/]+)"
_DATE_TEXT = re.compile(_DATE + r"(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIMESTAMP_TEXT = re.compile(_DATE + rf"(?:[ T]{_CLOCK})?\s*{_ZONE}?)?)?", re.ASCII)
_OFFSET = re.compile(r"([+-])(\d{1,2})(?::?(\d{2}))?")


def parse_date(text: str) -> datetime.date:
    """``2013``, ``2013-1`` or ``2013-01-31``, whatever follows after a space or ``T``. Raises InvalidPredicate."""
    match = _DATE_TEXT.fullmatch(text.strip())
    if match:
        year, month, day = (int(part or 1) for part in match.groups())
        try:
            return datetime.date(year, month, day)
        except ValueError:
            pass
    raise InvalidPredicate(f"'{text}' is not a date; write it as '2013-01-31'")


def parse_timestamp(text: str) -> datetime.datetime:
    """A date with or without time and time zone, as an instant in UTC; without a zone it is taken as UTC.

    Digits behind the microseconds are cut off. Raises InvalidPredicate.
    """
    match = _TIMESTAMP_TEXT.fullmatch(text.strip())
    if match:
        year, month, day, hour, minute, second, fraction, zone = match.groups()
        clock = (int(hour or 0), int(minute or 0), int(second or 0), int((fraction or "").ljust(6, "0")[:6]))
        try:
            local = datetime.datetime(int(year), int(month or 1), int(day or 1), *clock, tzinfo=_zone(zone))
            return local.astimezone(datetime.UTC)
        except (ValueError, OverflowError, zoneinfo.ZoneInfoNotFoundError):
            pass
    raise InvalidPredicate(f"'{text}' is not a timestamp; write it as '2013-01-31 12:30:00' or with a zone behind it")


def _zone(text: str | None) -> datetime.tzinfo:
    if text is None or text in ("Z", "UTC", "GMT"):
        return datetime.UTC
    match = _OFFSET.fullmatch(text)
    if match is None:
        return zoneinfo.ZoneInfo(text)
    offset = datetime.timedelta(hours=int(match.group(2)), minutes=int(match.group(3) or 0))
    return datetime.timezone(offset if match.group(1) == "+" else -offset)
