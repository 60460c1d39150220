"""Doors of tables with a key: what statements change by key, and what they are refused for."""

from __future__ import annotations

import datetime as dt
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import fields
from decimal import Decimal
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hmsclient.genthrift.hive_metastore.ttypes import Database, MetaException
from pyarrow.fs import LocalFileSystem
from thrift.Thrift import TApplicationException
from thrift.transport.TTransport import TTransportException

from lakemark import Client, connect
from lakemark.client.optimization import OptimizationTask
from lakemark_core.buckets import hash_of_key
from lakemark_core.errors import Unavailable
from lakemark_core.table_kind import TableKind
from lakemark_core.types import INT, STRING, Field, Schema
from lakemark_hms.wire.limits import ServerSettings
from lakemark_optimizer.arrow import ArrowExecutor
from lakemark_server.doors import bucket_files, contents, keyed_files, publication, records, statement_rows
from lakemark_server.doors import service as door_service
from lakemark_server.doors.keyed_files import AT_ONCE, KeyedFiles
from lakemark_server.doors.publication import HEARTBEAT_MS
from lakemark_server.doors.service import DOUBT_MS
from lakemark_server.doors.statement_rows import KeyedRows, RowReader
from lakemark_server.doors.sweep import RETAIN_MS, DoorSweep
from lakemark_server.process import Service
from lakemark_server.timeline.service import Timeline
from lakemark_server.verify import verify
from lakemark_server.verify.files import check_files
from tests.integration.doors.statements import REFUSED, Another, Later, SparkClient, port_of

Spark = Callable[..., SparkClient]
MERGED = {"lakemark.write.mode": "merge-on-read", "lakemark.primary-key": "id", "lakemark.bucket.count": "4"}
AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def lake(service: Service) -> Iterator[Client]:
    with connect(service.grpc_address) as client:
        yield client


def keyed(lake: Client, columns: str = "id int, x string", **more: str) -> None:
    lake.tables.create("default.k", columns, properties=MERGED | {f"lakemark.{name}": more[name] for name in more})


def days(lake: Client, **more: str) -> None:
    """With partitions and an ordering column."""
    properties = MERGED | {"lakemark.primary-key": "id,day", "lakemark.merge.ordering-column": "at"} | more
    lake.tables.create(
        "default.k", "id bigint, x string, at timestamp, day date", partitioned_by=["day"], properties=properties
    )


def rows_of(values: Mapping[int, str | None]) -> pa.Table:
    return pa.table({"id": pa.array(list(values), pa.int32()), "x": pa.array(list(values.values()), pa.string())})


def keys_of(ids: list[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int32())})


def there(lake: Client, name: str = "k", **at: Any) -> dict[int, str | None]:
    read = lake.read(f"default.{name}", **at).to_pylist()
    assert len({row["id"] for row in read}) == len(read)
    return {row["id"]: row["x"] for row in read}


def upsert(one: SparkClient, values: Mapping[int, str | None], name: str = "k__upsert") -> None:
    one.insert_tables(name, {"": rows_of(values)})


def delete(one: SparkClient, ids: list[int]) -> None:
    one.insert_tables("k__delete", {"": keys_of(ids)})


def kinds(lake: Client) -> list[str]:
    return sorted(file.kind for file in lake.plan("default.k").files())


def compacted(lake: Client) -> None:
    """As by the optimizer, in memory."""
    given = {one.name: None for one in fields(OptimizationTask)}
    task = OptimizationTask(
        **given
        | {"table": "default.k", "request_id": "", "instant": 0, "partition": "", "kind": "fold"}
        | {"buckets": True, "small_bytes": 1 << 40, "bytes_max": 1 << 40, "needs_spark": False}  # type: ignore[arg-type]
    )
    ArrowExecutor(lake).run(task, threading.Event())


def test_rows_are_upserted_and_deleted_by_key(lake: Client, spark: Spark) -> None:
    keyed(lake)
    one = spark()
    shown = one.client.get_table("default", "k__delete")
    assert [column.name for column in shown.sd.cols] == ["id"]
    upsert(one, {1: "a", 2: "b", 3: None})
    assert set(kinds(lake)) == {"base"}, "the first ones, as by lakemark_spark.upsert"
    upsert(one, {2: "B", 4: "d"})
    delete(one, [1, 9])
    assert there(lake) == {2: "B", 3: None, 4: "d"}
    assert there(lake, version=1) == {1: "a", 2: "b", 3: None}
    assert [one.metadata["door"] for one in lake.timeline.versions("default.k")] == ["upsert", "upsert", "delete"]
    assert [one.operation for one in lake.timeline.versions("default.k")] == ["upsert", "upsert", "delete"]
    compacted(lake)
    assert set(kinds(lake)) == {"base"}
    assert there(lake) == {2: "B", 3: None, 4: "d"}


