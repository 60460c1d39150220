"""What the part ``rewrites`` of the ``spark`` benchmark does inside Spark: one stream of upserts into a merge-on-read
table of each system, of which each folds its deltas in its own way.

Lakemark: the service plans and a worker (pyarrow) folds beside the writer. Hudi: inline compaction. Iceberg:
``rewrite_data_files``, called by the writer. All of them after ``EVERY`` commits. ``write_amplification``: bytes that
were written again by bytes that the stream has written; the load before it does not count.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pyspark.sql import DataFrame

import lakemark_spark
from benchmarks.spark_work import Hudi, Iceberg, Work
from lakemark_optimizer.arrow import ArrowExecutor
from lakemark_optimizer.worker import Worker

EVERY: Final = 8
"""Commits after which deltas are folded; the stream has so many for each round."""
CHANGED: Final = 200
"""A commit changes one row in so many."""
_QUERY: Final = "count(*) n, sum(v) v, max(x) x, sum(at) at"
_IDLE_S_MAX: Final = 120.0
_TABLE: Final = "db.stream"


def rewrites(work: Work) -> dict[str, Any]:
    """Bytes, and the seconds of a scan after the stream."""
    source = work.source()
    properties = {
        "primary_key": "id,p",
        "bucket__count": "4",
        "write__mode": "merge-on-read",
        "optimize__minor__delta_commits": str(EVERY),
        "optimize__major__delete_percent": "100",
        "optimize__interval_min_ms": "0",
    }
    work.create(_TABLE, **properties)
    hudi = Hudi(
        work,
        "stream",
        "merge-on-read",
        {
            "hoodie.compact.inline": "true",
            "hoodie.compact.inline.max.delta.commits": str(EVERY),
            "hoodie.clean.automatic": "false",  # so that all that was ever written can be counted
        },
    )
    iceberg = Iceberg(work, "stream", "merge-on-read")
    lakemark_spark.overwrite(source, _TABLE, server=work.client)
    hudi.load(source)
    iceberg.load(source)
    loaded = hudi_files(hudi)
    worker = Worker(work.client, "default", {"arrow": ArrowExecutor(work.client)}, 2)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        for number in range(EVERY * work.rounds):
            rows = _changes(work, number)
            lakemark_spark.upsert(rows, _TABLE, server=work.client)
            hudi.upsert(rows)
            iceberg.upsert(rows)
            if not (number + 1) % EVERY:
                _rewrite(work, iceberg)
        _wait(work)
    finally:
        worker.stop()
        thread.join()
    scans = {
        "": work.spark.table(_TABLE),
        "_hudi": hudi.rows(),
        "_iceberg": work.spark.table(iceberg.table),
    }
    answers, took = {}, {}
    for name, frame in scans.items():
        began = time.perf_counter()
        answers[name] = frame.selectExpr(*_QUERY.split(", ")).collect()
        took[f"rewrites_scan{name}_s"] = time.perf_counter() - began
    assert answers[""] == answers["_hudi"] == answers["_iceberg"], answers
    written = {"": _ours(work), "_hudi": _of_hudi(hudi, loaded), "_iceberg": _of_iceberg(work, iceberg)}
    figures: dict[str, Any] = {}
    for name, (stream, again) in written.items():
        figures[f"write_amplification{name}"] = again / max(1, stream)
        figures[f"stream{name}_bytes"], figures[f"rewritten{name}_bytes"] = stream, again
    return figures | took


def _changes(work: Work, number: int) -> DataFrame:
    rows = work.source().where(f"pmod(v, {CHANGED}) = {number}")
    return rows.selectExpr("id", "v", f"x + {number} x", "s", f"{number + 1}L at", "p").localCheckpoint()


def _rewrite(work: Work, iceberg: Iceberg) -> None:
    table = iceberg.table.removeprefix("ice.")
    work.spark.sql(
        f"CALL ice.system.rewrite_data_files(table => '{table}', "
        "options => map('delete-file-threshold', '1', 'min-input-files', '2'))"
    ).collect()


def _wait(work: Work) -> None:
    """Until nothing is folded any more."""
    until_s = time.monotonic() + _IDLE_S_MAX
    while time.monotonic() < until_s:
        told = work.client.optimizations.explain(_TABLE)
        if told.state == "idle" and not told.tasks:
            return
        time.sleep(0.2)
    raise AssertionError("the table did not come to rest")


def _ours(work: Work) -> tuple[int, int]:
    versions = list(work.client.timeline.versions(_TABLE, limit=10_000))
    stream = sum(one.added_bytes for one in versions if one.operation == "upsert")
    return stream, sum(one.added_bytes for one in versions if one.operation == "compact")


def hudi_files(hudi: Hudi) -> dict[str, int]:
    """The sizes of all data files of a table, by their paths."""
    root = Path(urlsplit(hudi.path).path)
    files = (path for path in root.rglob("*") if path.is_file() and ".hoodie" not in path.parts)
    return {
        str(path): path.stat().st_size
        for path in files
        if not path.name.endswith(".crc") and (path.suffix == ".parquet" or ".log." in path.name)
    }


def _of_hudi(hudi: Hudi, loaded: dict[str, int]) -> tuple[int, int]:
    made = {path: size for path, size in hudi_files(hudi).items() if path not in loaded}
    again = sum(size for path, size in made.items() if path.endswith(".parquet"))
    return sum(made.values()) - again, again


def _of_iceberg(work: Work, iceberg: Iceberg) -> tuple[int, int]:
    rows = work.spark.sql(
        f"SELECT operation, cast(summary['added-files-size'] as bigint) size FROM {iceberg.table}.snapshots"
    ).collect()
    again = sum(row["size"] or 0 for row in rows if row["operation"] == "replace")
    return sum(row["size"] or 0 for row in rows if row["operation"] == "overwrite"), again
