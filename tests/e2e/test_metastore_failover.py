"""Spark with the addresses of two services on one store does not notice that one of them is killed.

Only a store that several processes share can prove it: ``scripts/test-postgres tests/e2e/test_metastore_failover.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.spark_runner import SparkProcess, interpreter
from tests.fault.killable import Killable
from tests.stores import STORE_VARIABLE, store_url
from tests.trino_server import free_port

pytestmark = pytest.mark.skipif(
    os.environ.get(STORE_VARIABLE, "sqlite") == "sqlite", reason="one process at a time serves a SQLite store"
)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[tuple[Killable, Killable]]:
    first, second = (
        Killable(store_url(tmp_path), str(tmp_path / "warehouse"), hms_enabled=True, hms_port=free_port())
        for _ in range(2)
    )
    first.start()
    second.start()
    yield first, second
    first.end()
    second.end()


def test_spark_goes_on_with_the_other_service(services: tuple[Killable, Killable], tmp_path: Path) -> None:
    uris = ",".join(one.address("hms") for one in services)
    # Hive's client takes the addresses in a random order unless it is told otherwise.
    in_order = {"spark.hadoop.hive.metastore.uri.selection": "SEQUENTIAL"}
    spark = SparkProcess(interpreter("4.3"), uris, tmp_path / "spark", settings=in_order)
    try:
        spark.sql("CREATE TABLE kept (id BIGINT, day STRING) USING hive PARTITIONED BY (day)")
        for number, killed in enumerate((None, services[0], None, services[1], services[0])):
            if killed is not None:
                killed.kill()
            spark.sql(f"INSERT INTO kept PARTITION (day = 'd{number}') VALUES ({number})")
            assert spark.sql("SELECT count(*), max(id) FROM kept") == [(number + 1, number)]
            assert len(spark.sql("SHOW PARTITIONS kept")) == number + 1
            if killed is not None:
                killed.start()
    finally:
        spark.close()
