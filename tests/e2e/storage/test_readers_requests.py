"""How many requests Spark takes to read a lake table and a plain one: the table of docs/storage.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.storage.conftest import SparkWorld

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[3] / "docs" / "storage.md"
OPERATIONS = ("ListObjects", "HeadObject")


def documented() -> dict[str, tuple[int, ...]]:
    text = PAGE.read_text().partition("### What Spark asks for when it reads")[2].partition("\n#")[0]
    rows = re.findall(r"^\| ([^|]+) \|" + r" (\d+) \|" * len(OPERATIONS) + "$", text, re.MULTILINE)
    return {name: tuple(map(int, counts)) for name, *counts in rows}


def test_reading_takes_the_requests_that_are_documented(world: SparkWorld, table: str, spark_version: str) -> None:
    plain = f"{table}_plain"
    world.client.tables.create(table, "id bigint, p int", partitioned_by=["p"])
    world.spark.sql(f"CREATE TABLE {plain} (id BIGINT, p INT) USING parquet PARTITIONED BY (p)")
    for first in (0, 8):
        rows = f"spark.range({first}, {first + 8}, 1, 1).selectExpr('id', 'cast(id % 4 as int) p')"
        world.run(f"ls.append({rows}, t, server=client)", t=table)
        world.run(f"{rows}.coalesce(1).write.insertInto(t)", t=plain)
    measured = {}

    def count(what: str, act: Callable[[], object]) -> None:
        world.proxy.clear()
        act()
        # How often it gets parts of files depends on what S3A still has of them in memory.
        assert set(world.proxy.counts) <= {*OPERATIONS, "GetObject"}
        measured[what] = tuple(world.proxy.counts.get(one, 0) for one in OPERATIONS)

    count("SQL, a version for the first time", lambda: world.sql_ids(table))
    count("SQL, the same version again", lambda: world.sql_ids(table))
    count("SQL, of one of the 4 partitions", lambda: world.spark.sql(f"SELECT id FROM {table} WHERE p = 1"))
    world.run("ls.append(spark.range(1).selectExpr('id', '0 p'), t, server=client)", t=table)
    count("SQL, a version with one file more", lambda: world.sql_ids(table))
    count("PySpark, 9 files of 3 instants", lambda: world.ids(table))
    count("SQL, a plain table of the same files for the first time", lambda: world.sql_ids(plain))
    count("SQL, the plain table again", lambda: world.sql_ids(plain))
    if spark_version == "4.3":
        assert measured == documented()
