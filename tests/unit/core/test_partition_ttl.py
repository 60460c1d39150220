"""How long partitions stay, by properties and by the texts in their names."""

from __future__ import annotations

import datetime as dt

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_core.partition_ttl import PartitionTtl, period_end_ms, ttl_of
from lakemark_core.types import DATE, INT, Field, Schema

MS, COLUMN = "lakemark.partition-ttl.ms", "lakemark.partition-ttl.column"
SCHEMA = Schema.build([Field(1, "id", INT), Field(2, "Day", DATE), Field(3, "h", INT)], ["Day", "h"], 1)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("2026", "2027-01-01"),
        ("202611", "2026-12-01"),
        ("2026-12", "2027-01-01"),
        ("20261123", "2026-11-24"),
        ("2024-02-29", "2024-03-01"),
        ("2026112305", "2026-11-23 06:00"),
        ("2026-11-23-23", "2026-11-24"),
        ("2026-11-23 05:30", "2026-11-23 05:31"),
        ("2026-11-23T05:30:59Z", "2026-11-23 05:31"),
        ("2026-11-23 05:30:00.250", "2026-11-23 05:30:01"),
        ("1969-12-30", "1969-12-31"),
        ("1901", "1902-01-01"),
    ],
)
def test_the_end_of_what_a_text_names(text: str, end: str) -> None:
    wanted = dt.datetime.fromisoformat(end).replace(tzinfo=dt.UTC)
    assert period_end_ms(text) == wanted.timestamp() * 1_000


@pytest.mark.parametrize(
    "text",
    ["", "JFK", "1", "20261", "2026-13", "2026-02-30", "20261123053", "2026-11-23-25", "__HIVE_DEFAULT_PARTITION__",
     "-2026", "9999", "9999-12-31", "２０２６", "2026-11-23 ", "12026-11-23",
     "1704110400", "1801015", "1234", "1900", "1900-01-01", "0001-01-01", "1900-12-31 23:59:59"],
)  # fmt: skip
def test_what_names_no_time_has_no_end(text: str) -> None:
    assert period_end_ms(text) is None


def test_partitions_stay_unless_the_table_says_otherwise() -> None:
    assert ttl_of({}) is None
    assert ttl_of({MS: "3600000"}) == PartitionTtl(3_600_000)
    assert ttl_of({MS: "3600000", COLUMN: " day "}) == PartitionTtl(3_600_000, "day")


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({COLUMN: "day"}, "no age is set: set lakemark.partition-ttl.ms"),
        ({MS: "30"}, "from 3600000 on"),
        ({MS: "30 days"}, "is not a number"),
    ],
)
def test_what_contradicts_itself_is_refused(properties: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        ttl_of(properties)


def test_the_column_is_one_by_which_the_table_is_partitioned() -> None:
    ttl = PartitionTtl(3_600_000, "DAY")
    ttl.check(SCHEMA)
    assert ttl.text_of("Day=2026-11-23/h=5", SCHEMA) == "2026-11-23"
    assert PartitionTtl(1, "h").text_of("Day=2026-11-23/h=5", SCHEMA) == "5"
    assert PartitionTtl(1, "id").text_of("Day=2026-11-23/h=5", SCHEMA) is None
    with pytest.raises(InvalidArgument, match="'id' is none of the partition columns Day, h"):
        PartitionTtl(3_600_000, "id").check(SCHEMA)
    with pytest.raises(InvalidArgument, match="for tables with partitions"):
        PartitionTtl(3_600_000).check(Schema.build([Field(1, "id", INT)], [], 1))
