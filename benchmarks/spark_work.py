"""What the ``spark`` benchmark does inside Spark: runs in the Spark process, and tells seconds.

A row has a key ``id``, a partition ``p``, and the columns ``v``, ``x`` and ``s``; rows are in no order. The same rows
go to Lakemark, to plain parquet, and to Hudi and Iceberg, in turns that begin anew each round; the first round warms up
and does not count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

import lakemark_spark
from lakemark import Client

PARTITIONS: Final = 8
BUCKETS: Final = 4
WRITERS: Final = 8
COMMITS: Final = 3  # of each writer
COMMIT_ROWS: Final = 1_000
_COLUMNS: Final = "id bigint, v bigint, x double, s string, at bigint, p int"
_QUERY: Final = "SELECT count(*), sum(v), max(x), count(s) FROM"
_OCC: Final = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
    "hoodie.clean.failed.writes.policy": "LAZY",
}


@dataclass
class Work:
    """``directory`` is a URI, for what is not Lakemark's."""

    spark: SparkSession
    client: Client
    directory: str
    rows: int
    rounds: int

    def make_source(self) -> None:
        rows = self.spark.range(0, self.rows, 1, PARTITIONS).selectExpr(
            *("id", "xxhash64(id) v", "id / 7.0d x", "hex(xxhash64(id, 1L)) s", "0L at"),
            f"cast(pmod(xxhash64(id, 2L), {PARTITIONS}) as int) p",
        )
        rows.sortWithinPartitions("v").write.parquet(f"{self.directory}/source")

    def make_tree(self) -> None:
        """The source as plain parquet files in directories of partitions."""
        self.source().write.partitionBy("p").parquet(f"{self.directory}/whole")

    def source(self) -> DataFrame:
        return self.spark.read.parquet(f"{self.directory}/source")

    def changes(self, name: str, every: int) -> DataFrame:
        """One row in ``every`` of the source, with another ``x``."""
        path = f"{self.directory}/changes-{name}"
        changed = self.source().where(f"pmod(v, {every}) = 0").selectExpr("id", "v", "x + 1 x", "s", "at + 1 at", "p")
        changed.write.mode("overwrite").parquet(path)
        return self.spark.read.parquet(path)

    def create(self, table: str, columns: str = _COLUMNS, **properties: str) -> None:
        named = {f"lakemark.{name.replace('__', '.').replace('_', '-')}": value for name, value in properties.items()}
        self.client.tables.create(table, columns, partitioned_by=["p"] if " p int" in columns else [], properties=named)

    def create_keyed(self, table: str, mode: str) -> None:
        self.create(table, primary_key="id,p", bucket__count=str(BUCKETS), write__mode=mode)


def files(work: Work) -> dict[str, Any]:
    """Appends and scans beside plain parquet."""
    work.make_source()
    source, number = work.source(), iter(range(1_000))
    last: dict[str, str] = {}

    def ours(distribute: bool) -> Callable[[], object]:
        def append() -> None:
            lakemark_spark.append(source, last["table"], server=work.client, distribute=distribute)

        return append

    def plain(rows: DataFrame) -> Callable[[], object]:
        return lambda: rows.write.partitionBy("p").parquet(last["path"])

    def next_place() -> None:
        at = next(number)
        last.update(table=f"db.a{at}", path=f"{work.directory}/plain{at}")
        work.create(last["table"])

    ungathered = {"append_s": ours(False), "append_parquet_s": plain(source)}
    appends = _in_turns(ungathered, work.rounds, before=dict.fromkeys(ungathered, next_place))
    lake, tree = "db.whole", f"{work.directory}/whole"
    work.create(lake)
    lakemark_spark.append(source, lake, server=work.client, distribute=False)
    work.make_tree()
    together = {"append_gathered_s": ours(True), "append_gathered_parquet_s": plain(source.repartition("p"))}
    gathered = _in_turns(together, max(1, work.rounds - 1), before=dict.fromkeys(together, next_place))
    sql = work.spark.sql
    assert sql(f"{_QUERY} {lake}").collect() == sql(f"{_QUERY} parquet.`{tree}`").collect()
    scans = _in_turns(
        {
            "scan_s": lambda: sql(f"{_QUERY} {lake}").collect(),
            "scan_parquet_s": lambda: sql(f"{_QUERY} parquet.`{tree}`").collect(),
        },
        work.rounds + 2,
    )
    return appends | gathered | scans


