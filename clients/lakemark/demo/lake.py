"""The second half of the tour: a lake table, written by PySpark month by month and read by plain Spark SQL."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs
from pyarrow import parquet as pq
from pyspark.sql import DataFrame

import lakemark
import lakemark_spark
from lakemark.demo.flights import COLUMNS, NAMES, Flights
from lakemark.demo.outside import outside_metastore, wait_until_it_followed
from lakemark.demo.report import Report
from lakemark.demo.session import Sql
from lakemark.demo.watch import Watch
from lakemark_core.errors import CommitConflict

TABLE = "air.flights"


class LakeTour:
    """Expects the database ``air``, and the view ``source`` over all flights."""

    def __init__(
        self, sql: Sql, report: Report, flights: Flights, client: lakemark.Client, server: str, directory: Path
    ) -> None:
        self.sql = sql
        self.report = report
        self.flights = flights
        self.client = client
        self.server = server
        self.directory = directory

    def run(self, *, keep: bool) -> None:
        """``keep``: the tables stay."""
        self._create()
        watch = Watch(self.client, TABLE, self.report).start()
        times = self._append_months()
        self._travel(times)
        self._race()
        self._crash()
        latest = self.client.snapshot(TABLE).version
        told = watch.wait_for(latest) == list(range(1, latest + 1))
        self.report.check("a watcher was told of each version when it was made, in order", told, True)
        self._plan()
        self._refuse_insert()
        self._doors()
        self._mirror()
        if not keep:
            self._drop()
            watch.join()

    def _create(self) -> None:
        self.report.chapter("Lake tables")
        self.sql(
            f"CREATE TABLE {TABLE} ({COLUMNS}) USING parquet PARTITIONED BY (month) "
            "TBLPROPERTIES ('lakemark.type'='lake')"
        )
        self.report.check("rows of the new table", self.sql.one(f"SELECT count(*) FROM {TABLE}"), 0)
        self.client.tables.create("air.by_grpc", "id bigint, city string", partitioned_by=["city"])
        command = ["--server", self.server, "tables", "create", "air.by_cli", "id bigint, name string"]
        self.report.say("lakemark " + " ".join(command))
        subprocess.run([sys.executable, "-m", "lakemark", *command], check=True, stdout=subprocess.DEVNULL)
        self.report.check(
            "tables made by SQL, gRPC and command line, in SHOW TABLES",
            self.sql.tables("air"),
            ["by_cli", "by_grpc", "flights"],
        )

    def _append_months(self) -> list[dt.datetime]:
        """Commits month by month. Returns a moment after each commit."""
        times = []
        right = 0
        text = "12 commits, one for each month; after each, SELECT count(*), sum(distance) by plain SQL"
        with self.report.steps(text, 12) as done:
            for month in range(1, 13):
                commit = lakemark_spark.append(self._source(f"month = {month}"), TABLE, server=self.server)
                time.sleep(0.01)  # so that there is a moment between two commits
                times.append(dt.datetime.now(dt.UTC))
                time.sleep(0.01)
                totals = self._totals(TABLE)
                right += commit.version == month and totals == self._expected(range(1, month + 1))
                done()
        self.report.check("commits after which plain SQL saw exactly what was committed, without REFRESH", right, 12)
        return times

    def _travel(self, times: list[dt.datetime]) -> None:
        for version in (1, 3, 11):
            name = f"air.`flights@v{version}`"
            self.report.check(f"{name}: flights, miles", self._totals(name), self._expected(range(1, version + 1)))
        moment = times[4].strftime("%Y-%m-%dt%H:%M:%S.%f")
        name = f"air.`flights@{moment}`"
        self.report.check(f"{name}: flights, miles", self._totals(name), self._expected(range(1, 6)))
        compared = self.sql.one(f"SELECT (SELECT count(*) FROM {TABLE}) - (SELECT count(*) FROM air.`flights@v11`)")
        self.report.check("the latest minus version 11, in one query", compared, self.flights.rows_by_month[12])

    def _race(self) -> None:
        self.report.say("two writers read version 12: one overwrites month 1, the other one appends to month 1 first")
        loser = self.client.begin(TABLE, "overwrite_partitions", partitions=[{"month": 1}])
        loser.write(self.flights.of_month(1))
        lakemark_spark.append(self._source("month = 1 AND day = 1"), TABLE, server=self.server)
        try:
            loser.commit()
            reason = "it was not refused"
        except CommitConflict as error:
            reason = str(error.details.get("partitions"))
            self.report.say(error.message)
        self.report.check("the overwrite is refused because of", reason, "month=1")
        self.report.say("two more: one overwrites month 1 with what it was, the other one appends to month 2 meanwhile")
        first = self.client.begin(TABLE, "overwrite_partitions", partitions=[{"month": 1}])
        first.write(self.flights.of_month(1))
        second = lakemark_spark.append(self._source("month = 2 AND day = 1"), TABLE, server=self.server)
        commit = first.commit()
        self.report.check("both are published, one behind the other", commit.version - second.version, 1)
        self.report.check("versions that the service rebased the overwrite over", commit.rebased_over, 1)
        expected = self.flights.table.num_rows + self._count(2, day=1)
        self.report.check("flights now", self._totals(TABLE)[0], expected)

    def _crash(self) -> None:
        before = self._totals(TABLE)
        program = (
            "import os, sys, lakemark, pyarrow.parquet as pq\n"
            "client = lakemark.connect(sys.argv[1])\n"
            "writer = client.begin(sys.argv[2], 'append')\n"
            "writer.write(pq.read_table(sys.argv[3]).slice(0, 1000))\n"
            "print(writer.location, flush=True)\n"
            "os._exit(9)\n"
        )
        arguments = [sys.executable, "-c", program, self.server, TABLE, str(self.flights.path)]
        died = subprocess.run(arguments, check=False, capture_output=True, text=True, env=os.environ)
        place = died.stdout.strip()
        self.report.say(f"a writer wrote and staged 1,000 flights below {place} and died before its commit")
        left = fs.LocalFileSystem().get_file_info(fs.FileSelector(place.removeprefix("file:"), recursive=True))
        self.report.check("its files exist", any(info.extension == "parquet" for info in left), True)
        self.report.check("plain SQL sees nothing of them", self._totals(TABLE), before)
        self.report.check("nor does a plan", any(place in path for path in self.client.plan(TABLE).paths), False)

    def _plan(self) -> None:
        predicate = "month > 2 AND day = 31 AND distance >= 2500"
        self.report.say(f"a plan over gRPC: {predicate}")
        plan = self.client.plan(TABLE, predicate=predicate)
        everything = self.client.plan(TABLE).paths
        chosen = (pc.field("month") > 2) & (pc.field("day") == 31) & (pc.field("distance") >= 2500)
        rows = self.client.read(TABLE, predicate=predicate)
        expected = self.flights.table.filter(chosen).num_rows
        self.report.check("rows in the planned files that match", rows.num_rows, expected)
        planned = sorted(_month(path) for path in plan.paths)
        self.report.check("months planned: by partition, and by the bounds of day", planned, [3, 5, 7, 8, 10, 12])
        self.report.say(f"{len(plan.paths)} of {len(everything)} files are left to read")
        missed = sum(_matching(path, chosen) for path in set(everything) - set(plan.paths))
        self.report.check("matching rows in the files that were left out", missed, 0)

    def _refuse_insert(self) -> None:
        reason = self.sql.fails(f"INSERT INTO {TABLE} SELECT {', '.join(NAMES)} FROM source LIMIT 1")
        self.report.check("a plain INSERT into a lake table is refused", bool(reason), True)
        self.report.say(reason)

    def _doors(self) -> None:
        self.report.chapter("Writing in plain SQL")
        table = "air.long_flights"
        self.sql(
            f"CREATE TABLE {table} ({COLUMNS}) USING parquet PARTITIONED BY (month) "
            "TBLPROPERTIES ('lakemark.type'='lake')"
        )
        names = ", ".join(NAMES)
        for month in (1, 2):
            self.sql(
                f"INSERT INTO {table}__append SELECT {names} FROM source WHERE distance > 2000 AND month = {month}"
            )
        long = pc.field("distance") > 2000
        counts = [self.flights.table.filter(long & (pc.field("month") == month)).num_rows for month in (1, 2)]
        self.report.check("rows after two INSERTs", self.sql.one(f"SELECT count(*) FROM {table}"), sum(counts))
        self.sql(f"INSERT INTO {table}__overwrite SELECT {names} FROM {table} WHERE month = 2 AND day = 1")
        first = self.flights.table.filter(long & (pc.field("month") == 2) & (pc.field("day") == 1)).num_rows
        after = self.sql.one(f"SELECT count(*) FROM {table}")
        self.report.check("rows after month 2 was overwritten", after, counts[0] + first)
        before = self.sql.one("SELECT count(*) FROM air.`long_flights@v2`")
        self.report.check("rows of version 2", before, sum(counts))
        added = self.sql.one("SELECT count(*) FROM air.`long_flights@v1..v2`")
        self.report.check("rows that version 2 added", added, counts[1])
        self.sql(f"DROP VIEW {table}")
        self._keyed_doors()

    def _keyed_doors(self) -> None:
        table = "air.carriers"
        self.sql(
            f"CREATE TABLE {table} (carrier STRING, flights BIGINT) USING parquet TBLPROPERTIES ("
            "'lakemark.type'='lake', 'lakemark.primary-key'='carrier', 'lakemark.bucket.count'='2', "
            "'lakemark.write.mode'='merge-on-read')"
        )
        for where in ("month = 1", "month <= 2"):
            self.sql(f"INSERT INTO {table}__upsert SELECT carrier, count(*) FROM source WHERE {where} GROUP BY carrier")
        self.sql(f"INSERT INTO {table}__delete SELECT carrier FROM {table} WHERE carrier <> 'UA'")
        united = self.flights.table.filter((pc.field("month") <= 2) & (pc.field("carrier") == "UA")).num_rows
        left = [tuple(row) for row in self.sql(f"SELECT * FROM {table}")]
        self.report.check("carriers after two upserts and a delete", left, [("UA", united)])
        january = self.flights.table.filter(pc.field("month") == 1).num_rows
        before = self.sql.one("SELECT sum(flights) FROM air.`carriers@v1`")
        self.report.check("flights in version 1", before, january)
        self.sql(f"DROP VIEW {table}")

    def _mirror(self) -> None:
        self.report.chapter("An outside Hive Metastore follows")
        with ExitStack() as stack:
            with self.report.step("starting Hive's own metastore, and a second Spark that knows only that one"):
                outside = stack.enter_context(outside_metastore(self.directory / "outside"))
            self.report.say(f"lakemark listeners create outside {outside.uri} {TABLE}")
            self.client.listeners.create("outside", outside.uri, [TABLE])
            self.report.check("what the listener cannot mirror", wait_until_it_followed(self.client, "outside"), "")
            totals = f"SELECT count(*), sum(distance) FROM {TABLE}"
            self.report.sql(totals)
            self.report.check("flights, miles by the other Spark", outside.rows(totals), [self._totals(TABLE)])
            commit = lakemark_spark.append(self._source("month = 3 AND day = 1"), TABLE, server=self.server)
            wait_until_it_followed(self.client, "outside")
            there = outside.rows(totals)
            self.report.check(f"and after version {commit.version}", there, [self._totals(TABLE)])
            self.client.listeners.drop("outside")

    def _drop(self) -> None:
        self.report.chapter("Leaving nothing behind")
        self.sql(f"DROP VIEW {TABLE}")
        self.client.tables.drop("air.by_grpc")
        self.client.tables.drop("air.by_cli")
        self.sql("DROP DATABASE air")
        self.report.check("SHOW DATABASES", self.sql.column("SHOW DATABASES"), ["default"])

    def _source(self, condition: str) -> DataFrame:
        return self.sql.spark.sql(f"SELECT * FROM source WHERE {condition}")

    def _totals(self, name: str) -> tuple[int, int]:
        row = self.sql(f"SELECT count(*), coalesce(sum(distance), 0) FROM {name}", quiet=True)[0]
        return int(row[0]), int(row[1])

    def _expected(self, months: range) -> tuple[int, int]:
        return sum(self.flights.rows_by_month[month] for month in months), self.flights.distance(months)

    def _count(self, month: int, *, day: int) -> int:
        return self.flights.of_month(month).filter(pc.field("day") == day).num_rows


def _month(path: str) -> int:
    return int(path.partition("/month=")[2].partition("/")[0])


def _matching(path: str, chosen: pc.Expression) -> int:
    rows = pq.read_table(path.removeprefix("file:"), partitioning=None)
    month = pa.array([_month(path)] * rows.num_rows, pa.int32())
    return rows.append_column("month", month).filter(chosen).num_rows
