"""A table that looks after itself: small files are merged while they are written and read, and the reasons are told."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import lakemark
from lakemark.client.optimization import OptimizationTask
from lakemark.demo.flights import COLUMNS, Flights
from lakemark.demo.report import Report
from lakemark.demo.session import Sql

TABLE: Final = "air.stream"
GROUP: Final = "demo"
DAYS: Final = 30
_WAIT_S_MAX: Final = 60.0
_STOP_S_MAX: Final = 20


def tour(sql: Sql, report: Report, flights: Flights, client: lakemark.Client, server: str, directory: Path) -> None:
    """Expects the database ``air``, and a service that plans."""
    report.chapter("A table that looks after itself")
    sql(
        f"CREATE TABLE {TABLE} ({COLUMNS}) USING parquet TBLPROPERTIES ('lakemark.type'='lake', "
        f"'lakemark.optimize.group'='{GROUP}', 'lakemark.optimize.interval-min-ms'='0', "
        "'lakemark.optimize.minor.fragments'='8')"
    )
    days = [flights.of_day(1, day) for day in range(1, DAYS + 1)]
    report.say(f"lakemark optimizer run --group {GROUP}")
    with _worker(server, directory / "worker.log"):
        right = rows = 0
        with report.step(f"{DAYS} commits, one for each day; after each, SELECT count(*) by plain SQL"):
            for day in days:
                with client.begin(TABLE) as writer:
                    writer.write(day)
                    writer.commit()
                rows += day.num_rows
                right += sql.one(f"SELECT count(*) FROM {TABLE}") == rows
        report.check("commits after which plain SQL saw each row once", right, DAYS)
        report.say(f"lakemark optimize why {TABLE}")
        report.say(client.optimizations.explain(TABLE).reason)
        with report.step("waiting until nothing is left to do"):
            _until(lambda: _is_at_rest(client))
        told = client.optimizations.explain(TABLE)
        report.say(f"{told.state}: {told.reason}")
        runs = [run for run in client.optimizations.runs(TABLE) if run.state == "done"]
        for run in reversed(runs):
            report.say(f"{run.kind} run, {run.files_before} files → {run.files_after}, because of {run.reason}")
        report.check("runs that merged files", bool(runs), True)
        report.check("rows before and after each run are the same", _same_rows(runs), True)
        # A merged file may wait until there is as much again.
        report.check("fewer than 8 files are left beside those that runs made", told.files - len(runs) < 8, True)
        report.check("rows now", sql.one(f"SELECT count(*) FROM {TABLE}"), rows)
    sql(f"DROP VIEW {TABLE}")


def _same_rows(runs: Sequence[OptimizationTask]) -> bool:
    return all(run.rows_before == run.rows_after for run in runs)


def _is_at_rest(client: lakemark.Client) -> bool:
    told = client.optimizations.explain(TABLE)
    return told.state == "idle" and not told.tasks


@contextmanager
def _worker(server: str, log: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "lakemark", "--server", server, "optimizer", "run"]
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--group", GROUP, "--executor", "arrow"], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until(what: Callable[[], bool]) -> None:
    """Returns when it is so, or after a minute: the checks say then what is not."""
    until_s = time.monotonic() + _WAIT_S_MAX
    while not what() and time.monotonic() < until_s:
        time.sleep(0.2)
