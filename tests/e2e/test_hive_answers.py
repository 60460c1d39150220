"""Filters over partitions and statistics of several partitions: the answers are those of Hive's own metastore (2.3)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peers.hive23 import connect
from hmsclient.genthrift.hive_metastore import ttypes as h

from lakemark_core.types import DEFAULT_PARTITION
from lakemark_server.process import Service
from tests.integration.grpc_server import running_service
from tests.integration.hms_objects import database, partition, table

pytestmark = pytest.mark.spark

DB = "answers"
VALUES = {
    "s": ["a", "ab", "b", "a b", "x'y", 'x"y', "10", "9", "A", "a_b", "a.b"],
    "n": ["-3", "-1", "0", "1", "2", "9", "10", "11", "100"],
    "d": ["2023-12-31", "2024-01-01", "2024-02-29", "2024-10-05"],
    "l": ["-9223372036854775808", "0", "5", "12", "9223372036854775807"],
}
KEYS = "s string, n int, d date, l bigint"
FILTERS = 150
PARTITIONS = 60
ROUNDS = 8
DAYS = 8


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Service]:
    with running_service(tmp_path / "ours", hms_enabled=True, hms_port=0) as running:
        yield running


@pytest.fixture
def both(hive23_uri: str, ours: Service, tmp_path: Path) -> Iterator[list[Any]]:
    """Clients of Hive's metastore and of ours, with an empty database."""
    with connect(int(hive23_uri.rpartition(":")[2])) as hive, connect(int(ours.hms_uri.rpartition(":")[2])) as here:
        for number, client in enumerate((hive, here)):
            client.create_database(database(DB, locationUri=f"file:{tmp_path}/{number}"))
        yield [hive, here]
        hive.drop_database(DB, True, True)


# -- filters


class Filters:
    """Filters that Hive 2.3 understands, at random. It can filter by texts, whole numbers and dates only."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def next(self, depth: int = 0) -> str:
        if depth > 2 or self._chance.random() < 0.5:
            return self._condition()
        return f"({self.next(depth + 1)}) {self._chance.choice(['and', 'or'])} {self.next(depth + 1)}"

    def _condition(self) -> str:
        pick = self._chance.choice
        column = pick(list(VALUES))
        name = pick([column, column.upper()])
        kind = self._chance.random()
        if kind < 0.6:
            sign = pick(["=", "!=", "<>", "<", "<=", ">", ">="])
            return f"{name} {sign} {self._literal(column)}"
        if kind < 0.75:
            low, high = self._literal(column), self._literal(column)
            return f"{name} {pick(['between', 'not between'])} {low} and {high}"
        if kind < 0.9:
            members = ", ".join(self._literal(column) for _ in range(self._chance.randint(1, 3)))
            return f"({name}) {pick(['in', 'not in'])} ({members})"
        return f's like "{pick(["a.*", ".*b", ".*a.*", "a.b", "1.*"])}"'

    def _literal(self, column: str) -> str:
        value = self._chance.choice(VALUES[column])
        if column == "s":
            return f'"{value}"' if '"' not in value else f"'{value}'"
        return f'"{value}"' if column == "d" and self._chance.random() < 0.3 else value


def test_filters_select_what_hive_selects(both: list[Any]) -> None:
    """But for partitions with a null: Hive compares its text, ``__HIVE_DEFAULT_PARTITION__``, with other texts."""
    chance = random.Random(5)
    rows = set[tuple[str, ...]]()
    while len(rows) < PARTITIONS:
        rows.add(tuple(DEFAULT_PARTITION if chance.random() < 0.1 else chance.choice(of) for of in VALUES.values()))
    for client in both:
        client.create_table(table("t", db=DB, cols="a int", keys=KEYS))
        client.add_partitions([partition(list(row), of="t", db=DB) for row in sorted(rows)])
    filters, compared = Filters(chance), 0
    for _ in range(FILTERS):
        text = filters.next()
        try:
            theirs = selected(both[0], text)
        except h.MetaException:  # what Hive 2.3 cannot filter by, as numbers beside texts
            assert selected(both[1], text) <= rows
            continue
        found = selected(both[1], text)
        assert found <= theirs, text
        assert all(DEFAULT_PARTITION in row for row in theirs - found), text
        compared += 1
    assert compared > FILTERS // 2


def selected(client: Any, text: str) -> set[tuple[str, ...]]:
    return {tuple(one.values) for one in client.get_partitions_by_filter(DB, "t", text, -1)}


# -- statistics of several partitions

COLUMNS = "whole bigint, real double, text string, bytes binary, flag boolean, price decimal(5,0), day date"


def statistics(chance: random.Random) -> list[h.ColumnStatisticsObj]:
    """Of each kind of column. No two partitions have the same bounds: which of them counts is for Hive's database."""
    nulls, distinct, long = chance.randint(0, 100), chance.randint(1, 9_999), chance.randint(1, 10**6)
    low, high = sorted(chance.sample(range(-(10**6), 10**6), 2))
    least, most = sorted(chance.sample(range(-9_999, 9_999), 2))
    kinds: list[tuple[str, str, str, Any]] = [
        ("whole", "bigint", "longStats", h.LongColumnStatsData(low, high, nulls, distinct)),
        ("real", "double", "doubleStats", h.DoubleColumnStatsData(low / 8, high / 8, nulls, distinct)),
        ("text", "string", "stringStats", h.StringColumnStatsData(long, long / 3, nulls, distinct)),
        ("bytes", "binary", "binaryStats", h.BinaryColumnStatsData(long, long / 3, nulls)),
        ("flag", "boolean", "booleanStats", h.BooleanColumnStatsData(long, distinct, nulls)),
        # Hive on Derby takes decimals, and numbers of distinct values, for whole numbers of five digits.
        (
            "price",
            "decimal(5,0)",
            "decimalStats",
            h.DecimalColumnStatsData(whole_decimal(least), whole_decimal(most), nulls, distinct),
        ),
        ("day", "date", "dateStats", h.DateColumnStatsData(h.Date(least), h.Date(most), nulls, distinct)),
    ]
    return [h.ColumnStatisticsObj(name, kind, h.ColumnStatisticsData(**{at: data})) for name, kind, at, data in kinds]


