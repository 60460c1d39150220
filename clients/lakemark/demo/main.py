"""Runs the demo: a server of its own, plain Spark, all parts of the tour, and the table of checks."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

import lakemark
from lakemark.demo import flights, managed, session, warehouse
from lakemark.demo.lake import LakeTour
from lakemark.demo.report import Report
from lakemark.demo.service import Served


def run(directory: Path | None = None, console: Console | None = None) -> int:
    """Returns 0 if every check passed, else 1. Works in ``directory``, or in a temporary one."""
    report = Report(console or Console())
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="lakemark-demo-") as made:
            _tour(Path(made), report)
    else:
        directory.mkdir(parents=True, exist_ok=True)
        _tour(directory.resolve(), report)
    report.summary()
    return 0 if report.passed else 1


def _tour(directory: Path, report: Report) -> None:
    report.chapter("Setting up")
    with report.step("reading the flights of 2013"):
        data = flights.load(directory)
    report.check("flights read", data.table.num_rows, 336_776)
    with ExitStack() as stack:
        with report.step("starting lakemark serve on SQLite"):
            served = stack.enter_context(Served(directory))
        report.say(f"gRPC on {served.grpc}, Hive Metastore on {served.hms}, log in {served.log}")
        with report.step("starting plain pyspark, told only spark.hive.metastore.uris and to use its Hive catalog"):
            spark = session.start(served.hms, directory)
        stack.callback(spark.stop)
        report.check("Spark", spark.version.partition(".")[0], "4")
        spark.read.parquet(str(data.path)).createOrReplaceTempView("source")
        sql = session.Sql(spark, report)
        warehouse.tour(sql, report, data)
        with lakemark.connect(served.grpc) as client:
            managed.tour(sql, report, data, client, served.grpc, directory)
            LakeTour(sql, report, data, client, served.grpc, directory).run()