def test_files_are_those_of_buckets(lake: Client, service: Service, spark: Spark) -> None:
    keyed(lake)
    one = spark()
    upsert(one, dict.fromkeys(range(100), "old"))
    directory = one.look_up("k__upsert")
    for task in range(3):
        part = {number: "new" for number in range(50) if number % 3 == task}
        one.write_table(directory, rows_of(part), done=False)
    one.done(directory)
    one.end("k__upsert")
    files = list(lake.plan("default.k").files())
    assert [file.kind for file in files].count("delta") == 4, "one for each bucket, whatever Spark wrote"
    bases = {file.file_group: int(file.path.split("/")[0]) for file in files if file.kind == "base"}
    schema = lake.tables.get("default.k").schema
    for file in files:
        assert file.file_group == f"bucket-{file.bucket}"
        assert file.kind == "base" or file.base_instant == bases[file.file_group]
        path = Path(lake.tables.get("default.k").location.removeprefix("file:")) / file.path
        stored = pq.read_table(path)
        assert {hash_of_key([key], schema.columns[:1]) % 4 for key in stored.column("id").to_pylist()} == {file.bucket}
        assert file.row_count == stored.num_rows
    assert [file.bucket for file in lake.plan("default.k", "id = 7").files()] == [
        hash_of_key([7], schema.columns[:1]) % 4
    ] * 2
    assert not list(directory.glob("*.parquet")), "what was written again is not kept"
    assert check_files(service.store, orphans=True).orphans == []


def test_an_older_change_loses_by_the_ordering_column(lake: Client, spark: Spark) -> None:
    days(lake)
    one = spark()

    def change(name: str, hours: int, **more: Any) -> None:
        at = pa.array([AT + dt.timedelta(hours=hours)], pa.timestamp("us", "UTC"))
        table = pa.table({"id": pa.array([1], pa.int64()), **more, "at": at})
        one.insert_tables(name, {"day=2026-01-01": table})

    shown = one.client.get_table("default", "k__delete")
    assert [column.name for column in (*shown.sd.cols, *shown.partitionKeys)] == ["id", "at", "day"]
    change("k__upsert", 9, x=["nine"])
    change("k__upsert", 8, x=["eight"])
    assert there(lake) == {1: "nine"}
    change("k__delete", 7)
    assert there(lake) == {1: "nine"}
    change("k__delete", 10)
    assert there(lake) == {}
    change("k__upsert", 9, x=["late"])
    assert there(lake) == {}


KEYS: dict[str, tuple[str, Callable[[random.Random], Any]]] = {
    "long": ("bigint", lambda chance: chance.randrange(30) - 15),
    "text": ("string", lambda chance: chance.choice(["", "é", "日本", "a" * 300]) + str(chance.randrange(8))),
    "bytes": ("binary", lambda chance: bytes([0, 255, chance.randrange(30)])),
    "decimal": ("decimal(12,2)", lambda chance: Decimal(chance.randrange(-15, 15)) / 4),
    "long decimal": ("decimal(30,2)", lambda chance: Decimal(chance.randrange(-15, 15)) / 4),
    "day": ("date", lambda chance: dt.date(1960, 1, 1) + dt.timedelta(days=chance.randrange(30))),
    "instant": ("timestamp", lambda chance: AT + dt.timedelta(microseconds=chance.randrange(30))),
    "char": ("char(3)", lambda chance: chance.choice(["a", "ab", "abc"]) + " " * chance.randrange(1)),
}


