"""The client against the real service."""

from __future__ import annotations

import datetime as dt
import math
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from lakemark import Client, DataFile, UncommittedWarning, Version, Writer
from lakemark.errors import (
    AlreadyExists,
    CommitConflict,
    InstantStateError,
    InvalidArgument,
    InvalidFile,
    InvalidPredicate,
    InvalidSchema,
    NotEmpty,
    TableNotFound,
    Unavailable,
    UnsupportedOperation,
    VersionNotFound,
)
from lakemark.parquet import write_table
from tests.integration.grpc_server import connected, running_service

COLUMNS = "id bigint, name string, x double, at timestamp, month int, origin string"
MIDNIGHT = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with running_service(tmp_path) as service, connected(service) as client:
        client.databases.create("db")
        yield client


@pytest.fixture
def table(client: Client) -> str:
    return client.tables.create("db.flights", COLUMNS, partitioned_by=["month", "origin"]).name


def rows(first: int, last: int, month: int | None = 1, origin: str | None = "JFK") -> pa.Table:
    ids = list(range(first, last))
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "name": [f"n{one}" for one in ids],
            "x": [math.nan if one % 10 == 7 else one / 2 for one in ids],
            "at": pa.array([MIDNIGHT + dt.timedelta(hours=one) for one in ids], pa.timestamp("us", "UTC")),
            "month": pa.array([month] * len(ids), pa.int32()),
            "origin": pa.array([origin] * len(ids), pa.string()),
        }
    )


def append(client: Client, table: str, data: pa.Table) -> int:
    with client.begin(table) as writer:
        writer.write(data)
        return writer.commit().version


def ids(client: Client, table: str, predicate: str | None = None, **at: int) -> list[int]:
    found = client.read(table, predicate, columns=["id"], **at).column("id").to_pylist()
    return sorted(one for one in found if one is not None)


def test_databases_and_tables_from_birth_to_death(client: Client) -> None:
    assert client.databases.list() == ["db", "default"]
    made = client.tables.create("db.t", {"id": "bigint"}, properties={"k": "v"}, comment="why")
    assert (made.name, made.kind, made.version, made.comment) == ("db.t", "lake", 0, "why")
    assert client.tables.get("db.t") == made
    assert [one.name for one in client.tables.list("db", kind="lake")] == ["t"]
    assert client.tables.list("db", kind="warehouse") == []
    changed = client.tables.set_properties("db.t", {"a": "b"}, remove=["k"])
    assert (changed.properties.get("a"), changed.properties.get("k")) == ("b", None)
    assert client.tables.rename("db.t", "u").name == "db.u"
    with pytest.raises(AlreadyExists):
        client.tables.create("db.u", {"id": "bigint"})
    with pytest.raises(NotEmpty):
        client.databases.drop("db")
    client.tables.drop("db.u")
    client.tables.drop("db.u", if_exists=True)
    with pytest.raises(TableNotFound):
        client.tables.get("db.u")
    client.databases.drop("db")


def test_what_is_written_is_read_by_version_and_time(client: Client, table: str) -> None:
    assert ids(client, table) == []
    assert append(client, table, rows(0, 10)) == 1
    assert append(client, table, rows(10, 20, 2)) == 2
    first, second = client.timeline.versions(table)

    assert ids(client, table) == list(range(20))
    assert ids(client, table, version=1) == list(range(10))
    assert client.read(table, timestamp=second.committed_ms - 1).num_rows in (0, 10)
    assert client.snapshot(table, timestamp=second.committed_ms).version == 2
    assert (first.added_rows, first.partitions) == (10, ("month=1/origin=JFK",))
    with pytest.raises(VersionNotFound):
        client.snapshot(table, version=3)
    with pytest.raises(VersionNotFound, match=r"did not exist at 1970-01-01T00:00:05.000Z; it was created at 2"):
        client.snapshot(table, timestamp=5_000)
    with pytest.raises(VersionNotFound, match="did not exist at -9000000000000000000 ms"):
        client.snapshot(table, timestamp=-9_000_000_000_000_000_000)
    with pytest.raises(InvalidArgument, match="no columns are named"):
        client.read(table, columns=[])
    with pytest.raises(
        InvalidArgument, match="partition column month: partition value 'may' is not a value of type int"
    ):
        client.begin(table, "upsert", partitions=[{"month": "may", "origin": "JFK"}])
    with pytest.raises(InvalidArgument, match="give only one of"):
        client.snapshot(table, version=1, timestamp=0)


