"""Texts to dates and timestamps, by the rules by which Spark casts strings."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from typing import Final

from lakemark_core.errors import InvalidPredicate

_SPACE: Final = "".join(map(chr, range(33))) + "\x7f"
_YEAR = r"\+?0{0,2}(\d{4})"
_DAY = r"-(\d{1,2})(?:-(\d{1,2})"
_CLOCK = r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?\s*"
_ZONE = r"(Z|(?:UTC|GMT|UT)?[+-]\d{1,2}(?::\d{1,2})?|[+-]\d{4}|UTC|GMT|UT|[A-Za-z_]+(?:/[\w+-]+)+)?"
_DATE_TEXT = re.compile(_YEAR + rf"(?:{_DAY}(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIMESTAMP_TEXT = re.compile(_YEAR + rf"(?:{_DAY}(?:[ T]{_CLOCK}{_ZONE})?)?)?)?)?", re.ASCII)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{1,2}))?")
_OFFSET_MAX: Final = datetime.timedelta(hours=18)


def trim(text: str) -> str:
    """Without the white space and control characters of ASCII at both ends, as Spark's casts do it."""
    return text.strip(_SPACE)


def parse_date(text: str) -> datetime.date:
    """``2013``, ``2013-1`` or ``2013-01-31``, whatever follows after a space or ``T``. Raises InvalidPredicate."""
    match = _DATE_TEXT.fullmatch(trim(text))
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
    moment = _local_and_zone(text)
    if moment is not None:
        local, zone = moment
        try:
            return local.replace(tzinfo=zone).astimezone(datetime.UTC)
        except OverflowError:
            pass
    raise InvalidPredicate(f"'{text}' is not a timestamp; write it as '2013-01-31 12:30:00' or with a zone behind it")


def parse_local(text: str) -> datetime.datetime:
    """The wall-clock time of a text: a zone in it is passed over, as Spark does. Raises InvalidPredicate."""
    moment = _local_and_zone(text)
    if moment is None:
        raise InvalidPredicate(f"'{text}' is not a timestamp; write it as '2013-01-31 12:30:00'")
    return moment[0]


def _local_and_zone(text: str) -> tuple[datetime.datetime, datetime.tzinfo] | None:
    match = _TIMESTAMP_TEXT.fullmatch(trim(text))
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    clock = (int(hour or 0), int(minute or 0), int(second or 0), int((fraction or "").ljust(6, "0")[:6]))
    try:
        return datetime.datetime(int(year), int(month or 1), int(day or 1), *clock), _zone(zone)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return None


def _zone(text: str | None) -> datetime.tzinfo:
    if text is None or text in ("Z", "UTC", "GMT", "UT"):
        return datetime.UTC
    match = _OFFSET.fullmatch(text)
    if match is None:
        return zoneinfo.ZoneInfo(text)
    minutes = int(match.group(3) or 0)
    offset = datetime.timedelta(hours=int(match.group(2)), minutes=minutes)
    if minutes > 59 or offset > _OFFSET_MAX:
        raise ValueError(text)
    return datetime.timezone(offset if match.group(1) == "+" else -offset)