def whole_decimal(number: int) -> h.Decimal:
    return h.Decimal(unscaled=number.to_bytes(4, "big", signed=True), scale=0)


def test_statistics_of_partitions_are_aggregated_as_by_hive(both: list[Any]) -> None:
    """With and without partitions that have none: those are extrapolated."""
    chance = random.Random(7)
    names = [f"p={day}" for day in range(DAYS)]
    for turn in range(ROUNDS):
        name = f"t{turn}"
        for client in both:
            client.create_table(table(name, db=DB, cols=COLUMNS, keys="p string"))
            client.add_partitions([partition([str(day)], of=name, db=DB) for day in range(DAYS)])
        for day in names:
            if turn < 2 or chance.random() < 0.7:
                some = [one for one in statistics(chance) if turn < 2 or chance.random() < 0.85]
                for client in both if some else ():
                    place = h.ColumnStatisticsDesc(False, DB, name, day)
                    client.update_partition_column_statistics(h.ColumnStatistics(place, some))
        wanted = chance.sample(names, chance.randint(2, DAYS))
        columns = [column.split()[0] for column in COLUMNS.split(", ")]
        request = h.PartitionsStatsRequest(DB, name, columns, wanted + ["p=77"] * (turn % 3 == 2))
        theirs, found = (client.get_aggr_stats_for(request) for client in both)
        assert found.partsFound == theirs.partsFound
        assert numbers(found.colStats) == pytest.approx(numbers(theirs.colStats), rel=1e-9, abs=1), turn


def numbers(structs: Sequence[h.ColumnStatisticsObj]) -> dict[tuple[str, str], float]:
    """The statistics by column and field; what is not known is left out."""
    told: dict[tuple[str, str], float] = {}
    for one in structs:
        (data,) = (value for value in vars(one.statsData).values() if value is not None)
        for field, value in vars(data).items():
            if value is not None:
                told[one.colName, field] = number(value)
    return told


def number(value: Any) -> float:
    """A bound or a count as a number."""
    if isinstance(value, h.Date):
        return float(value.daysSinceEpoch)
    if isinstance(value, h.Decimal):
        return float(int.from_bytes(value.unscaled, "big", signed=True) / 10**value.scale)
    return float(value)