def test_rows_in_nanoseconds_are_taken_if_nothing_is_lost(client: Client) -> None:
    client.tables.create("default.ns", "at timestamp, wall timestamp_ntz")
    zoned, naive = pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("ns")
    noon = pa.array([1_356_998_400_000_000_000])

    append(client, "default.ns", pa.table({"at": noon.cast(zoned), "wall": noon.cast(naive)}))

    assert client.read("default.ns").to_pylist() == [{"at": MIDNIGHT, "wall": MIDNIGHT.replace(tzinfo=None)}]
    with pytest.raises(InvalidSchema, match=r"'wall' does not fit default.ns: .*would lose data"):
        append(client, "default.ns", pa.table({"wall": pa.array([1]).cast(naive)}))
    with pytest.raises(InvalidSchema, match=r"'at' is timestamp in the table .* adjusted to UTC"):
        append(client, "default.ns", pa.table({"at": noon.cast(naive)}))


@pytest.mark.parametrize(
    "predicate",
    [
        "id >= 3 AND ID < 12",
        "x > 5",
        "x <= 5",
        "NOT (x > 5)",
        "x = double('NaN')",
        "x != 2.0",
        "x IN (1.0, 2.0)",
        "id NOT IN (1, 2)",
        "name LIKE 'n1_'",
        "name NOT LIKE 'n1%'",
        "at < timestamp'2013-01-01 05:00:00Z'",
        "month = 2 OR origin IS NULL",
        "month IS NULL",
        "origin = 'a/b%'",
        "name = 'nothing'",
        "TRUE",
    ],
)
def test_reads_are_exact(client: Client, table: str, predicate: str) -> None:
    data = [rows(0, 10), rows(10, 20, 2, "a/b%"), rows(20, 30, None, None)]
    for one in data:
        append(client, table, one)
    everything = pa.concat_tables(data).to_pylist()

    def holds(row: dict[str, Any]) -> bool:
        return bool(PYTHON[predicate](row))

    assert ids(client, table, predicate) == [row["id"] for row in everything if holds(row)]


def _nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


PYTHON: dict[str, Callable[[dict[str, Any]], bool]] = {
    "id >= 3 AND ID < 12": lambda row: 3 <= row["id"] < 12,
    "x > 5": lambda row: row["x"] > 5 or _nan(row["x"]),
    "x <= 5": lambda row: row["x"] <= 5,
    "NOT (x > 5)": lambda row: row["x"] <= 5,
    "x = double('NaN')": lambda row: _nan(row["x"]),
    "x != 2.0": lambda row: row["x"] != 2.0,
    "x IN (1.0, 2.0)": lambda row: row["x"] in (1.0, 2.0),
    "id NOT IN (1, 2)": lambda row: row["id"] not in (1, 2),
    "name LIKE 'n1_'": lambda row: row["name"].startswith("n1") and len(row["name"]) == 3,
    "name NOT LIKE 'n1%'": lambda row: not row["name"].startswith("n1"),
    "at < timestamp'2013-01-01 05:00:00Z'": lambda row: row["at"] < MIDNIGHT + dt.timedelta(hours=5),
    "month = 2 OR origin IS NULL": lambda row: row["month"] == 2 or row["origin"] is None,
    "month IS NULL": lambda row: row["month"] is None,
    "origin = 'a/b%'": lambda row: row["origin"] == "a/b%",
    "name = 'nothing'": lambda row: False,
    "TRUE": lambda row: True,
}


