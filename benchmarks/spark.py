"""PySpark on lake tables beside plain parquet, Hudi and Iceberg: ``scripts/bench spark [--json] [--rows N] [--rounds R]
[--parts files,…]``.

Spark 3.5 on two cores (``local[2]``), since that is what the bundles of both peers are for; all of them run in the same
session. Tables have 8 partitions, and those with a key 4 buckets in each; Hudi has its bucket index, Iceberg the same
buckets as a partition transform. Parts, each in a Spark of its own:

* ``files``: appends, and scans through the Metastore protocol, beside plain parquet files;
* ``points``: queries for a key, beside a scan of these;
* ``mor``, ``cow``: upserts of 1 % of the keys and of one row, merged on read or copied on write in all three systems;
* ``merges``: scans with 10 % of the rows in deltas, in all three systems, and compaction beside a plain rewrite;
* ``concurrent``: eight writers of one table;
* ``rewrites``: what folding the deltas of a stream writes, by a service that plans and a worker, by Hudi's inline
  compaction, and by Iceberg's ``rewrite_data_files``.

In ``x_vs_y`` more is better: the seconds of the other one, by ours. Only ``mor_scan_vs_compacted`` is the time of a
scan with deltas by that of the compacted table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.e2e.spark_runner import REPOSITORY, SparkProcess, as_users_run_it, interpreter

from benchmarks import machine
from benchmarks.peers.jars import jars
from benchmarks.service import Service, running_service
from lakemark import connect

SPARK: Final = "3.5"
PARTS: Final[Mapping[str, str]] = {
    "files": "spark_work.files(work)",
    "points": "spark_work.points(work)",
    "mor": "spark_work.upserts(work, 'merge-on-read')",
    "cow": "spark_work.upserts(work, 'copy-on-write')",
    "merges": "spark_work.merges(work)",
    "concurrent": "spark_work.concurrent(work)",
    "rewrites": "spark_rewrites.rewrites(work)",
}
_RATIOS: Final = {
    "append_vs_parquet": ("append_parquet_s", "append_s"),
    "append_gathered_vs_parquet": ("append_gathered_parquet_s", "append_gathered_s"),
    "scan_vs_parquet": ("scan_parquet_s", "scan_s"),
    "point_query_speedup": ("point_query_parquet_s", "point_query_s"),
    "upsert_vs_hudi": ("upsert_hudi_s", "upsert_s"),
    "upsert_vs_iceberg": ("upsert_iceberg_s", "upsert_s"),
    "cow_upsert_vs_hudi": ("cow_upsert_hudi_s", "cow_upsert_s"),
    "cow_upsert_vs_iceberg": ("cow_upsert_iceberg_s", "cow_upsert_s"),
    "mor_scan_vs_compacted": ("mor_scan_s", "compacted_scan_s"),
    "mor_scan_vs_hudi": ("mor_scan_hudi_s", "mor_scan_s"),
    "mor_scan_vs_iceberg": ("mor_scan_iceberg_s", "mor_scan_s"),
    "compaction_vs_parquet": ("rewrite_parquet_s", "compaction_s"),
    "concurrent_vs_hudi": ("concurrent_hudi_s", "concurrent_s"),
}
_PLANS: Final = {"LAKEMARK_OPTIMIZER": "true"}
"""Without a worker, which only the part ``rewrites`` has, nothing is optimized."""
_PART_S_MAX: Final = 7_200.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench spark", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="how often long steps are timed; the median counts")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of these, separated by commas")
    arguments = parser.parse_args()
    asked = arguments.parts.split(",")
    if unknown := set(asked) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}: parts are {', '.join(PARTS)}")
    parts = [part for part in PARTS if part in asked]
    subprocess.run([REPOSITORY / "scripts" / "setup", "--spark35"], check=True, stdout=subprocess.DEVNULL)
    described = machine.description()
    with tempfile.TemporaryDirectory(prefix="lakemark-bench-", dir=REPOSITORY / "build") as name:
        seconds = _measure(Path(name), parts, arguments.rows, arguments.rounds)
    described["load_1min_after"] = round(os.getloadavg()[0], 2)
    result = {"rows": arguments.rows, **_figures(seconds)}
    for key, value in result.items():
        print(f"{key}: {value}", flush=True)
    if arguments.json:
        versions = machine.versions("lakemark") | {
            "spark": SPARK,
            **{system: jars(f"{system}, Spark {SPARK}")[0].stem for system in ("hudi", "iceberg")},
        }
        print(json.dumps({"benchmark": "spark", "machine": described, "versions": versions, **result}))


def _measure(work: Path, parts: list[str], rows: int, rounds: int) -> dict[str, Any]:
    seconds: dict[str, Any] = {}
    with running_service(work / "service", hms=True, settings=_PLANS if "rewrites" in parts else {}) as service:
        with connect(service.grpc_address) as client:
            client.databases.create("db")
        for part in parts:
            # The part ``files`` makes the rows that all others read.
            before = "" if "files" in parts or part != parts[0] else "work.make_source(); work.make_tree()"
            with _spark(service, work / f"spark-{part}") as spark:
                took = spark.python(
                    "import lakemark\nfrom benchmarks import spark_rewrites, spark_work\n"
                    f"client = lakemark.connect({service.grpc_address!r})\n"
                    f"work = spark_work.Work(spark, client, {(work / 'data').as_uri()!r}, {rows}, {rounds})\n"
                    f"{before}\nresult = {PARTS[part]}",
                    timeout_s=_PART_S_MAX,
                )
            print(f"{part}: {took}", file=sys.stderr, flush=True)
            seconds |= took
    return seconds


def _spark(service: Service, work: Path) -> SparkProcess:
    sets = [path for system in ("hudi", "iceberg") for path in jars(f"{system}, Spark {SPARK}")]
    settings = as_users_run_it(work) | {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, sets)),
        "spark.driver.memory": "6g",
        "spark.sql.shuffle.partitions": "16",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": (work / "iceberg").as_uri(),
    }
    variables = {"PYTHONPATH": str(REPOSITORY)}
    metastore = f"thrift://127.0.0.1:{service.hms_port}"
    return SparkProcess(interpreter(SPARK), metastore, work, settings=settings, variables=variables)


def _figures(seconds: Mapping[str, Any]) -> dict[str, Any]:
    """The ratios whose both sides were measured, then what was measured."""
    ratios = {
        name: round(seconds[over] / seconds[under], 2)
        for name, (over, under) in _RATIOS.items()
        if over in seconds and under in seconds
    }
    return ratios | {name: round(value, 3) for name, value in seconds.items()}


if __name__ == "__main__":
    main()