@pytest.mark.parametrize(("key", "index"), list(zip(KEYS, cycle(["fixed", "extendible"]), strict=False)))
def test_any_statements_give_what_a_dict_has(
    lake: Client, service: Service, spark: Spark, key: str, index: str
) -> None:
    """With keys of two columns, partitions, policies and branches at random, and a compaction now and then."""
    chance = random.Random(f"{key} {index}")
    column_type, value = KEYS[key]
    lake.tables.create(
        "default.k",
        f"k {column_type}, n smallint, x double, s struct<a:int,b:array<string>>, p string",
        partitioned_by=["p"],
        properties=MERGED
        | {"lakemark.primary-key": "p,k,n", "lakemark.bucket.index": index, "lakemark.conflict.policy": "partition"},
    )
    one = spark()
    model: dict[tuple[Any, ...], Any] = {}
    arrow = pa.schema(
        [
            pa.field("k", lake.read("default.k").schema.field("k").type),
            pa.field("n", pa.int16()),
            pa.field("x", pa.float64()),
            pa.field("s", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
        ]
    )
    for _ in range(12):
        deletes = chance.random() < 0.3
        tables: dict[str, pa.Table] = {}
        for part in chance.sample(["1", "2", "ü x"], chance.randrange(1, 4)):
            changed = {}
            for _ in range(chance.randrange(1, 25)):
                x = chance.choice([None, 1.5, -0.0, float("inf")])
                changed[value(chance), chance.randrange(2)] = (x, {"a": chance.randrange(5), "b": ["u", None]})
            rows = [{"k": k, "n": n, "x": x, "s": s} for (k, n), (x, s) in changed.items()]
            table = pa.Table.from_pylist(rows, schema=arrow)
            name = "p=ü x" if part == "ü x" else f"p={part}"
            tables[name] = table.select(["k", "n"]) if deletes else table
            for (k, n), row in changed.items():
                of = (part, k.ljust(3) if key == "char" else k, n)
                model.pop(of, None)
                if not deletes:
                    model[of] = row
        one.insert_tables("k__delete" if deletes else "k__upsert", tables)
        if chance.random() < 0.2 and index == "fixed":
            compacted(lake)
        if chance.random() < 0.2 and index == "extendible":
            buckets = [bucket.name for bucket in lake.buckets.list("default.k")]
            lake.buckets.alter("default.k", split=[chance.choice(buckets)])
        read = lake.read("default.k").to_pylist()
        assert len(read) == len(model)
        assert {(row["p"], row["k"], row["n"]): (row["x"], row["s"]) for row in read} == model
    assert verify(service.store) == []


def test_rows_that_do_not_fit_into_memory(lake: Client, spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are appended to files part by part; of many buckets, by several looks at the rows."""
    monkeypatch.setattr(bucket_files, "GATHERED_BYTES", 2_000)
    monkeypatch.setattr(statement_rows, "BATCH_ROWS", 100)
    monkeypatch.setattr(statement_rows, "WHOLE_BYTES", 0)
    keyed(lake)
    one = spark()
    upsert(one, {number: str(number) for number in range(1_000)})
    assert kinds(lake) == ["base"] * 4
    monkeypatch.setattr(bucket_files, "FILES_AT_ONCE", 1)
    upsert(one, dict.fromkeys(range(500, 1500), "new"))
    assert there(lake) == {number: "new" if number >= 500 else str(number) for number in range(1_500)}
    assert kinds(lake).count("delta") == 4
    with pytest.raises(REFUSED, match=r'several rows with one key, as \{"id": 77\}'):
        one.insert_tables("k__upsert", {"": pa.concat_tables([rows_of({77: "a"}), rows_of(dict.fromkeys(range(999)))])})
    monkeypatch.setattr(bucket_files, "READS_MAX", 2)
    with pytest.raises(REFUSED, match="too many rows for the 4 buckets"):
        upsert(one, dict.fromkeys(range(500, 1500), "new"))
    assert len(there(lake)) == 1_500


def test_the_files_of_a_statement_are_limited(
    lake: Client, service: Service, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.doors._publication._keyed, "_bytes_max", 10)
    keyed(lake)
    with pytest.raises(REFUSED, match=r"door_rewrite_bytes_max.*lakemark_spark"):
        upsert(spark(), {1: "a"})
    assert there(lake) == {}


@pytest.mark.parametrize(
    ("name", "table", "partition", "why"),
    [
        ("upsert", {"id": [1, 1], "x": ["a", "b"], "at": [AT, AT]}, "day=2026-01-01", r'one key, as \{"id": 1, "day"'),
        ("delete", {"id": [1, 1], "at": [AT, AT]}, "day=2026-01-01", "several rows with one key"),
        ("overwrite", {"id": [1, 1], "x": ["a", "b"], "at": [AT, AT]}, "day=2026-01-01", "several rows with one key"),
        ("upsert", {"id": [None], "x": ["a"], "at": [AT]}, "day=2026-01-01", "a null in column 'id', which belongs"),
        ("delete", {"id": [None], "at": [AT]}, "day=2026-01-01", "a null in column 'id', which belongs"),
        ("upsert", {"id": [1], "x": ["a"], "at": [AT]}, "day=__HIVE_DEFAULT_PARTITION__", "a null in column 'day'"),
        ("upsert", {"id": [1], "x": ["a"], "at": [None]}, "day=2026-01-01", "'at' of default.k puts changes in order"),
        ("delete", {"id": [1], "at": [None]}, "day=2026-01-01", "'at' of default.k puts changes in order"),
        ("upsert", {"id": [1], "x": ["a"]}, "day=2026-01-01", "'at' of default.k puts changes in order"),
        ("upsert", {"id": [1], "x": [None], "at": [AT]}, "day=2026-01-01", "column 'x' of default.k is NOT NULL"),
        ("upsert", {"id": [1], "x": [2], "at": [AT]}, "day=2026-01-01", "column 'x' is string in the table and int"),
        ("delete", {"id": [1], "x": ["a"], "at": [AT]}, "day=2026-01-01", "column 'x' of the file is not in the table"),
        ("upsert", {"id": [1], "x": ["a"], "at": [AT]}, "", "partition"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    lake: Client, service: Service, spark: Spark, name: str, table: dict[str, list[Any]], partition: str, why: str
) -> None:
    columns = "id bigint, x string not null, at timestamp, day date"
    properties = MERGED | {"lakemark.primary-key": "id,day", "lakemark.merge.ordering-column": "at"}
    lake.tables.create("default.k", columns, partitioned_by=["day"], properties=properties)
    one = spark()
    types: dict[str, pa.DataType] = {"id": pa.int64(), "at": pa.timestamp("us", "UTC")}
    types |= {"x": pa.string()} if table.get("x") == [None] else {}
    wrong = pa.table({key: pa.array(values, types.get(key)) for key, values in table.items()})
    directory = one.look_up(f"k__{name}")
    one.write_table(directory, wrong, partition=partition)
    with pytest.raises(REFUSED, match=why):
        one.end(f"k__{name}")
    assert there(lake) == {}
    assert [path.name for path in directory.iterdir() if path.name.startswith("_buckets")] == []
    assert check_files(service.store, orphans=True).orphans == []
    right = pa.table({"id": [1], "x": ["a"], "at": pa.array([AT], pa.timestamp("us", "UTC"))})
    one.insert_tables("k__upsert", {"day=2026-01-01": right})
    assert there(lake) == {1: "a"}
    one.insert_tables("k__delete", {"day=2026-01-01": right.select(["id", "at"])})
    assert there(lake) == {}, "a delete has no other column, NOT NULL or not"


def test_a_calendar_of_old_is_refused(lake: Client, spark: Spark) -> None:
    lake.tables.create("default.k", "id date, x string", properties=MERGED)
    one = spark()
    table = pa.table({"id": [dt.date(1500, 1, 1)], "x": ["a"]})
    with pytest.raises(REFUSED, match="calendar of Spark 2"):
        one.insert_tables("k__upsert", {"": table.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})})
    one.insert_tables("k__upsert", {"": table.replace_schema_metadata({"org.apache.spark.version": "4.3.0"})})
    (file,) = lake.plan("default.k").files()
    stored = pq.read_metadata(Path(lake.tables.get("default.k").location.removeprefix("file:")) / file.path)
    assert stored.metadata[b"org.apache.spark.version"] == b"4.3.0", "Spark 3.5 reads old days only if it is told"


def test_instants_as_spark_writes_them_by_default(lake: Client, spark: Spark) -> None:
    """INT96, which has no bounds."""
    lake.tables.create("default.k", "id timestamp, x timestamp_ntz", properties=MERGED)
    instants = [AT, dt.datetime(1600, 2, 3, 4, 5, 6, 789, tzinfo=dt.UTC), dt.datetime(9999, 1, 1, tzinfo=dt.UTC)]
    table = pa.table(
        {"id": pa.array(instants, pa.timestamp("us", "UTC")), "x": [one.replace(tzinfo=None) for one in instants]}
    )
    one = spark()
    directory = one.look_up("k__upsert")
    one.write_table(directory, table.select(["id"]), done=False, use_deprecated_int96_timestamps=True)
    (source,) = directory.glob("*.parquet")
    assert pq.ParquetFile(source).schema.column(0).physical_type == "INT96"
    one.done(directory)
    one.end("k__upsert")
    assert sorted(row["id"] for row in lake.read("default.k").to_pylist()) == sorted(instants)
    one.insert_tables("k__upsert", {"": table})
    assert lake.read("default.k").num_rows == 3, "the same keys"


def test_nested_columns_are_written_as_they_were(lake: Client, spark: Spark) -> None:
    columns = "id int, m map<string,array<int>>, s struct<a:int,b:struct<c:decimal(20,2)>>, l array<struct<x:date>>"
    keyed(lake, columns)
    rows = [
        {"id": 1, "m": [("a", [1, None]), ("b", None)], "s": {"a": None, "b": {"c": Decimal("1.50")}}, "l": []},
        {"id": 2, "m": [], "s": None, "l": [{"x": dt.date(2026, 1, 1)}, None]},
        {"id": 3, "m": None, "s": {"a": 3, "b": None}, "l": None},
    ]
    arrow = lake.read("default.k").schema
    one = spark()
    for some in (rows, rows[1:]):
        one.insert_tables("k__upsert", {"": pa.Table.from_pylist(some, schema=arrow)})
    assert sorted(lake.read("default.k").to_pylist(), key=lambda row: row["id"]) == rows
    compacted(lake)
    assert sorted(lake.read("default.k").to_pylist(), key=lambda row: row["id"]) == rows


def test_an_overwrite_replaces_files_of_buckets(lake: Client, spark: Spark) -> None:
    days(lake)
    one = spark()

    def table(values: dict[int, str]) -> pa.Table:
        at = pa.array([AT] * len(values), pa.timestamp("us", "UTC"))
        return pa.table({"id": pa.array(list(values), pa.int64()), "x": list(values.values()), "at": at})

    one.insert_tables("k__upsert", {"day=2026-01-01": table({1: "a"}), "day=2026-01-02": table({2: "b"})})
    one.insert_tables("k__upsert", {"day=2026-01-01": table({3: "c"})})
    one.insert_tables("k__overwrite", {"day=2026-01-01": table({4: "d", 5: "e"})})
    assert there(lake) == {2: "b", 4: "d", 5: "e"}
    assert set(kinds(lake)) == {"base"}
    lake.tables.create("default.c", "id int, x string", properties={**MERGED, "lakemark.write.mode": "copy-on-write"})
    one.insert_tables("c__overwrite", {"": rows_of({1: "a", 2: "b"})})
    one.insert_tables("c__overwrite", {"": rows_of({3: "c"})})
    assert there(lake, "c") == {3: "c"}


def test_a_base_file_has_bounds_and_counts_of_nan(lake: Client, spark: Spark) -> None:
    lake.tables.create("default.k", "id int, x double", properties={**MERGED, "lakemark.bucket.count": "1"})
    spark().insert_tables("k__upsert", {"": pa.table({"id": pa.array([1, 2], pa.int32()), "x": [1.5, float("nan")]})})
    (file,) = lake.plan("default.k", statistics=["id", "x"]).files()
    by_column = {one.column_id: one for one in file.statistics}
    assert (by_column[1].min, by_column[1].max, by_column[1].null_count) == (1, 2, 0)
    assert (by_column[2].min, by_column[2].max, by_column[2].nan_count) == (1.5, 1.5, 1)


@pytest.mark.parametrize(
    ("policy", "same_partition", "same_group"),
    [
        ("table", True, True),
        ("partition", True, True),
        ("file_group", False, True),
        ("file", False, True),
        ("row", False, False),
    ],
)
def test_changes_collide_by_the_policy(
    lake: Client, spark: Spark, policy: str, same_partition: bool, same_group: bool
) -> None:
    keyed(lake, **{"conflict.policy": policy})
    one, other = spark(), spark("bob")
    upsert(one, dict.fromkeys(range(20), "old"))
    column = lake.tables.get("default.k").schema.columns[:1]
    buckets = {number: hash_of_key([number], column) % 4 for number in range(20)}
    neighbour = next(number for number in range(1, 20) if buckets[number] == buckets[0])
    elsewhere = next(number for number in range(1, 20) if buckets[number] != buckets[0])
    for key, collides in ((neighbour, same_group), (elsewhere, same_partition)):
        directory = one.look_up("k__upsert")
        upsert(other, {0: "other"})
        one.write_table(directory, rows_of({key: "mine"}))
        if collides:
            with pytest.raises(REFUSED, match="version"):
                one.end("k__upsert")
        else:
            one.end("k__upsert")
        assert there(lake)[key] == ("old" if collides else "mine")
    upsert(one, {neighbour: "again"})
    assert there(lake)[neighbour] == "again"


@pytest.mark.parametrize("policy", ["partition", "row"])
def test_changes_of_one_application_that_end_at_once(lake: Client, spark: Spark, clock: Later, policy: str) -> None:
    keyed(lake, **{"conflict.policy": policy})
    one = spark()
    for values in ({1: "a"}, {2: "b"}):
        one.write_table(one.look_up("k__upsert"), rows_of(values))
    if policy == "row":
        for _ in range(2):
            one.end("k__upsert")
        assert there(lake) == {1: "a", 2: "b"}
        return
    for _ in range(2):
        with pytest.raises(REFUSED):
            one.end("k__upsert")
    assert there(lake) == {}
    clock.by_ms += DOUBT_MS + 1
    upsert(one, {1: "a"})
    assert there(lake) == {1: "a"}


def test_a_compaction_meanwhile_is_in_nobodys_way(lake: Client, spark: Spark) -> None:
    keyed(lake)
    one = spark()
    upsert(one, {1: "a", 2: "b"})
    upsert(one, {1: "A"})
    directory = one.look_up("k__upsert")
    compacted(lake)
    one.write_table(directory, rows_of({1: "newest"}))
    one.end("k__upsert")
    assert there(lake) == {1: "newest", 2: "b"}


def test_doors_of_a_branch(lake: Client, spark: Spark) -> None:
    keyed(lake)
    one = spark()
    upsert(one, {1: "a", 2: "b"})
    lake.branches.create("default.k", "dev")
    upsert(one, {1: "dev"}, "k__dev__upsert")
    one.insert_tables("k__dev__delete", {"": keys_of([2])})
    assert there(lake) == {1: "a", 2: "b"}
    assert there(lake, branch="dev") == {1: "dev"}
    lake.branches.merge("default.k", "dev")
    assert there(lake) == {1: "dev"}


def test_the_table_is_altered_while_a_statement_runs(lake: Client, spark: Spark) -> None:
    keyed(lake)
    one = spark()
    upsert(one, {1: "a"})
    directory = one.look_up("k__upsert")
    lake.tables.add_column("default.k", "y int")
    lake.tables.rename_column("default.k", "x", "z")
    one.write_table(directory, rows_of({1: "b", 2: "c"}))
    one.end("k__upsert")
    rows = sorted(lake.read("default.k").to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": 1, "z": "b", "y": None}, {"id": 2, "z": "c", "y": None}]


def test_buckets_split_while_a_statement_runs(lake: Client, spark: Spark) -> None:
    keyed(lake, **{"bucket.index": "extendible"})
    one = spark()
    upsert(one, dict.fromkeys(range(40), "old"))
    directory = one.look_up("k__upsert")
    one.write_table(directory, rows_of(dict.fromkeys(range(20, 60), "new")))
    lake.buckets.alter("default.k", split=["bucket-1-of-4"])
    one.end("k__upsert")
    assert there(lake) == {number: "new" if number >= 20 else "old" for number in range(60)}
    groups = {file.file_group for file in lake.plan("default.k").files() if file.kind == "delta"}
    assert groups == {"bucket-0-of-4", "bucket-1-of-8", "bucket-5-of-8", "bucket-2-of-4", "bucket-3-of-4"}


def test_no_rows_change_nothing(lake: Client, spark: Spark) -> None:
    keyed(lake)
    one = spark()
    upsert(one, {1: "a"})
    for name, table in (("k__upsert", rows_of({})), ("k__delete", keys_of([]))):
        one.insert_tables(name, {"": table})
    assert there(lake) == {1: "a"}
    one.insert_tables("k__overwrite", {"": rows_of({})})
    assert there(lake) == {}
    assert len(list(lake.timeline.versions("default.k"))) == 4


def test_an_insert_overwrite_of_a_door_for_changes_is_refused(lake: Client, spark: Spark) -> None:
    keyed(lake)
    one = spark()
    upsert(one, {1: "a"})
    directory = one.look_up("k__upsert")
    shutil.rmtree(directory)  # as Spark does first
    one.write_table(directory, rows_of({2: "b"}))
    with pytest.raises(REFUSED, match=r"INSERT OVERWRITE.*use default\.k__overwrite"):
        one.end("k__upsert")
    assert there(lake) == {1: "a"}


@pytest.mark.parametrize(
    ("properties", "name", "way"),
    [
        ({}, "append", r"use default\.k__upsert"),
        ({}, "insert", r"lakemark_spark\.insert, or default\.k__upsert"),
        ({"lakemark.write.mode": "copy-on-write"}, "upsert", r"copy-on-write.*lakemark_spark\.upsert"),
        ({"lakemark.write.mode": "copy-on-write"}, "delete", r"copy-on-write.*lakemark_spark\.delete_keys"),
        ({"lakemark.write.mode": "copy-on-write"}, "append", r"lakemark_spark\.upsert"),
        ({"lakemark.merge.by": "column"}, "upsert", r"merged by column.*lakemark_spark\.upsert"),
        ({"lakemark.merge.by": "column"}, "append", r"lakemark_spark\.upsert"),
    ],
)
def test_doors_that_a_table_has_not_name_the_way(
    lake: Client, spark: Spark, properties: dict[str, str], name: str, way: str
) -> None:
    lake.tables.create("default.k", "id int, x string", properties=MERGED | properties)
    with pytest.raises(MetaException, match=way):
        spark().client.get_table("default", f"k__{name}")


def test_rows_of_a_table_that_is_merged_by_column_are_deleted(lake: Client, spark: Spark) -> None:
    keyed(lake, **{"merge.by": "column"})
    one = spark()
    one.insert_tables("k__overwrite", {"": rows_of({1: "a", 2: "b"})})
    delete(one, [1])
    assert there(lake) == {2: "b"}


def test_a_column_with_a_name_that_deltas_need(lake: Client, spark: Spark) -> None:
    keyed(lake, "id int, x string, lakemark_instant bigint")
    with pytest.raises(MetaException, match="rename it"):
        spark().client.get_table("default", "k__upsert")


class _KilledError(BaseException):
    """As if the process had ended here."""


@pytest.mark.parametrize("at", ["write", "second file", "move", "entries", "commit", "publish", "discard", "answer"])
def test_another_process_ends_what_one_that_was_killed_has_begun(
    lake: Client,
    service: Service,
    another: Another,
    spark: Spark,
    monkeypatch: pytest.MonkeyPatch,
    clock: Later,
    at: str,
) -> None:
    keyed(lake)
    one = spark()
    upsert(one, dict.fromkeys(range(20), "old"))
    directory = one.look_up("k__upsert")
    one.write_table(directory, rows_of(dict.fromkeys(range(10, 30), "new")))
    shown = one.last_call("k__upsert")
    assert service.hms is not None
    stop = service.hms.stop
    monkeypatch.setattr(service.hms, "stop", lambda *_: stop(0.1))  # its worker is gone
    one.connect(port_of(service), timeout_s=2)  # nobody will answer
    with monkeypatch.context() as patched:
        _kill(patched, at)
        with pytest.raises(TTransportException):
            one.send("k__upsert", shown)
    one.connect(another())
    one.send("k__upsert", shown)
    expected = {number: "new" if number >= 10 else "old" for number in range(30)}
    assert there(lake) == expected
    assert len(list(lake.timeline.versions("default.k"))) == 2
    one.send("k__upsert", shown)
    assert len(list(lake.timeline.versions("default.k"))) == 2
    clock.by_ms += RETAIN_MS + 60_000
    DoorSweep(service.store, clock).round()
    assert not directory.exists()
    assert there(lake) == expected
    assert check_files(service.store, orphans=True).orphans == []


def _kill(patched: pytest.MonkeyPatch, at: str) -> None:
    def killed(*_: object, **__: object) -> None:
        raise _KilledError

    def second(real: Callable[..., Any]) -> Callable[..., Any]:
        calls: list[object] = []

        def called(*arguments: Any, **named: Any) -> Any:
            calls.append(arguments)
            if len(calls) == 2:
                raise _KilledError
            return real(*arguments, **named)

        return called

    def first_only(location: str, pairs: Iterator[tuple[str, str]], pool: Executor) -> None:
        real_move(location, [next(iter(pairs))], pool)
        raise _KilledError

    real_move = contents.move
    # A process that is killed deletes nothing.
    patched.setattr(keyed_files.storage, "delete_directory", lambda _: None)
    match at:
        case "write":
            patched.setattr(keyed_files, "write_bucket_files", killed)
        case "second file":
            patched.setattr(bucket_files.pq, "ParquetWriter", second(bucket_files.pq.ParquetWriter))
        case "move":
            patched.setattr(keyed_files.contents, "move", first_only)
        case "entries":
            patched.setattr(keyed_files, "entry_of", killed)
        case "commit":
            patched.setattr(Timeline, "commit", killed)
        case "publish":
            patched.setattr(records, "publish", killed)
        case "discard":
            patched.setattr(contents, "delete_rows", killed)
        case "answer":
            patched.setattr(records, "answer", killed)


def test_a_statement_that_takes_long_stays_alive(
    lake: Client, spark: Spark, clock: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed(lake)
    one = spark()
    upsert(one, {1: "a"})
    beats = threading.Semaphore(0)
    write, heartbeat = KeyedFiles.write, Timeline.heartbeat

    def slow(*arguments: Any) -> Any:
        for _ in range(2):
            clock.by_ms += HEARTBEAT_MS * 3 // 4
            while beats.acquire(blocking=False):
                pass
            for _ in range(2):  # the first one may have begun before the time went on
                assert beats.acquire(timeout=30)
        return write(*arguments)

    def beat(*arguments: Any) -> list[int]:
        lost = heartbeat(*arguments)
        beats.release()
        return lost

    monkeypatch.setattr(publication, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(Timeline, "heartbeat", beat)
    monkeypatch.setattr(KeyedFiles, "write", slow)
    upsert(one, {1: "b"})
    assert there(lake) == {1: "b"}


def test_a_statement_that_nobody_works_on_blocks_others_for_a_while(
    lake: Client, service: Service, another: Another, spark: Spark, clock: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed(lake)
    one, other = spark(), spark("bob")
    other.connect(another())
    upsert(one, {1: "a"})
    one.write_table(one.look_up("k__upsert"), rows_of({1: "lost"}))
    shown = one.last_call("k__upsert")
    assert service.hms is not None
    stop = service.hms.stop
    monkeypatch.setattr(service.hms, "stop", lambda *_: stop(0.1))  # its worker is gone
    one.connect(port_of(service), timeout_s=2)
    with monkeypatch.context() as patched:
        _kill(patched, "commit")
        with pytest.raises(TTransportException):
            one.send("k__upsert", shown)
    with pytest.raises(REFUSED, match="heartbeat"):
        upsert(other, {1: "b"})
    clock.by_ms += HEARTBEAT_MS + 1_000
    upsert(other, {1: "b"})
    one.connect(another())
    for _ in range(2):
        with pytest.raises(REFUSED):
            one.send("k__upsert", shown)
    assert there(lake) == {1: "b"}


def test_two_processes_that_are_asked_at_once_commit_once(
    lake: Client, another: Another, spark: Spark, service: Service
) -> None:
    """The first one still works when the client asks the second one."""
    keyed(lake)
    one, again = spark(), spark()
    upsert(one, {1: "a"})
    one.write_table(one.look_up("k__upsert"), rows_of(dict.fromkeys(range(2000), "new")))
    shown = one.last_call("k__upsert")
    again.connect(another())
    threads = [threading.Thread(target=client.send, args=("k__upsert", shown)) for client in (one, again)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert there(lake) == dict.fromkeys(range(2_000), "new")
    assert len(list(lake.timeline.versions("default.k"))) == 2
    assert check_files(service.store, orphans=True).orphans == []


def test_many_small_files_of_many_partitions(lake: Client, spark: Spark) -> None:
    days(lake)
    one = spark()
    directory = one.look_up("k__upsert")
    at = pa.array([AT], pa.timestamp("us", "UTC"))
    for number in range(400):
        table = pa.table({"id": pa.array([number], pa.int64()), "x": [str(number)], "at": at})
        one.write_table(
            directory, table, partition=f"day={dt.date(2026, 1, 1) + dt.timedelta(days=number % 300)}", done=False
        )
    one.done(directory)
    one.end("k__upsert")
    assert there(lake) == {number: str(number) for number in range(400)}


def test_statements_that_wait_for_their_turn_hold_up_no_other_calls(
    lake: Client, service: Service, spark: Callable[..., SparkClient]
) -> None:
    keyed(lake, **{"conflict.policy": "row"})
    turns = service.doors._publication._keyed._turns
    for _ in range(AT_ONCE):
        turns.acquire()  # other statements are being written again
    try:
        waiting = []
        for number in range(ServerSettings().workers):
            client = spark(f"user{number}")
            client.write_table(client.look_up("k__upsert"), rows_of({number: "x"}))
            shown = client.last_call("k__upsert")
            waiting.append(threading.Thread(target=client.send, args=("k__upsert", shown)))
        for thread in waiting:
            thread.start()
        assert service.hms is not None
        while {one.name: one.pending for one in service.hms.lane_uses()}["slow"] < len(waiting):
            time.sleep(0.01)
        other = spark("other").client
        other.create_database(Database("d2", "", "", {}))
        assert other.get_database("d2").name == "d2"
    finally:
        for _ in range(AT_ONCE):
            turns.release()
    for thread in waiting:
        thread.join(60)
    assert len(there(lake)) == len(waiting)


def test_what_is_committed_is_not_given_up_with_another(
    lake: Client, spark: Spark, clock: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store fails once the first is committed. The second has ended when its call comes again, and collides."""
    keyed(lake)
    one = spark()
    upsert(one, {0: "base"})
    first, second = one.look_up("k__upsert"), one.look_up("k__upsert")
    one.write_table(first, rows_of({1: "first"}))
    shown = one.last_call("k__upsert")
    with monkeypatch.context() as patched:
        patched.setattr(records, "publish", _away)
        with pytest.raises(TApplicationException, match="ask again"):
            one.send("k__upsert", shown)
    one.write_table(second, rows_of({2: "second"}))
    with pytest.raises(REFUSED, match="version 2") as refused:
        one.send("k__upsert", shown)
    assert "none of them" not in str(refused.value)
    assert there(lake) == {0: "base", 1: "first"}
    with pytest.raises(REFUSED):
        one.end("k__upsert")
    clock.by_ms += DOUBT_MS + 1
    upsert(one, {2: "second"})
    assert there(lake) == {0: "base", 1: "first", 2: "second"}


def _away(*_: object, **__: object) -> None:
    raise Unavailable("the store is away")


def test_a_commit_after_which_it_fails_is_found(lake: Client, spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed(lake)
    commit = Timeline.commit

    def fails(*arguments: Any) -> None:
        commit(*arguments)
        raise RuntimeError("nobody expects it")

    monkeypatch.setattr(Timeline, "commit", fails)
    upsert(spark(), {1: "a"})
    assert there(lake) == {1: "a"}


def test_an_instant_is_given_up_if_it_cannot_be_told_that_it_is_alive(
    lake: Client, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed(lake)
    one = spark()
    one.write_table(one.look_up("k__upsert"), rows_of({1: "lost"}))
    with monkeypatch.context() as patched:
        patched.setattr(Timeline, "heartbeat", _away)
        with pytest.raises(REFUSED, match="the store is away"):
            one.end("k__upsert")
    upsert(spark("bob"), {1: "b"})
    assert there(lake) == {1: "b"}


@pytest.mark.parametrize("at", ["open", "write", "commit"])
def test_what_is_given_up_while_another_process_works_on_it_is_not_committed(
    lake: Client, service: Service, another: Another, spark: Spark, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The second application has the user and host of the first, so it may be that one, whose connection broke."""
    keyed(lake, **{"conflict.policy": "row"})
    one, other = spark(), spark()
    directory = one.look_up("k__upsert")
    one.write_table(directory, rows_of({1: "one"}))
    other.connect(another())
    owner, name = {
        "open": (publication.Publication, "_open"),
        "write": (KeyedFiles, "write"),
        "commit": (Timeline, "commit"),
    }[at]
    real, meanwhile = getattr(owner, name), threading.Lock()

    def slow(*arguments: Any) -> Any:
        if meanwhile.acquire(blocking=False):
            with pytest.raises(REFUSED, match="cannot be told which"):
                upsert(other, {2: "other"})
        return real(*arguments)

    monkeypatch.setattr(owner, name, slow)
    with pytest.raises(REFUSED):
        one.end("k__upsert")
    assert meanwhile.locked()
    assert there(lake) == {}
    assert service.timeline.open_instants()[0] == []


def test_what_is_committed_while_it_is_given_up_is_not_said_to_be_lost(
    lake: Client, another: Another, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed(lake, **{"conflict.policy": "row"})
    one, other = spark(), spark()
    one.write_table(one.look_up("k__upsert"), rows_of({1: "one"}))
    other.connect(another())
    real, meanwhile = door_service.decide, threading.Lock()

    def slow(*arguments: Any, **named: Any) -> Any:
        decision = real(*arguments, **named)
        if meanwhile.acquire(blocking=False):
            one.end("k__upsert")
        return decision

    monkeypatch.setattr(door_service, "decide", slow)
    other.write_table(other.look_up("k__upsert"), rows_of({2: "other"}))
    shown = other.last_call("k__upsert")
    with pytest.raises(TApplicationException, match="meanwhile"):
        other.send("k__upsert", shown)
    other.send("k__upsert", shown)  # as Hive's client repeats it
    assert there(lake) == {1: "one", 2: "other"}


def test_long_texts_that_repeat_are_decoded_bit_by_bit(lake: Client, tmp_path: Path, spark: Spark) -> None:
    """Spark writes them as a dictionary: small in the file, and large in memory."""
    rows = 4_000
    texts = {number: ("ab"[number % 2] * 10_000 if number % 7 else None) for number in range(rows)}
    path = str(tmp_path / "long.parquet")
    pq.write_table(rows_of(texts), path)
    assert Path(path).stat().st_size < 100_000
    keyed(lake)
    schema = Schema((Field(1, "id", INT), Field(2, "x", STRING)), (), 1)
    kind = TableKind(key=("id",), buckets=2)
    reader = RowReader(KeyedRows("default.k", schema, kind, "", 1), LocalFileSystem(), ThreadPoolExecutor(1))
    parts = list(reader.tables([path]))
    assert max(part.nbytes for part in parts) < statement_rows.BATCH_BYTES + 1_000_000
    assert {key: value for part in parts for key, value in zip(*part.to_pydict().values(), strict=True)} == texts
    upsert(spark(), texts)
    assert there(lake) == texts
