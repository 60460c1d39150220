"""beeline and PyHive on Spark's Thrift Server, as BI tools come: lake tables are made, written and read."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from benchmarks.peers import environment

from lakemark import Client
from lakemark_server.process import Service
from tests.e2e.spark_runner import interpreter
from tests.thrift_server import BeelineError, ThriftServer

PYHIVE = Path(__file__).with_name("pyhive_client.py")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def server(service: Service, spark_version: str, tmp_path: Path) -> Iterator[ThriftServer]:
    running = ThriftServer(interpreter(spark_version), service.hms_uri, tmp_path / "thrift")
    yield running
    running.close()


def test_beeline_writes_and_reads_lake_tables(client: Client, server: ThriftServer, spark_version: str) -> None:
    database = f"bi{spark_version.replace('.', '')}"
    client.databases.create(database)
    rows = server.beeline(
        f"USE {database}",
        "CREATE TABLE flights (id INT, origin STRING, day DATE) USING parquet PARTITIONED BY (day) "
        "TBLPROPERTIES ('lakemark.type'='lake')",
        "INSERT INTO flights__append VALUES (1, 'JFK', DATE'2026-01-01'), (2, NULL, DATE'2026-01-02')",
        "INSERT INTO flights__append SELECT id + 10, origin, day FROM flights",
        "INSERT INTO flights__overwrite SELECT id, 'EWR', day FROM flights WHERE id = 1",
        "SELECT id, origin, day FROM flights ORDER BY id",
    )
    assert rows == [["1", "EWR", "2026-01-01"], ["2", "NULL", "2026-01-02"], ["12", "NULL", "2026-01-02"]]
    assert [one.metadata["door"] for one in client.timeline.versions(f"{database}.flights")] == [
        "append",
        "append",
        "overwrite",
    ]
    assert server.beeline(f"SELECT count(*) FROM {database}.`flights@v2`") == [["4"]]
    with pytest.raises(BeelineError, match=r"use .*flights__overwrite"):
        server.beeline(f"INSERT OVERWRITE {database}.flights__append TABLE {database}.flights")
    with pytest.raises(BeelineError, match="view"):  # Spark's own words
        server.beeline(f"INSERT INTO {database}.flights VALUES (9, 'x', DATE'2026-01-01')")

    def insert(number: int) -> list[list[str]]:
        values = f"({number}, 'at once', DATE'2026-02-01')"
        return server.beeline(f"INSERT INTO {database}.flights__append VALUES {values}", user=f"user{number}")

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(insert, range(100, 106)))
    counted = server.beeline(f"SELECT count(*), count(DISTINCT id) FROM {database}.flights WHERE origin = 'at once'")
    assert counted == [["6", "6"]]
    assert len(client.timeline.versions(f"{database}.flights")) == 9
    server.beeline(f"DROP VIEW {database}.flights")
    assert server.beeline(f"SHOW TABLES IN {database}") == []


def test_pyhive_writes_and_reads_lake_tables(client: Client, server: ThriftServer, spark_version: str) -> None:
    database = f"hive{spark_version.replace('.', '')}"
    client.databases.create(database)
    client.tables.create(f"{database}.flights", "id int, origin string, day date", partitioned_by=["day"])
    keyed = {"lakemark.primary-key": "id", "lakemark.bucket.count": "2", "lakemark.write.mode": "merge-on-read"}
    client.tables.create(f"{database}.orders", "id int, state string", properties=keyed)
    rows = _pyhive(
        server,
        f"USE {database}",
        "INSERT INTO flights__append VALUES (1, 'JFK', DATE'2026-01-01'), (2, NULL, DATE'2026-01-02')",
        "INSERT INTO flights__append SELECT id + 10, origin, day FROM flights",
        "SELECT id, origin, day FROM flights ORDER BY id",
    )
    days = ["2026-01-01", "2026-01-02"]
    assert rows == [[1, "JFK", days[0]], [2, None, days[1]], [11, "JFK", days[0]], [12, None, days[1]]]
    rows = _pyhive(
        server,
        f"INSERT INTO {database}.orders__upsert VALUES (1, 'new'), (2, 'new')",
        f"INSERT INTO {database}.orders__upsert VALUES (1, 'paid')",
        f"INSERT INTO {database}.orders__delete SELECT 2",
        f"SELECT * FROM {database}.orders",
    )
    assert rows == [[1, "paid"]]
    refused = _pyhive(server, f"INSERT OVERWRITE {database}.flights__append TABLE {database}.flights")
    assert isinstance(refused, dict)
    assert f"use {database}.flights__overwrite" in refused["error"]


def _pyhive(server: ThriftServer, *statements: str) -> list[list[object]] | dict[str, str]:
    """The rows of the last statement, or the error of the first that fails."""
    command = [environment.interpreter(), PYHIVE, str(server.port), "ann", *statements]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=180, check=True)
    answer: list[list[object]] | dict[str, str] = json.loads(ended.stdout)
    return answer