def test_rows_of_other_libraries_are_written(client: Client, table: str) -> None:
    """Rows of pandas and a record batch. Values that are not tables stage nothing."""
    with client.begin(table) as writer:
        writer.write(pd.DataFrame({"id": [1, 2], "name": ["a", None], "month": [1, 1], "origin": ["JFK", "EWR"]}))
        writer.write(pa.record_batch({"id": [3], "month": [1], "origin": ["JFK"]}))
        with pytest.raises(
            InvalidArgument, match=r"^rows must be a pyarrow Table, .*, a DataFrame of pandas .*, not a dict$"
        ):
            writer.write({"id": [4]})  # type: ignore[arg-type]
        writer.commit()
    found = client.read(table, columns=["id", "name", "origin"]).sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in found] == [(1, "a", "JFK"), (2, None, "EWR"), (3, None, "JFK")]


def test_predicates_that_cannot_be_evaluated_here(client: Client, table: str) -> None:
    append(client, table, rows(0, 10))
    with pytest.raises(UnsupportedOperation, match="by an engine"):
        client.read(table, "length(name) > 1")
    with pytest.raises(InvalidPredicate, match="did you mean"):
        client.read(table, "idd = 1")


def test_aggregates_by_partition(client: Client) -> None:
    client.tables.create("default.sums", "id bigint, fare decimal(8,2), day date", partitioned_by=["day"])
    days = [dt.date(2026, 11, 1), dt.date(2026, 11, 2)]
    for day, fares in zip(days, (["1.50", "2.50"], ["9.00", None]), strict=True):
        with client.begin("default.sums") as writer:
            money = pa.array([fare and Decimal(fare) for fare in fares], pa.decimal128(8, 2))
            writer.write(pa.table({"id": [1, 2], "fare": money, "day": [day, day]}))
            writer.commit()
    found = client.aggregate("default.sums", columns=["fare", "ID"], by_partition=True)
    assert (found.version, found.exact) == (2, True)
    assert [(one.name, one.partition, one.files, one.rows) for one in found.groups] == [
        (f"day={day}", (day,), 1, 2) for day in days
    ]
    bounds = [
        (one.columns["fare"].min, one.columns["fare"].max, one.columns["fare"].null_count) for one in found.groups
    ]
    assert bounds == [(Decimal("1.50"), Decimal("2.50"), 0), (Decimal("9.00"), Decimal("9.00"), 1)]
    assert [one.columns["ID"].max for one in found.groups] == [2, 2]
    (whole,) = client.aggregate("default.sums", "day = '2026-11-01'", version=2).groups
    assert (whole.name, whole.partition, whole.rows, whole.columns) == ("", (), 2, {})
    assert not client.aggregate("default.sums", "id = 1").exact
    assert client.aggregate("default.sums", "id = 7", by_partition=True).groups == []
    with pytest.raises(InvalidArgument, match="there is no column 'fair'"):
        client.aggregate("default.sums", columns=["fair"])


def test_plans_come_in_pages_of_one_version(client: Client, table: str) -> None:
    for number in range(5):
        append(client, table, rows(number * 10, number * 10 + 10))
    plan = client.plan(table, "id < 45", statistics=["id"], page_size=2)
    append(client, table, rows(0, 3))

    assert plan.summary.files_planned == 5
    assert [file.statistics[0].min for file in plan] == [0, 10, 20, 30, 40]
    assert [page.num_rows for page in plan.pages()] == [2, 2, 1]
    assert plan.table().num_rows == len(plan.paths) == len(set(plan.paths)) == 5
    assert all(Path(path.removeprefix("file:")).is_file() for path in plan.paths)
    assert client.plan(table, limit=2).table().num_rows == 2


def test_overwrites(client: Client, table: str) -> None:
    append(client, table, rows(0, 5, 1))
    append(client, table, rows(5, 10, 2))
    with client.begin(table, "overwrite_partitions", partitions=[{"month": 1, "origin": "JFK"}]) as writer:
        writer.write(rows(100, 102, 1))
        writer.commit()
    assert ids(client, table) == [5, 6, 7, 8, 9, 100, 101]
    with client.begin(table, "overwrite_table") as writer:
        writer.commit(metadata={"why": "empty it"})
    assert ids(client, table) == []
    assert newest(client, table).metadata == {"why": "empty it"}


