"""What a lake on S3 costs: ``scripts/bench storage [--json] [--files N] [--partitions P] [--rounds R] [--no-spark]
[--server versitygw]``.

The S3 server is moto's or VersityGW (``python -m tests.programs`` builds it), in a process of its own on this machine,
so times are those of a store without a network. Requests are counted by a proxy; times are taken without it. First one
append of one file by the Python client, and a plan: their requests, and the time of the append beside one on this
machine's disk. Then Spark 4.3 scans a lake table of N files through the Metastore protocol, and a plain table of as
many files in as many partitions on the same server, in turns: once with the lists of files that Spark keeps, once with
none kept.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from tests.e2e.spark_runner import COMPILED, SparkProcess, interpreter
from tests.s3_proxy import S3Proxy
from tests.s3_server import KINDS, S3Server, server_of
from tests.s3a import lakemark_variables, s3a_settings

from benchmarks import machine
from benchmarks.service import Service, running_service
from lakemark import Client, connect
from lakemark_core import storage

BUCKET: Final = "bench"
ROWS: Final = 10_000  # of a file
SPARK: Final = "4.3"
_LISTS_KEPT: Final = "spark.sql.hive.filesourcePartitionFileCacheSize"


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench storage", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    parser.add_argument("--files", type=int, default=128, help="of the tables that are scanned")
    parser.add_argument("--partitions", type=int, default=16, help="of these tables")
    parser.add_argument("--rounds", type=int, default=9, help="how often each thing is timed; the median counts")
    parser.add_argument("--server", choices=KINDS, default=KINDS[0], help="which S3 server")
    parser.add_argument("--no-spark", action="store_true", help="without the scans")
    arguments = parser.parse_args()
    described = machine.description()
    server = server_of(arguments.server)
    try:
        server.make_bucket(BUCKET)
        with tempfile.TemporaryDirectory(prefix="lakemark-bench-") as name:
            result = _appends(server, Path(name), arguments.rounds)
            if not arguments.no_spark:
                result |= _scans(server, Path(name), arguments.files, arguments.partitions, arguments.rounds)
    finally:
        server.close()
    described["load_1min_after"] = round(os.getloadavg()[0], 2)
    for key, value in result.items():
        print(f"{key}: {value}", flush=True)
    if arguments.json:
        versions = machine.versions("lakemark", "pyarrow", "boto3", "moto", "pyspark")
        print(json.dumps({"benchmark": "storage", "machine": described, "versions": versions, **result}))


def _appends(server: S3Server, work: Path, rounds: int) -> dict[str, Any]:
    proxy = S3Proxy(server.endpoint)
    try:
        with _lake(proxy.endpoint, work / "counted") as (_, client):
            _create(client, "db.t")
            _append(client, "db.t", _rows(ROWS))
            proxy.clear()
            _append(client, "db.t", _rows(ROWS))
            append = proxy.counts
            proxy.clear()
            assert len(client.plan("db.t").paths) == 2
            plan = proxy.counts
    finally:
        proxy.close()
    with _lake(server.endpoint, work / "s3") as (_, client):
        on_s3 = _times(client, rounds)
    with _lake("", work / "local") as (_, client):
        on_disk = _times(client, rounds)
    return {
        "append_requests": sum(append.values()),
        "append_operations": append,
        "plan_requests": sum(plan.values()),
        "append_ms": round(on_s3 * 1_000, 2),
        "append_local_ms": round(on_disk * 1_000, 2),
        "append_vs_local": round(on_s3 / on_disk, 2),
    }


def _scans(server: S3Server, work: Path, files: int, partitions: int, rounds: int) -> dict[str, Any]:
    each = max(1, files // partitions)
    with _lake(server.endpoint, work / "scanned", hms=True) as (service, client):
        settings, variables = COMPILED | s3a_settings(SPARK, server.endpoint), lakemark_variables(server.endpoint)
        metastore = f"thrift://127.0.0.1:{service.hms_port}"
        spark_process = SparkProcess(
            interpreter(SPARK), metastore, work / "spark", settings=settings, variables=variables
        )
        with spark_process as spark:
            _create(client, "db.lake")
            spark.sql("CREATE TABLE db.plain (id BIGINT, x DOUBLE, p INT) USING parquet PARTITIONED BY (p)")
            spark.python(f"import lakemark, lakemark_spark as ls; client = lakemark.connect({service.grpc_address!r})")
            for first in range(each):
                spark.python(
                    f"rows = spark.range({ROWS * partitions}).repartition({partitions}, 'id')"
                    f".selectExpr('id', 'id * {first + 1} / 7.0d x', 'cast(id % {partitions} as int) p').cache()\n"
                    "ls.append(rows, 'db.lake', server=client)\n"
                    "rows.repartition('p').write.insertInto('db.plain')"
                )
            tables = ("db.lake", "db.plain")
            counts = {table: len(spark.sql(f"SELECT DISTINCT input_file_name() FROM {table}")) for table in tables}
            kept = _in_turns(spark, tables, rounds)
            spark.python(f"spark.conf.set({_LISTS_KEPT!r}, 0); spark.catalog.refreshTable('db.plain')")
            _append(client, "db.lake", _rows(1))  # a version whose files Spark has not listed
            new = _in_turns(spark, tables, rounds)
    return {
        "scanned_files": counts,
        "scan_ms": kept,
        "scan_vs_plain": round(kept["db.lake"] / kept["db.plain"], 2),
        "scan_and_list_ms": new,
        "scan_and_list_vs_plain": round(new["db.lake"] / new["db.plain"], 2),
    }


def _in_turns(spark: SparkProcess, tables: tuple[str, ...], rounds: int) -> dict[str, float]:
    """Median milliseconds of a scan of each, which is not the first."""
    times: dict[str, list[float]] = {table: [] for table in tables}
    for _ in range(rounds + 1):
        for table in tables:
            times[table].append(_timed(lambda table=table: spark.sql(f"SELECT sum(id), max(x) FROM {table}")))  # type: ignore[misc]
    return {table: round(statistics.median(took[1:]) * 1_000, 1) for table, took in times.items()}


@contextmanager
def _lake(endpoint: str, work: Path, *, hms: bool = False) -> Iterator[tuple[Service, Client]]:
    """A service on this machine's disk (no endpoint) or on the S3 server, and a client that reaches the same."""
    warehouse = f"s3://{BUCKET}/{work.name}" if endpoint else str(work / "warehouse")
    variables = lakemark_variables(endpoint) if endpoint else {}
    os.environ.update(variables)  # the client is in this process
    storage.configure(None)
    settings = {**variables, "LAKEMARK_WAREHOUSE": warehouse, "AWS_EC2_METADATA_DISABLED": "true"}
    with running_service(work, hms=hms, settings=settings) as service, connect(service.grpc_address) as client:
        client.databases.create("db")
        yield service, client


def _create(client: Client, table: str) -> None:
    client.tables.create(table, {"id": "bigint", "x": "double", "p": "int"}, partitioned_by=["p"])


def _rows(count: int) -> pa.Table:
    """Of one partition."""
    ids = range(count)
    return pa.table({"id": ids, "x": [one / 7 for one in ids], "p": pa.array([0] * count, pa.int32())})


def _append(client: Client, table: str, rows: pa.Table) -> None:
    with client.begin(table, "append") as writer:
        writer.write(rows)
        writer.commit()


def _times(client: Client, rounds: int) -> float:
    """Median seconds of an append, which is not the first."""
    _create(client, "db.t")
    rows = _rows(ROWS)
    times = [_timed(lambda: _append(client, "db.t", rows)) for _ in range(rounds + 1)]
    return statistics.median(times[1:])


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
