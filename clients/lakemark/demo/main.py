"""Runs the demo: a server of its own, plain Spark, all parts of the tour, and the table of checks."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pyspark
from rich.console import Console

import lakemark
from lakemark.demo import flights, managed, session, warehouse
from lakemark.demo.lake import TABLE, LakeTour
from lakemark.demo.report import Report
from lakemark.demo.service import Served


def run(directory: Path | None = None, console: Console | None = None, *, keep: bool = False) -> int:
    """Returns 0 if every check passed, else 1. Works in ``directory``, or in a temporary one.

    ``keep``: the service, the directory and the tables stay.
    """
    report = Report(console or Console())
    with ExitStack() as stack:
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            place = directory.resolve()
        elif keep:
            place = Path(tempfile.mkdtemp(prefix="lakemark-demo-"))
        else:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lakemark-demo-")))
        served = _tour(place, report, keep=keep)
    report.summary()
    if keep:
        report.chapter("What you can try now")
        report.say(f"The service is running as process {served.pid}; its store and tables are in {place}")
        report.commands(commands(served))
        report.say(f"End it with: kill {served.pid}")
    return 0 if report.passed else 1


def commands(served: Served) -> list[str]:
    """Three commands that show the tables of a demo that was kept."""
    programs = Path(sys.executable).parent
    java = os.environ.get("JAVA_HOME")
    lakemark_command = [str(programs / "lakemark"), "--server", served.grpc]
    spark = [str(programs / "spark-sql"), "--conf", f"spark.hive.metastore.uris={served.hms}", "-e"]
    of_java = f"JAVA_HOME={shlex.quote(java)} " if java else ""
    return [
        shlex.join([*lakemark_command, "timeline", "show", TABLE]),
        shlex.join([*lakemark_command, "plan", TABLE, "--where", "month > 2 AND day = 31 AND distance >= 2500"]),
        of_java + shlex.join([*spark, f"SELECT origin, count(*) FROM {TABLE} GROUP BY origin"]),
    ]


def _tour(directory: Path, report: Report, *, keep: bool) -> Served:
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
        report.check("Spark", spark.version, pyspark.__version__)
        spark.read.parquet(str(data.path)).createOrReplaceTempView("source")
        sql = session.Sql(spark, report)
        warehouse.tour(sql, report, data)
        with lakemark.connect(served.grpc) as client:
            managed.tour(sql, report, data, client, served.grpc, directory)
            LakeTour(sql, report, data, client, served.grpc, directory).run(keep=keep)
        served.stays = keep
    return served