def newest(client: Client, table: str) -> Version:
    return client.timeline.versions(table, newest_first=True, limit=1)[0]


def test_a_writer_that_leaves_by_an_error_is_rolled_back(client: Client, table: str) -> None:
    writer = client.begin(table)

    def fail() -> None:
        with writer:
            writer.write(rows(0, 5))
            raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError):
        fail()

    found = client.timeline.instant(table, writer.instant)
    assert (found.state, found.version) == ("rolled_back", 0)
    assert "on purpose" in found.rolled_back_reason
    assert client.snapshot(table).files == 0
    with client.begin(table) as forgotten:
        pass
    assert client.timeline.instant(table, forgotten.instant).state == "rolled_back"


def test_a_block_that_ends_without_a_commit_warns_of_what_is_lost(client: Client, table: str) -> None:
    def forget() -> Writer:
        with client.begin(table) as writer:
            writer.write(rows(0, 5))
            writer.write(rows(5, 9))
        return writer

    def forget_removal() -> None:
        with client.begin(table, "upsert") as writer:
            writer.remove([file.path for file in client.plan(table)])

    def fail() -> None:
        with client.begin(table) as writer:
            writer.write(rows(0, 5))
            raise ZeroDivisionError("on purpose")

    with pytest.warns(UncommittedWarning, match=r"the rows of 2 staged files with it.* writer\.commit\(\)") as told:
        writer = forget()
    assert [one.filename for one in told if one.category is UncommittedWarning] == [__file__], "it points at the block"
    assert client.timeline.instant(table, writer.instant).state == "rolled_back"
    append(client, table, rows(0, 5))
    with pytest.warns(UncommittedWarning, match="the removal of 1 file with it"):
        forget_removal()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UncommittedWarning):
            forget()
        assert client.timeline.instants(table, limit=1, newest_first=True)[0].state == "rolled_back"
        with pytest.raises(ZeroDivisionError):
            fail()


