"""Several PySpark and gRPC writers commit at once while plain Spark reads.

Each read must equal some committed version, whole; and of two reads one after the other the second never sees an older
version. Every writer adds rows that name their commit, so that what a reader saw tells which version it was.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

import pyarrow as pa
import pytest

from lakemark import Client, connect
from lakemark_server.process import Service
from lakemark_server.settings import Settings
from tests.e2e.spark_runner import SparkProcess, interpreter

pytestmark = pytest.mark.spark

GRPC_WRITERS = 3
GRPC_COMMITS = 12
SPARK_COMMITS = 3
ROWS = 7


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    settings = Settings(
        store=f"sqlite:///{tmp_path}/lakemark.db", warehouse=str(tmp_path / "warehouse"), grpc_port=0, hms_port=0
    )
    with Service(settings) as running:
        yield running


def test_readers_see_versions_in_order_while_writers_commit(service: Service, tmp_path: Path) -> None:
    for name in ("reader", "writer"):
        (tmp_path / name).mkdir()
    with (
        SparkProcess(interpreter("4.3"), service.hms_uri, tmp_path / "reader") as reader,
        SparkProcess(interpreter("4.3"), service.hms_uri, tmp_path / "writer") as writer,
        connect(service.grpc_address) as client,
        ThreadPoolExecutor(GRPC_WRITERS + 2) as pool,
    ):
        reader.sql(
            "CREATE TABLE t (tag STRING, n INT, m INT) USING parquet PARTITIONED BY (m) "
            "TBLPROPERTIES ('lakemark.type'='lake')"
        )
        done = threading.Event()
        seen = pool.submit(_read_until, reader, done)
        jobs = [pool.submit(_write_by_grpc, client, number) for number in range(GRPC_WRITERS)]
        jobs.append(pool.submit(_write_by_spark, writer, service.grpc_address))
        try:
            committed = {version: tag for job in jobs for version, tag in job.result()}
        finally:
            done.set()
        reads = seen.result()

        total = GRPC_WRITERS * GRPC_COMMITS + 2 * SPARK_COMMITS
        assert sorted(committed) == list(range(1, total + 1))
        tags = [frozenset(committed[version] for version in range(1, at + 1)) for at in range(total + 1)]
        versions = []
        for read in reads:
            assert set(read.values()) <= {ROWS}, "a commit was seen in part"
            assert frozenset(read) in tags, "what was read is no version"
            versions.append(len(read))
        assert versions == sorted(versions), "a reader went back"
        assert versions[-1] == total
        assert len(set(versions)) > 3, "the readers saw too little of it to prove anything"


def _read_until(spark: SparkProcess, done: threading.Event) -> list[dict[str, int]]:
    """Rows by tag, of each read; the last one after everything was committed."""
    reads = []
    while True:
        last = done.is_set()
        reads.append(dict(spark.sql("SELECT tag, count(*) FROM t GROUP BY tag")))
        if last:
            return reads


def _write_by_grpc(client: Client, number: int) -> list[tuple[int, str]]:
    committed = []
    for commit in range(GRPC_COMMITS):
        tag = f"grpc-{number}-{commit}"
        rows = pa.table(
            {
                "tag": [tag] * ROWS,
                "n": pa.array(range(ROWS), pa.int32()),
                "m": pa.array([commit % 4] * ROWS, pa.int32()),
            }
        )
        with client.begin("default.t", "append") as writer:
            writer.write(rows)
            committed.append((writer.commit().version, tag))
    return committed


def _write_by_spark(spark: SparkProcess, server: str) -> list[tuple[int, str]]:
    """Two threads of one Spark."""
    found = spark.python(
        dedent(f"""
        import lakemark_spark
        from concurrent.futures import ThreadPoolExecutor

        def write(tag):
            df = spark.range({ROWS}).selectExpr(f"'{{tag}}' AS tag", "CAST(id AS INT) AS n", "CAST(id % 4 AS INT) AS m")
            return (lakemark_spark.append(df, "default.t", server={server!r}).version, tag)

        with ThreadPoolExecutor(2) as pool:
            result = [list(one) for one in pool.map(write, [f"spark-{{n}}" for n in range({2 * SPARK_COMMITS})])]
        """)
    )
    return [(version, tag) for version, tag in found]
