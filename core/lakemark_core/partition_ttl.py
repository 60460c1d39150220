"""How long a table keeps its partitions, as its properties say it (docs/management.md). Pure.

Without ``lakemark.partition-ttl.ms`` partitions stay for ever. With it they go by the time that a partition column
names, or, if no column is given, by their last change.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lakemark_core.errors import InvalidArgument
from lakemark_core.property_values import whole_number
from lakemark_core.types import Schema
from lakemark_core.types.partitions import partition_texts

TTL_PROPERTY: Final = "lakemark.partition-ttl.ms"
COLUMN_PROPERTY: Final = "lakemark.partition-ttl.column"
PROPERTIES: Final = (TTL_PROPERTY, COLUMN_PROPERTY)
TTL_MS_MIN: Final = 3_600_000
"""A shorter time would be a slip: nobody keeps data for seconds, and many write a number of seconds or days."""

YEAR_MIN: Final = 1901
"""Earlier years are none: 1900-01-01 and 0001-01-01 stand for "unknown", and 1704110400 is a number of seconds."""

# 2026, 202611, 2026-11, 20261123, 2026-11-23, 2026112305, 2026-11-23-05, 2026-11-23 05:30, 2026-11-23T05:30:00.25
_TIME: Final = re.compile(
    r"(?P<year>\d{4})(?:-?(?P<month>\d{2})(?:-?(?P<day>\d{2})"
    r"(?:[-T ]?(?P<hour>\d{2})(?::?(?P<minute>\d{2})(?::?(?P<second>\d{2})(?:\.\d{1,9})?)?)?)?)?)?Z?",
    re.ASCII,
)
_LENGTHS: Final = {
    "second": dt.timedelta(seconds=1),
    "minute": dt.timedelta(minutes=1),
    "hour": dt.timedelta(hours=1),
    "day": dt.timedelta(days=1),
}


@dataclass(frozen=True, slots=True)
class PartitionTtl:
    """Made by ``ttl_of``. ``column`` None: partitions go by their last change."""

    ttl_ms: int
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.ttl_ms} by {self.column or 'last change'}"

    def check(self, schema: Schema) -> None:
        """Raises InvalidArgument for a table of this schema that has no such partitions."""
        if not schema.partition_columns:
            raise InvalidArgument(f"{TTL_PROPERTY} is for tables with partitions, and this one has no partition column")
        if self.column is not None and self._place(schema) is None:
            raise InvalidArgument(
                f"{COLUMN_PROPERTY} = {self.column!r} is none of the partition columns "
                f"{', '.join(schema.partition_columns)}"
            )

    def text_of(self, partition: str, schema: Schema) -> str | None:
        """The text of the column in a partition's name; None if the table has no such column any more."""
        place = self._place(schema)
        texts = partition_texts(partition, schema.partition_columns)
        return None if place is None or texts is None else texts[place]

    def _place(self, schema: Schema) -> int | None:
        columns = [column.lower() for column in schema.partition_columns]
        wanted = (self.column or "").lower()
        return columns.index(wanted) if wanted in columns else None


def ttl_of(properties: Mapping[str, str]) -> PartitionTtl | None:
    """The time to live that a table's properties ask for; None: partitions stay. Raises InvalidArgument."""
    if TTL_PROPERTY not in properties:
        if COLUMN_PROPERTY in properties:
            raise InvalidArgument(
                f"{COLUMN_PROPERTY} names a column for the age of partitions, but no age is set: set {TTL_PROPERTY}"
            )
        return None
    ttl_ms = whole_number(properties, TTL_PROPERTY, TTL_MS_MIN)
    column = properties.get(COLUMN_PROPERTY)
    return PartitionTtl(ttl_ms, None if column is None else column.strip())


def period_end_ms(text: str) -> int | None:
    """When the year, month, day, hour, minute or second ends that a text names, in UTC; None: it names none.

    Texts are those of dates and timestamps, and what is usual in partitions: ``2026-11``, ``20261123``,
    ``2026-11-23-05``. Years before YEAR_MIN are none.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    given = {name: int(number) for name, number in match.groupdict().items() if number is not None}
    if given["year"] < YEAR_MIN:
        return None
    try:
        start = dt.datetime(**{"month": 1, "day": 1, **given}, tzinfo=dt.UTC)
        length = next((_LENGTHS[name] for name in _LENGTHS if name in given), None)
        if length is not None:
            end = start + length
        elif "month" in given:
            end = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        else:
            end = start.replace(year=start.year + 1)
    except (ValueError, OverflowError):
        return None
    return int(end.timestamp()) * 1_000