def points(work: Work) -> dict[str, Any]:
    """Queries for one key, beside a scan of plain parquet."""
    tree, sql = f"{work.directory}/whole", work.spark.sql
    work.create_keyed("db.keyed", "copy-on-write")
    lakemark_spark.overwrite(work.source(), "db.keyed", server=work.client)
    keys = iter(range(work.rows // 3, work.rows))

    def by_us() -> None:
        (_row,) = lakemark_spark.read(work.spark, "db.keyed", f"id = {next(keys)}", server=work.client).collect()

    def by_scan() -> None:
        (_row,) = sql(f"SELECT * FROM parquet.`{tree}` WHERE id = {next(keys)}").collect()

    return _in_turns({"point_query_s": by_us, "point_query_parquet_s": by_scan}, work.rounds + 4)


def upserts(work: Work, mode: str) -> dict[str, Any]:
    """One in a hundred rows, and then single rows, into a table of this write mode of each system.

    The overhead of a single row is what its upsert takes longer than Spark's own write of it as plain parquet.
    """
    name = "cow" if mode == "copy-on-write" else "mor"
    source, hudi = work.source(), Hudi(work, name, mode)
    work.create_keyed(f"db.{name}", mode)
    lakemark_spark.overwrite(source, f"db.{name}", server=work.client)
    hudi.load(source)
    iceberg = Iceberg(work, name, mode)
    iceberg.load(source)
    current: dict[str, DataFrame] = {}
    systems = {
        "": lambda: lakemark_spark.upsert(current["rows"], f"db.{name}", server=work.client),
        "_hudi": lambda: hudi.upsert(current["rows"]),
        "_iceberg": lambda: iceberg.upsert(current["rows"]),
    }
    current["rows"] = work.changes(name, 100)
    took = _in_turns({f"upsert{key}_s": call for key, call in systems.items()}, max(1, work.rounds - 1))
    sums = [
        work.spark.sql(f"{_QUERY} db.{name}").collect(),
        hudi.answer(),
        work.spark.sql(f"{_QUERY} {iceberg.table}").collect(),
    ]
    assert sums[0] == sums[1] == sums[2], sums
    current["rows"] = work.spark.read.parquet(f"{work.directory}/changes-{name}").limit(1).localCheckpoint()
    numbers = iter(range(1_000))

    def plain() -> None:
        current["rows"].write.partitionBy("p").parquet(f"{work.directory}/{name}-row{next(numbers)}")

    small = {f"small_upsert{key}_s": call for key, call in systems.items()}
    took |= _in_turns(small | {"small_write_parquet_s": plain}, work.rounds + 2)
    for key in systems:
        took[f"small_upsert{key}_overhead_s"] = took[f"small_upsert{key}_s"] - took["small_write_parquet_s"]
    return {key if name == "mor" else f"{name}_{key}": value for key, value in took.items()}


def merges(work: Work) -> dict[str, Any]:
    """Scans with a tenth of the rows in deltas, beside the peers' and after compaction; compaction beside a rewrite."""
    source, changes, sql = work.source(), work.changes("tenth", 10), work.spark.sql
    hudi, iceberg = Hudi(work, "merged", "merge-on-read"), Iceberg(work, "merged", "merge-on-read")
    work.create_keyed("db.merged", "merge-on-read")
    lakemark_spark.overwrite(source, "db.merged", server=work.client)
    for peer in (hudi, iceberg):
        peer.load(source)
        peer.upsert(changes)

    def upsert() -> None:
        lakemark_spark.upsert(changes, "db.merged", server=work.client)

    def scan() -> list[Any]:
        return sql(f"{_QUERY} db.merged").collect()

    scans: dict[str, Callable[[], list[Any]]] = {
        "mor_scan_s": scan,
        "mor_scan_hudi_s": hudi.answer,
        "mor_scan_iceberg_s": lambda: sql(f"{_QUERY} {iceberg.table}").collect(),
    }
    upsert()
    answers = {name: call() for name, call in scans.items()}
    assert len(set(map(str, answers.values()))) == 1, answers
    took = _in_turns(scans, work.rounds)

    numbers = iter(range(1_000))

    def rewrite() -> None:
        rewritten = f"{work.directory}/rewritten{next(numbers)}"
        work.spark.read.parquet(f"{work.directory}/whole").write.partitionBy("p").parquet(rewritten)

    rewrites = {
        "compaction_s": lambda: lakemark_spark.compact(work.spark, "db.merged", server=work.client),
        "rewrite_parquet_s": rewrite,
    }
    took |= _in_turns(rewrites, work.rounds, before={"compaction_s": upsert})
    assert scan() == answers["mor_scan_s"]
    return took | _in_turns({"compacted_scan_s": scan}, work.rounds)


def concurrent(work: Work) -> dict[str, Any]:
    """Eight writers of one table, each with a partition of its own; and of the same rows, each with a column."""
    work.create_keyed("db.shared", "merge-on-read")
    hudi = Hudi(work, "shared", "merge-on-read", _OCC)
    parts = [
        work.spark.range(COMMIT_ROWS)
        .selectExpr("id", "id v", "0d x", "'' s", "0L at", f"{number} p")
        .coalesce(1)
        .localCheckpoint()
        for number in range(WRITERS)
    ]
    whole = work.spark.range(COMMIT_ROWS * WRITERS).selectExpr(
        *("id", "id v", "0d x", "'' s", "0L at", f"cast(id % {WRITERS} as int) p")
    )
    lakemark_spark.overwrite(whole, "db.shared", server=work.client)
    hudi.load(whole)
    took: dict[str, Any] = {}
    took["concurrent_s"], took["aborts"] = _at_once(
        lambda number: lakemark_spark.upsert(parts[number], "db.shared", server=work.client)
    )
    took["concurrent_hudi_s"], took["aborts_hudi"] = _at_once(lambda number: hudi.upsert(parts[number]))
    work.client.tables.create(
        "db.wide",
        ", ".join(["id bigint", *(f"c{number} bigint" for number in range(WRITERS))]),
        properties={
            "lakemark.primary-key": "id",
            "lakemark.bucket.count": str(BUCKETS),
            "lakemark.write.mode": "merge-on-read",
            "lakemark.merge.by": "column",
            "lakemark.conflict.policy": "column",
        },
    )
    ids = work.spark.range(COMMIT_ROWS).coalesce(1).localCheckpoint()
    took["concurrent_columns_s"], aborts = _at_once(
        lambda number: lakemark_spark.upsert(ids.selectExpr("id", f"id c{number}"), "db.wide", server=work.client)
    )
    took["aborts"] += aborts
    lacking = " or ".join(f"c{number} is null" for number in range(WRITERS))
    assert work.spark.sql(f"SELECT count(*), count_if({lacking}) FROM db.wide").collect() == [(COMMIT_ROWS, 0)]
    return took


class Hudi:
    """A table with as many buckets in each partition as ours, by the bundle's data source."""

    def __init__(self, work: Work, name: str, mode: str, more: Mapping[str, str] | None = None) -> None:
        self._spark = work.spark
        self.path = f"{work.directory}/hudi-{name}"
        self._options = {
            "hoodie.table.name": name,
            "hoodie.datasource.write.table.type": mode.upper().replace("-", "_"),
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "p",
            "hoodie.datasource.write.precombine.field": "at",
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": str(BUCKETS),
            **(more or {}),
        }

    def load(self, rows: DataFrame) -> None:
        self._write(rows, "bulk_insert")

    def upsert(self, rows: DataFrame) -> None:
        self._write(rows, "upsert")

    def rows(self) -> DataFrame:
        return self._spark.read.format("hudi").load(self.path)

    def answer(self) -> list[Any]:
        """What the query that the other systems are asked by SQL answers."""
        return self.rows().selectExpr("count(*)", "sum(v)", "max(x)", "count(s)").collect()

    def _write(self, rows: DataFrame, operation: str) -> None:
        options = self._options | {"hoodie.datasource.write.operation": operation}
        rows.write.format("hudi").options(**options).mode("append").save(self.path)


class Iceberg:
    """A table with the same partitions and buckets, by MERGE."""

    def __init__(self, work: Work, name: str, mode: str) -> None:
        self._spark = work.spark
        self.table = f"ice.db.{name}"
        modes = ", ".join(f"'write.{one}.mode'='{mode}'" for one in ("merge", "update", "delete"))
        self._spark.sql(
            f"CREATE TABLE {self.table} ({_COLUMNS}) USING iceberg PARTITIONED BY (p, bucket({BUCKETS}, id)) "
            f"TBLPROPERTIES ('format-version'='2', {modes})"
        )

    def load(self, rows: DataFrame) -> None:
        rows.writeTo(self.table).append()

    def upsert(self, rows: DataFrame) -> None:
        rows.createOrReplaceTempView("changes")
        self._spark.sql(
            f"MERGE INTO {self.table} t USING changes c ON t.id = c.id AND t.p = c.p "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )


def _at_once(commit: Callable[[int], object]) -> tuple[float, int]:
    """Seconds, and how many commits failed."""

    def writer(number: int) -> int:
        failed = 0
        for _ in range(COMMITS):
            try:
                commit(number)
            except Exception as error:  # counted, whatever it is
                print("aborted:", str(error)[:300], flush=True)
                failed += 1
        return failed

    began = time.perf_counter()
    with ThreadPoolExecutor(WRITERS) as pool:
        failed = sum(pool.map(writer, range(WRITERS)))
    return time.perf_counter() - began, failed


def _in_turns(
    calls: Mapping[str, Callable[[], object]], rounds: int, *, before: Mapping[str, Callable[[], object]] | None = None
) -> dict[str, float]:
    """Median seconds of each call over all rounds but the first. ``before``: what is done before a call, untimed."""
    took: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name in list(calls)[:: 1 if turn % 2 else -1]:
            if before and name in before:
                before[name]()
            took[name].append(_seconds(calls[name]))
    return {name: statistics.median(times[1:]) for name, times in took.items()}


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