def test_who_has_nothing_to_lose_or_says_so_is_not_warned(client: Client, table: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with client.begin(table):
            pass
        with client.begin(table) as writer:
            writer.write(rows(0, 5))
            writer.rollback("it was a rehearsal")
        append(client, table, rows(0, 5))


def test_conflicts_name_what_collides_and_roll_back(client: Client, table: str) -> None:
    append(client, table, rows(0, 5))
    partition = [(1, "JFK")]
    with client.begin(table, "overwrite_partitions", partitions=partition) as first:
        with pytest.raises(CommitConflict) as raised:
            client.begin(table, "overwrite_partitions", partitions=partition)
        assert raised.value.details
        first.commit()
    states = [one.state for one in client.timeline.instants(table)]
    assert states == ["completed", "completed", "rolled_back"]


def test_one_commit_after_the_other(client: Client, table: str) -> None:
    """The next writer comes with the commit, is opened when it is asked for, or is given up if it is not used."""
    with client.begin(table) as writer:
        writer.write(rows(0, 2))
        assert writer.commit(begin_next=True).version == 1
        with writer.next() as second:
            assert (second.state, second.read_version) == ("inflight", 1)
            second.write(rows(2, 4))
            assert second.commit().version == 2
            with second.next() as third:
                assert (third.state, third.read_version) == ("inflight", 2)
                third.write(rows(4, 6))
                assert third.commit(begin_next=True).version == 3
    assert ids(client, table) == list(range(6))
    assert {one.state for one in client.timeline.instants(table)} == {"completed", "rolled_back"}
    with (
        client.begin(table, partitions=[{"month": 1, "origin": "JFK"}]) as told,
        pytest.raises(InvalidArgument, match="begin again with"),
    ):
        told.commit(begin_next=True)


def test_a_request_id_commits_once(client: Client, table: str) -> None:
    def attempt() -> int:
        with client.begin(table, request_id="batch-7") as writer:
            if not writer.committed:
                writer.write(rows(0, 5))
            return writer.commit().version

    assert [attempt(), attempt(), attempt()] == [1, 1, 1]
    assert ids(client, table) == list(range(5))


def test_a_request_id_goes_on_after_every_kind_of_end(client: Client, table: str) -> None:
    opened = client.begin(table, request_id="b")
    again = client.begin(table, request_id="b")
    assert again.instant == opened.instant, "nothing was staged: the same instant goes on"
    opened.write(rows(0, 5))
    fresh = client.begin(table, request_id="b")
    assert fresh.instant != opened.instant, "what was staged cannot be taken back, so the instant is given up"
    with pytest.raises(InstantStateError):
        opened.commit()
    fresh.rollback()
    with client.begin(table, request_id="b") as last:
        last.write(rows(0, 3))
        last.commit()
    done = client.begin(table, request_id="b")
    assert done.committed
    assert done.commit().instant == last.instant
    assert ids(client, table) == [0, 1, 2]


def test_staging_in_pieces_and_by_columns(client: Client, table: str) -> None:
    with client.begin(table) as writer:
        entries = [
            DataFile(f"{writer.instant}/month=1/origin=x/g{number}/f.parquet", 10, 1, (1, "x")) for number in range(100)
        ]
        assert writer.stage(entries[:30]) == 30
        assert writer.stage(entries[30:]) == 100
        with pytest.raises(InvalidFile, match="once"):
            writer.stage(entries[:1])
        with pytest.raises(InvalidFile, match="outside"):
            writer.stage([DataFile("elsewhere/g/f.parquet", 1, 1, (1, "x"))])
        writer.commit()
        assert writer.commit().version == 1, "asked again it answers the same"
    assert client.snapshot(table).files == 100


def test_rows_that_do_not_fit_are_refused_with_every_reason(client: Client, table: str) -> None:
    wrong = pa.table({"id": ["a"], "more": [1], "month": pa.array([1], pa.int32())})
    with pytest.raises(InvalidSchema) as raised, client.begin(table) as writer:
        writer.write(wrong)
    for part in ("'id' is bigint", "'more'", "partition column 'origin' is missing"):
        assert part in raised.value.message
    assert client.timeline.instant(table, writer.instant).state == "rolled_back"


def test_a_heartbeat_keeps_a_slow_writer_alive(client: Client, table: str) -> None:
    sweeps = threading.Event()
    with client.begin(table, heartbeat_timeout_s=0.3) as writer:
        with client.begin(table, heartbeat_timeout_s=0.1) as silent:
            client._heartbeats.remove(silent._beat)  # type: ignore[arg-type] # as if its process had died
            while client.timeline.instant(table, silent.instant).state != "rolled_back":
                sweeps.wait(0.02)
            with pytest.raises(InstantStateError):
                silent.commit()
            silent.rollback()
        sweeps.wait(0.5)  # longer than its timeout
        assert writer.alive
        writer.write(rows(0, 2))
        writer.commit()
    assert ids(client, table) == [0, 1]


def test_many_threads_share_a_client(client: Client, table: str) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            append(client, table, rows(number * 10, number * 10 + 10))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert ids(client, table) == list(range(80))
    assert [one.version for one in client.timeline.versions(table, limit=100)] == list(range(1, 9))


def test_readers_that_merge_nothing_refuse_deltas(client: Client) -> None:
    client.tables.create("default.deltas", {"id": "bigint"})
    with client.begin("default.deltas") as writer:
        written = writer.write(pa.table({"id": [1, 2]}))
        base = writer.commit()
    (file,) = client.plan("default.deltas")
    with client.begin("default.deltas", "upsert", file_groups=[file.file_group]) as writer:
        given = write_table(pa.table({"id": [2]}), writer).files[0]
        delta = replace(given, kind="delta", file_group=file.file_group, base_instant=base.instant)
        writer.commit([delta])
    assert sorted(one.kind for one in client.plan("default.deltas")) == ["base", "delta"]
    assert client.timeline.instant("default.deltas", writer.instant).action == "deltacommit"
    (slice_,) = client.file_slices("default.deltas")
    assert (slice_.base and slice_.base.path, [one.path for one in slice_.deltas]) == (file.path, [given.path])
    (before,) = client.file_slices("default.deltas", "before_instant", before_instant=writer.instant)
    assert before.deltas == ()
    assert client.file_slices("default.deltas", "pending_compaction") == []
    with client.begin("default.deltas", "compact", file_groups=[file.file_group]) as compaction:
        (pending,) = client.file_slices("default.deltas", "pending_compaction")
        assert pending == slice_
        merged = write_table(pa.table({"id": [1, 2]}), compaction).files[0]
        compaction.commit([replace(merged, file_group=file.file_group)], removed=[file.path, given.path])
    assert client.read("default.deltas").num_rows == 2
    replaced = client.replaced_files("default.deltas", 2)
    assert sorted((one.path, one.removed_version) for one in replaced) == sorted([(file.path, 3), (given.path, 3)])
    with pytest.raises(UnsupportedOperation, match="1 delta files among those needed"):
        client.read("default.deltas", version=2)
    assert written.files[0].path == file.path


def test_several_tables_in_one_transaction(client: Client) -> None:
    names = ["default.one", "default.two"]
    for name in names:
        client.tables.create(name, {"id": "bigint"})
    writers = [client.begin(name) for name in names]
    for number, writer in enumerate(writers):
        writer.write(pa.table({"id": [number]}))
    commits = client.commit_together(writers, metadata={"job": "7"})
    assert [one.version for one in commits] == [1, 1]
    assert all(writer.committed for writer in writers)
    assert writers[0].commit() == commits[0]
    assert [one.version for one in client.snapshots(names)] == [1, 1]
    assert client.timeline.versions("default.two")[0].metadata == {"job": "7"}
    (old,) = client.plan(names[0]).paths
    late, first, free = client.begin(names[0], "upsert"), client.begin(names[0], "upsert"), client.begin(names[1])
    late.remove([old])
    first.commit(removed=[old])
    with pytest.raises(CommitConflict, match=f"instant {first.instant}"):
        client.commit_together([free, late])
    assert client.timeline.instant(names[1], free.instant).state == "inflight", "none is published"
    assert client.timeline.instant(names[0], late.instant).state == "rolled_back"
    free.rollback()


def test_a_partition_that_no_directory_can_be_named_after_is_refused_before_anything_is_written(
    client: Client, table: str
) -> None:
    """On local disks and HDFS a name has up to 255 bytes, whatever its number of characters."""
    fits, too_long = "é" * 120, "é" * 130
    with client.begin(table) as writer:
        location = Path(writer.location.removeprefix("file:"))
        with pytest.raises(InvalidArgument, match=r"origin=é+… has a name of 267 bytes, .* at most 255"):
            writer.write(pa.concat_tables([rows(0, 1), rows(1, 2, origin=too_long)]))
        assert not location.exists()
        writer.write(rows(0, 1, origin=fits))
        writer.commit()
    assert ids(client, table, f"origin = '{fits}'") == [0]


def test_files_that_cannot_be_written_are_told_as_unavailable(client: Client, table: str) -> None:
    with client.begin(table) as writer:
        location = Path(writer.location.removeprefix("file:"))
        location.parent.mkdir(parents=True, exist_ok=True)
        location.write_text("no directory")
        with pytest.raises(Unavailable, match="cannot be written"):
            writer.write(rows(0, 1))
        writer.rollback()


def test_arguments_the_wrong_way_round_are_told(client: Client, table: str) -> None:
    with client.begin(table) as writer:
        with pytest.raises(InvalidArgument, match=r"^table must be a pyarrow Table, .*, not a Writer$"):
            write_table(writer, rows(0, 1))  # type: ignore[arg-type]
        writer.rollback()


def test_a_version_of_many_digits_is_no_version(client: Client, table: str) -> None:
    for text in ("v" + "9" * 30, "main@v" + "9" * 10_000):
        with pytest.raises(VersionNotFound, match=r"there is no version 9{1,40}: versions are numbers up to 2"):
            client.branches.compare(table, text, "main")


def test_texts_longer_than_their_column_lets_them_be_are_refused(client: Client) -> None:
    client.tables.create("db.words", "word varchar(3), code char(2), all array<varchar(3)>")
    with client.begin("db.words") as writer:
        writer.write(pa.table({"word": ["a", "äöü"], "code": ["x", None], "all": [["abc"], []]}))
        with pytest.raises(InvalidSchema, match=r"1 texts of column 'word' are longer than varchar\(3\).*'abcd'"):
            writer.write(pa.table({"word": ["abc", "abcd"]}))
        with pytest.raises(InvalidSchema, match=r"column 'code' are longer than char\(2\)"):
            writer.write(pa.table({"code": ["abc"]}))
        with pytest.raises(InvalidSchema, match=r"column 'all' are longer than varchar\(3\)"):
            writer.write(pa.table({"all": [["abc", "abcd"]]}))
        writer.commit()
    assert client.read("db.words", columns=["word"]).column("word").to_pylist() == ["a", "äöü"]


def test_the_text_of_null_in_names_of_partitions_is_no_value(client: Client, table: str) -> None:
    """It would be read back as null, from the directory of real nulls."""
    text = "__HIVE_DEFAULT_PARTITION__"
    with client.begin(table) as writer:
        with pytest.raises(InvalidArgument, match=f"the text '{text}' stands for null in the names of partitions"):
            writer.write(rows(0, 1, origin=text))
        given = DataFile(f"{writer.instant}/month=1/origin={text}/g/f.parquet", 1, 1, (1, text))
        with pytest.raises(InvalidArgument, match="stands for null"):
            writer.stage([given])
        writer.stage([replace(given, partition=(1, None))])
        writer.commit()
    with pytest.raises(InvalidArgument, match="stands for null"):
        client.begin(table, "overwrite_partitions", partitions=[(1, text)])
    assert client.plan(table, "origin is null").summary.files_planned == 1


def test_there_is_one_type_of_table_to_ask_for(client: Client) -> None:
    for kind in ("lakes", "warehouse", ""):
        with pytest.raises(InvalidArgument, match=f"lakemark.type = '{kind}' is not a type of table: .* 'lake'"):
            client.tables.create("db.t", "id bigint", properties={"lakemark.type": kind})
    made = client.tables.create("db.t", "id bigint", properties={"lakemark.type": "Lake"})
    assert made.properties["lakemark.type"] == "lake"


def test_a_merge_shows_what_it_replayed(client: Client, table: str) -> None:
    append(client, table, rows(0, 3))
    client.branches.create(table, "dev")
    replayed = []
    for first, month in ((10, 1), (20, 2)):
        with client.begin(table, branch="dev") as writer:
            writer.write(rows(first, first + 5, month))
            replayed.append(writer.commit().version)
    with client.begin(table, "overwrite_predicate", partitions=[(1, "JFK")], branch="dev") as writer:
        gone = next(one for one in client.plan(table, branch="dev") if one.added_version == replayed[0])
        writer.commit(removed=[gone.path])
    client.branches.merge(table, "dev")

    own = [one for one in client.timeline.versions(table, branch="dev") if one.version > 1]
    merged = client.timeline.versions(table, newest_first=True, limit=1)[0]
    assert (merged.merged_branch, merged.added_files, merged.removed_files) == ("dev", 2, 1)
    for count in ("added_files", "added_rows", "added_bytes", "removed_files", "removed_rows", "removed_bytes"):
        assert getattr(merged, count) == sum(getattr(one, count) for one in own), count
    shown = client.timeline.instant(table, merged.instant)
    assert (shown.staged_files, shown.staged_rows, shown.removed_files) == (2, 10, 1)
    assert len(ids(client, table)) == 3 + 5
