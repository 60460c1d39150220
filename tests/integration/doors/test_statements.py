"""What the calls of statements become, whichever way they end: rows are there once, or the statement fails."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import cycle
from pathlib import Path

import pyarrow as pa
import pytest
from hmsclient.genthrift.hive_metastore.ttypes import MetaException, NoSuchObjectException
from pyarrow.fs import FileSystem
from thrift.Thrift import TApplicationException
from thrift.transport.TTransport import TTransportException

from lakemark import Client, connect
from lakemark_core.errors import Unavailable
from lakemark_hms.doors import facade
from lakemark_server.context.clock import now_ms
from lakemark_server.doors import contents, looks, publication, records
from lakemark_server.doors import service as doors_service
from lakemark_server.doors.service import DOUBT_MS, FAILURE_MARGIN_MS, LOST_MS, Doors
from lakemark_server.doors.sweep import RETAIN_MS, DoorSweep
from lakemark_server.process import Service
from lakemark_server.timeline.service import Timeline
from lakemark_server.verify.files import check_files
from tests.integration.doors.statements import REFUSED, Another, Later, SparkClient, port_of


@pytest.fixture
def lake(service: Service) -> Iterator[Client]:
    with connect(service.grpc_address) as client:
        client.tables.create("default.t", "id int")
        client.tables.create("default.p", "id int, m int", partitioned_by=["m"])
        yield client


def ids(lake: Client, name: str = "t") -> list[int]:
    return sorted(lake.read(f"default.{name}").column("id").to_pylist())


def versions(lake: Client, name: str = "t") -> int:
    return len(list(lake.timeline.versions(f"default.{name}")))


def test_each_look_up_gives_a_directory_of_its_own(lake: Client, spark: Callable[..., SparkClient]) -> None:
    one = spark()
    given = [one.look_up("t__append") for _ in range(3)]
    assert len(set(given)) == 3
    assert all(path.is_dir() for path in given)
    assert one.client.get_all_tables("default") == ["p", "t"]
    assert one.client.get_partitions("default", "p__append", -1) == []


def test_a_statement_is_a_commit_with_statistics(lake: Client, spark: Callable[..., SparkClient]) -> None:
    one = spark()
    directory = one.look_up("t__append")
    one.write(directory, [1, 2], done=False)
    one.write(directory, [3])
    one.end("t__append")
    assert ids(lake) == [1, 2, 3]
    assert versions(lake) == 1
    files = list(lake.plan("default.t").files())
    assert sorted(file.row_count for file in files) == [1, 2]
    assert [file.row_count for file in lake.plan("default.t", "id > 2").files()] == [1]
    assert len({file.path.rpartition("/")[0] for file in files}) == 2, "each in a directory of its own"


def test_partitions_come_from_directories(lake: Client, spark: Callable[..., SparkClient]) -> None:
    one = spark()
    directory = one.look_up("p__append")
    one.write(directory, [1], partition="m=1", done=False)
    one.write(directory, [2], partition="m=__HIVE_DEFAULT_PARTITION__")
    one.add_partitions("p__append", ["1", "__HIVE_DEFAULT_PARTITION__"])
    one.end("p__append")
    one.end("p__append")  # Spark calls once for the partitions, and once for the statement
    rows = lake.read("default.p").to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == [{"id": 1, "m": 1}, {"id": 2, "m": None}]
    assert versions(lake, "p") == 1
    with pytest.raises(REFUSED, match="no rows of a statement"):
        one.end("p__append")


def test_an_overwrite_replaces_the_table_or_the_partitions_of_its_rows(
    lake: Client, spark: Callable[..., SparkClient]
) -> None:
    one = spark()
    one.insert("t__append", [1, 2])
    one.insert("t__overwrite", [3])
    assert ids(lake) == [3]
    for name, rows in (("append", {"m=1": [1], "m=2": [2]}), ("overwrite", {"m=2": [5]})):
        directory = one.look_up(f"p__{name}")
        for partition, values in rows.items():
            one.write(directory, values, partition=partition)
        one.end(f"p__{name}")
        one.end(f"p__{name}")
    assert ids(lake, "p") == [1, 5]


def test_an_overwrite_loses_to_what_came_since_it_was_looked_up(
    lake: Client, spark: Callable[..., SparkClient]
) -> None:
    one, other = spark(), spark("bob")
    one.insert("t__append", [1])
    directory = one.look_up("t__overwrite")
    other.insert("t__append", [2])
    one.write(directory, [9])
    with pytest.raises(REFUSED, match="version 2"):
        one.end("t__overwrite")
    assert ids(lake) == [1, 2]
    one.insert("t__overwrite", [9])
    assert ids(lake) == [9]


def test_an_overwrite_that_was_looked_up_before_the_first_commit_loses_to_it(
    lake: Client, spark: Callable[..., SparkClient]
) -> None:
    one, other = spark(), spark("bob")
    directory = one.look_up("t__overwrite")
    other.insert("t__append", [1])
    one.write(directory, [9])
    with pytest.raises(REFUSED, match="version 1"):
        one.end("t__overwrite")
    assert ids(lake) == [1]
    directory = one.look_up("p__overwrite")
    other.write(other.look_up("p__append"), [1], partition="m=1")
    other.end("p__append")
    other.end("p__append")
    one.write(directory, [9], partition="m=1")
    with pytest.raises(REFUSED, match="version 1"):
        one.end("p__overwrite")
    assert ids(lake, "p") == [1]


def test_a_static_overwrite_of_an_append_door_is_refused(lake: Client, spark: Callable[..., SparkClient]) -> None:
    one = spark()
    directory = one.look_up("t__append")
    shutil.rmtree(directory)  # as Spark does first
    one.write(directory, [1])
    with pytest.raises(REFUSED, match=r"INSERT OVERWRITE.*use default\.t__overwrite"):
        one.end("t__append")
    assert ids(lake) == []
    one.insert("t__append", [2])
    assert ids(lake) == [2]


def test_a_dynamic_overwrite_leaves_no_success(lake: Client, spark: Callable[..., SparkClient]) -> None:
    one = spark()
    directory = one.look_up("p__append")
    one.write(directory, [1], partition="m=1", done=False)
    with pytest.raises(REFUSED, match=r"INSERT OVERWRITE.*use default\.p__overwrite"):
        one.end("p__append")
    directory = one.look_up("p__overwrite")
    one.write(directory, [2], partition="m=1", done=False)
    one.end("p__overwrite")
    one.end("p__overwrite")
    assert ids(lake, "p") == [2]


def test_of_two_overwrites_that_cannot_be_told_apart_none_is_committed(
    lake: Client, spark: Callable[..., SparkClient]
) -> None:
    one = spark()
    for rows in ([1], [2]):
        one.write(one.look_up("p__overwrite"), rows, partition="m=1", done=False)
    with pytest.raises(REFUSED, match="none of them was committed"):
        one.end("p__overwrite")
    with pytest.raises(REFUSED, match="repeat it"):
        one.end("p__overwrite")
    assert ids(lake, "p") == []


def test_no_rows_are_a_version_without_files(lake: Client, spark: Callable[..., SparkClient]) -> None:
    one = spark()
    directory = one.look_up("t__append")
    one.write(directory, [])
    one.end("t__append")
    assert (ids(lake), versions(lake)) == ([], 1)
    one.insert("t__append", [1])
    one.insert("t__overwrite", [])
    assert (ids(lake), versions(lake)) == ([], 3)
    one.done(one.look_up("p__overwrite"))
    one.end("p__overwrite")
    assert versions(lake, "p") == 1


def test_a_statement_that_failed_leaves_nothing_behind_for_others(
    lake: Client, spark: Callable[..., SparkClient]
) -> None:
    one = spark()
    one.write(one.look_up("t__append"), [1], done=False)  # no _SUCCESS: it failed, was cancelled, or still runs
    one.insert("t__append", [2])
    assert ids(lake) == [2]
    with pytest.raises(REFUSED, match="no rows"):
        one.end("t__append")


@pytest.mark.parametrize("mark", ["_temporary/0/_temporary/attempt_1", "__magic_job-1/tasks", ".spark-staging-1"])
def test_what_a_second_copy_of_a_task_writes_is_not_committed(
    lake: Client, spark: Callable[..., SparkClient], mark: str
) -> None:
    """Speculation: the copy that lost has written rows, and may go on with it after the job has ended."""
    one = spark()
    directory = one.look_up("p__append")
    one.write(directory / mark, [1], partition="m=1", done=False)
    one.write(directory, [1], partition="m=1")
    one.write(directory / mark, [2], partition="m=2", done=False)
    one.end("p__append")
    one.write(directory / mark, [1], partition="m=1", done=False)
    one.end("p__append")
    assert ids(lake, "p") == [1]
    one.write(one.look_up("p__append"), [3], partition="m=1")
    one.end("p__append")
    assert ids(lake, "p") == [1, 3]


def test_statements_at_once_are_each_answered_after_their_rows_are_there(
    lake: Client, spark: Callable[..., SparkClient]
) -> None:
    """The calls of an application do not say which statement they end."""
    one = spark()
    first, second = one.look_up("t__append"), one.look_up("t__append")
    one.write(second, [2])
    one.write(first, [1])
    one.end("t__append")
    assert ids(lake) == [1, 2], "the call may be that of either"
    one.end("t__append")
    assert (ids(lake), versions(lake)) == ([1, 2], 2)
    with pytest.raises(REFUSED, match="no rows"):
        one.end("t__append")


def test_a_call_with_the_size_stands_for_one_statement_without_partitions(
    lake: Client, spark: Callable[..., SparkClient]
) -> None:
    """As with spark.sql.statistics.size.autoUpdate.enabled."""
    one = spark()
    for rows in ([1], [2]):
        one.write(one.look_up("t__append"), rows)
    for _ in range(2):
        one.end("t__append", size=123)
    assert ids(lake) == [1, 2]
    one.write(one.look_up("p__append"), [3], partition="m=1")
    one.end("p__append", size=123)
    with pytest.raises(REFUSED, match="no rows"):
        one.end("p__append")


def test_the_same_call_is_answered_again(lake: Client, another: Another, spark: Callable[..., SparkClient]) -> None:
    """The reply was lost; perhaps another process is asked."""
    one = spark()
    one.write(one.look_up("t__append"), [1])
    call = one.end("t__append")
    one.send("t__append", call)
    one.connect(another())
    one.send("t__append", call)
    assert (ids(lake), versions(lake)) == ([1], 1)
    with pytest.raises(REFUSED, match="no rows"):
        one.end("t__append")


def test_what_was_refused_stays_refused(lake: Client, spark: Callable[..., SparkClient]) -> None:
    one = spark()
    one.write(one.look_up("t__append"), [1], more={"strange": pa.array(["x"])})
    shown = one.last_call("t__append")
    for _ in range(2):
        with pytest.raises(REFUSED, match="column 'strange' of the file is not in the table"):
            one.send("t__append", shown)
    one.insert("t__append", [2])
    assert ids(lake) == [2]


def test_one_bad_statement_of_two_refuses_both(lake: Client, spark: Callable[..., SparkClient]) -> None:
    """Neither call says whose it is, so that none may be told that its rows are there."""
    one = spark()
    one.write(one.look_up("t__append"), [1])
    one.write(one.look_up("t__append"), [2], more={"strange": pa.array(["x"])})
    for _ in range(2):
        with pytest.raises(REFUSED):
            one.end("t__append")
    assert ids(lake) == []


def test_a_refusal_leaves_no_credit_for_other_calls(lake: Client, spark: Callable[..., SparkClient]) -> None:
    """Three statements at once. The first call ends two; when the third one is refused, the call that comes next may
    be its own, so it is not answered well."""
    one = spark()
    places = [one.look_up("t__append") for _ in range(3)]
    one.write(places[0], [1])
    one.write(places[1], [2])
    one.end("t__append")
    one.write(places[2], [3], more={"strange": pa.array(["x"])})
    for _ in range(2):
        with pytest.raises(REFUSED):
            one.end("t__append")
    assert ids(lake) == [1, 2]


def test_a_dead_drivers_rows_are_nobodys(
    lake: Client, service: Service, spark: Callable[..., SparkClient], clock: Later
) -> None:
    """Another user's statement has nothing to do with them. Of the same user it may be that the driver lives on."""
    dead, other = spark(), spark("bob")
    dead.write(dead.look_up("t__append"), [1])
    dead.close()
    other.insert("t__append", [2])
    same = spark()
    with pytest.raises(REFUSED, match="after half a minute"):
        same.insert("t__append", [3])
    clock.by_ms += DOUBT_MS + 1
    same.insert("t__append", [3])
    assert ids(lake) == [2, 3]


def test_what_was_left_is_swept_after_a_day(
    lake: Client, service: Service, spark: Callable[..., SparkClient], clock: Later
) -> None:
    one = spark()
    left = one.look_up("t__append")
    one.write(left, [1])
    sweep = DoorSweep(service.store, clock)
    assert sweep.round() == 0
    assert left.exists()
    assert check_files(service.store, orphans=True).orphans == []
    clock.by_ms += RETAIN_MS + 60_000
    assert sweep.round() == 1
    assert not left.parent.exists()
    with pytest.raises(REFUSED, match="no rows"):
        one.end("t__append")
    spark().insert("t__append", [2])
    assert ids(lake) == [2]


def test_another_connection_goes_on_with_the_statement(
    lake: Client, another: Another, spark: Callable[..., SparkClient]
) -> None:
    """The connection broke between the rows and the call. There is no other statement that it could end."""
    one = spark()
    one.write(one.look_up("t__append"), [1])
    one.close()
    one.connect(another())
    one.end("t__append")
    assert (ids(lake), versions(lake)) == ([1], 1)


@pytest.mark.parametrize(
    ("age_ms", "told"), [(DOUBT_MS + 5_000, "long before this call"), (LOST_MS + 5_000, "no rows")]
)
def test_rows_of_a_dead_driver_are_not_taken_for_those_of_a_statement_without_any(
    lake: Client, service: Service, spark: Callable[..., SparkClient], age_ms: int, told: str
) -> None:
    dead, same = spark(), spark()
    left = dead.look_up("t__append")
    dead.write(left, [1])
    _age(left, age_ms)
    dead.close()
    while service.doors._live:  # until the service knows
        time.sleep(0.01)
    with pytest.raises(REFUSED, match=told):
        same.end("t__append")
    same.insert("t__append", [2])
    assert ids(lake) == [2]


def test_a_late_call_over_another_connection_is_not_answered_by_the_rows_of_others(
    lake: Client, another: Another, spark: Callable[..., SparkClient], clock: Later
) -> None:
    """Two threads of an application. The connection broke, and the first thread's call took very long to come."""
    one = spark()
    first = one.look_up("t__append")
    one.write(first, [1])
    _age(first)
    one.close()
    one.connect(another())
    one.write(one.look_up("t__append"), [2])
    for _ in range(2):
        with pytest.raises(REFUSED, match="cannot be told"):
            one.end("t__append")
    assert ids(lake) == []
    clock.by_ms += DOUBT_MS + 1
    one.insert("t__append", [3])
    assert ids(lake) == [3]


def test_a_driver_that_died_long_ago_disturbs_nobody(
    lake: Client, another: Another, spark: Callable[..., SparkClient]
) -> None:
    dead, same = spark(), spark()
    left = dead.look_up("t__append")
    dead.write(left, [1])
    _age(left, LOST_MS + 5_000)
    dead.close()
    same.insert("t__append", [2])
    assert ids(lake) == [2]


def test_a_call_with_files_of_its_own_takes_none_from_elsewhere(
    lake: Client, another: Another, spark: Callable[..., SparkClient]
) -> None:
    """It is a statement without _SUCCESS, so the call does not tell that the rows from before are the client's."""
    one = spark()
    one.write(one.look_up("t__append"), [1])
    one.close()
    one.connect(another())
    one.write(one.look_up("t__append"), [2], done=False)
    with pytest.raises(REFUSED, match="cannot be told"):
        one.end("t__append")
    assert ids(lake) == []


def test_a_statement_whose_call_got_lost_is_not_published_with_the_next(
    lake: Client, spark: Callable[..., SparkClient], clock: Later
) -> None:
    """The table was renamed when it came; or the service could not be reached, and the statement was repeated.

    That the first call never comes is not known, so the second try may fail, too.
    """
    one = spark()
    lost = one.look_up("t__append")
    one.write(lost, [1, 2])
    lake.tables.rename("default.t", "default.t2")
    with pytest.raises(NoSuchObjectException):
        one.end("t__append")
    _age(lost)
    with pytest.raises(REFUSED, match="cannot be told"):
        one.insert("t2__append", [1, 2])
    clock.by_ms += DOUBT_MS + 1
    one.insert("t2__append", [1, 2])
    assert ids(lake, "t2") == [1, 2]
    lost = one.look_up("t2__append")
    one.write(lost, [3])
    _age(lost)
    with pytest.raises(REFUSED, match="long before this call"):
        one.end("t2__append")
    assert ids(lake, "t2") == [1, 2]


def test_a_statement_that_is_repeated_after_a_call_of_it_failed_is_not_there_twice(
    lake: Client, spark: Callable[..., SparkClient], clock: Later
) -> None:
    """The connection is the same, so its rows are beside those of the first try."""
    one = spark()
    one.insert("t__append", [1])
    one.write(one.look_up("t__append"), [2])
    lake.tables.rename("default.t", "default.t2")
    with pytest.raises(NoSuchObjectException):
        one.end("t__append")
    clock.by_ms += 1_000
    with pytest.raises(REFUSED, match="after half a minute"):
        one.insert("t2__append", [2])
    with pytest.raises(REFUSED, match="after half a minute"):
        one.insert("t2__append", [2])
    clock.by_ms += DOUBT_MS + 1
    one.insert("t2__append", [2])
    assert ids(lake, "t2") == [1, 2]


def test_calls_that_fail_for_other_tables_change_nothing(lake: Client, spark: Callable[..., SparkClient]) -> None:
    one = spark()
    one.write(one.look_up("t__append"), [1])
    for name in ("missing", "missing__append"):
        with pytest.raises(NoSuchObjectException):
            one.client.get_table("default", name)
    with pytest.raises(NoSuchObjectException):
        one.client.get_database("missing")
    one.end("t__append")
    assert ids(lake) == [1]


def test_a_call_that_was_to_come_again_is_answered(
    lake: Client, spark: Callable[..., SparkClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a statement that is repeated instead is not there twice, though the client did not connect anew."""
    one = spark()
    one.write(one.look_up("t__append"), [1])
    shown = one.last_call("t__append")
    _fail_to_end(lambda: one.send("t__append", shown), monkeypatch)
    one.send("t__append", shown)
    one.write(one.look_up("t__append"), [2])
    _fail_to_end(lambda: one.end("t__append"), monkeypatch)
    with pytest.raises(REFUSED, match="has failed, and it cannot be told"):
        one.insert("t__append", [2])
    assert ids(lake) == [1]


def _fail_to_end(call: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Doors, "_end", _unavailable)
        with pytest.raises(TApplicationException, match="ask again"):
            call()


def _fail_to_look_up(one: SparkClient, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Doors, "give", _unavailable)
        with pytest.raises(REFUSED, match="the store is away"):
            one.look_up(name)


def test_a_call_that_fails_is_not_that_of_a_job_that_still_runs(
    lake: Client, spark: Callable[..., SparkClient], clock: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = spark()
    running = one.look_up("t__append")
    one.write(running, [1], done=False)
    clock.by_ms += 3_600_000
    _fail_to_look_up(one, "t__append", monkeypatch)
    clock.by_ms += FAILURE_MARGIN_MS + 2_000
    one.done(running)
    one.end("t__append")
    assert ids(lake) == [1]


def test_a_call_that_fails_is_not_that_of_a_statement_through_another_door(
    lake: Client, spark: Callable[..., SparkClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = spark()
    one.look_up("p__append")
    one.write(one.look_up("t__append"), [1])
    _fail_to_look_up(one, "p__append", monkeypatch)
    one.end("t__append")
    assert ids(lake) == [1]


def test_a_refused_change_of_a_door_is_not_the_end_of_a_statement(
    lake: Client, spark: Callable[..., SparkClient]
) -> None:
    one = spark()
    one.write(one.look_up("t__append"), [1])
    with pytest.raises(REFUSED, match="nothing else is done with it"):
        one.send("t__append", one.client.get_table("default", "t__append"))
    one.end("t__append")
    assert ids(lake) == [1]


def test_of_two_calls_that_failed_only_one_comes_again(
    lake: Client, spark: Callable[..., SparkClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up at the end of the first try failed, and the last call of the second one, which the client repeats."""
    one = spark()
    one.write(one.look_up("t__append"), [1])
    _fail_to_look_up(one, "t__append", monkeypatch)
    one.write(one.look_up("t__append"), [1])
    shown = one.last_call("t__append")
    _fail_to_end(lambda: one.send("t__append", shown), monkeypatch)
    with pytest.raises(REFUSED, match="has failed, and it cannot be told"):
        one.send("t__append", shown)
    assert ids(lake) == []


def _unavailable(*_: object, **__: object) -> None:
    raise Unavailable("the store is away")


def _age(directory: Path, by_ms: int = DOUBT_MS + 5_000) -> None:
    """Lets the statement's job have ended longer ago than a call takes to come."""
    then_s = (now_ms() - by_ms) / 1_000
    os.utime(directory / "_SUCCESS", (then_s, then_s))


def test_a_call_may_come_late_if_it_had_to_wait_for_another(
    lake: Client, service: Service, spark: Callable[..., SparkClient]
) -> None:
    """A driver's calls come one after the other, and one of them may take long."""
    one = spark()
    one.insert("t__append", [1])
    (session,) = service.doors._live.values()
    session.calls.add(time.monotonic() - 30, time.monotonic())
    waiting = one.look_up("t__append")
    one.write(waiting, [2])
    _age(waiting)
    one.end("t__append")
    assert ids(lake) == [1, 2]
    lake.tables.create("default.u", "id int")
    elsewhere = one.look_up("u__append")  # of the same connection
    one.write(elsewhere, [3])
    _age(elsewhere)
    one.end("u__append")
    assert ids(lake, "u") == [3]


def test_a_call_did_not_wait_for_those_before_its_job_ended(
    lake: Client, service: Service, spark: Callable[..., SparkClient]
) -> None:
    one = spark()
    directory = one.look_up("t__append")
    (session,) = service.doors._live.values()
    session.calls.add(time.monotonic() - 130, time.monotonic() - 100)
    one.write(directory, [1])
    _age(directory)
    with pytest.raises(REFUSED, match="long before this call"):
        one.end("t__append")
    assert ids(lake) == []


def test_a_call_may_come_late_if_those_before_it_took_long(
    lake: Client, spark: Callable[..., SparkClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark adds ten thousand partitions by a hundred calls, between the end of the job and its last call."""
    one = spark()
    directory = one.look_up("t__append")
    one.write(directory, [1])
    _age(directory)
    earlier_s = cycle([15.0, 0.0])
    monkeypatch.setattr(facade, "monotonic", lambda: time.monotonic() - next(earlier_s))
    for number in range(3):
        one.add_partitions("t__append", [str(number)])
    one.end("t__append")
    assert ids(lake) == [1]


def _add_partitions(one: SparkClient, ago_s: Sequence[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """By one call at each of these times, and none of them took long."""
    for number, ago in enumerate(ago_s):
        with monkeypatch.context() as patch:
            patch.setattr(facade, "monotonic", lambda ago=ago: time.monotonic() - ago)
            one.add_partitions("p__append", [str(number)])


def _write_partitions(one: SparkClient, rows: Sequence[int]) -> Path:
    directory = one.look_up("p__append")
    for row in rows:
        one.write(directory, [row], partition=f"m={row}", done=row == rows[-1])
    return directory


def test_a_call_may_come_late_if_the_driver_took_long_to_add_partitions(
    lake: Client, spark: Callable[..., SparkClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy driver takes a while between two of its calls, and makes hundreds of them."""
    one = spark()
    _age(_write_partitions(one, range(5)), 70_000)
    _add_partitions(one, [60, 45, 30, 15, 0], monkeypatch)
    one.end("p__append")
    one.end("p__append")
    assert (ids(lake, "p"), versions(lake, "p")) == ([0, 1, 2, 3, 4], 1)


def test_partitions_may_be_added_slowly_over_another_connection(
    lake: Client, another: Another, spark: Callable[..., SparkClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection broke while the job ran, and there is no other statement that could add them."""
    one = spark()
    _age(_write_partitions(one, range(5)), 70_000)
    one.close()
    one.connect(another())
    _add_partitions(one, [60, 45, 30, 15, 0], monkeypatch)
    one.end("p__append")
    one.end("p__append")
    assert (ids(lake, "p"), versions(lake, "p")) == ([0, 1, 2, 3, 4], 1)


def test_partitions_that_are_added_bring_no_rows_of_a_dead_driver(
    lake: Client, another: Another, spark: Callable[..., SparkClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = spark()
    _age(_write_partitions(dead, range(5)), 70_000)
    dead.close()
    one = spark()
    one.connect(another())
    _write_partitions(one, range(5, 7))
    _add_partitions(one, [60, 45, 30, 15, 0], monkeypatch)
    with pytest.raises(REFUSED, match="cannot be told"):
        one.end("p__append")
    assert ids(lake, "p") == []


def test_a_call_is_late_if_the_partitions_were_added_long_before(
    lake: Client, spark: Callable[..., SparkClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = spark()
    _age(_write_partitions(one, range(3)), 70_000)
    _add_partitions(one, [60, 30, 0], monkeypatch)  # not all of them for one statement
    with pytest.raises(REFUSED, match="long before this call"):
        one.end("p__append")
    assert ids(lake, "p") == []


def test_partitions_that_are_added_keep_no_rows_of_another_statement(
    lake: Client, spark: Callable[..., SparkClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement was cancelled while it added partitions, and was repeated: both have added some."""
    one = spark()
    _age(_write_partitions(one, range(5)), 70_000)
    _add_partitions(one, [60, 45, 30], monkeypatch)
    _write_partitions(one, range(5))
    _add_partitions(one, [15, 0], monkeypatch)
    with pytest.raises(REFUSED, match="cannot be told"):
        one.end("p__append")
    assert ids(lake, "p") == []


def test_a_connection_goes_on_after_a_day_without_use(
    lake: Client, service: Service, spark: Callable[..., SparkClient], clock: Later
) -> None:
    one = spark()
    one.insert("t__append", [1])
    clock.by_ms += RETAIN_MS + 60_000
    sweep = DoorSweep(service.store, clock)
    assert sweep.round() == 1
    one.insert("t__append", [2])
    assert ids(lake) == [1, 2]
    left = one.look_up("t__append")
    clock.by_ms += RETAIN_MS + 60_000
    assert sweep.round() > 0
    assert not left.exists()


def test_in_doubt_after_a_broken_connection_nothing_is_committed(
    lake: Client, another: Another, spark: Callable[..., SparkClient], clock: Later
) -> None:
    """A statement from before and one from after: the call may be that of either, or the first may be somebody
    else's."""
    one, other = spark(), spark("bob")
    one.write(one.look_up("t__append"), [1])
    one.close()
    one.connect(another())
    one.write(one.look_up("t__append"), [2])
    for _ in range(2):
        with pytest.raises(REFUSED):
            one.end("t__append")
    with pytest.raises(REFUSED, match="after half a minute"):
        one.insert("t__append", [3])  # the call might be that of one of the two
    assert ids(lake) == []
    other.insert("t__append", [4])
    clock.by_ms += DOUBT_MS + 1
    one.insert("t__append", [3])
    assert ids(lake) == [3, 4]


def test_applications_of_one_user_that_are_connected_do_not_disturb_each_other(
    lake: Client, spark: Callable[..., SparkClient]
) -> None:
    one, other = spark(), spark()
    directory = one.look_up("t__append")
    one.write(directory, [1])
    other.insert("t__append", [2])
    assert ids(lake) == [2]
    one.end("t__append")
    assert ids(lake) == [1, 2]


def test_applications_of_one_user_at_two_processes_do_not_disturb_each_other(
    lake: Client, service: Service, another: Another, spark: Callable[..., SparkClient]
) -> None:
    one = spark()
    one.write(one.look_up("t__append"), [1])
    other = SparkClient(another())
    try:
        directory = other.look_up("t__append")
        service.doors.note_open()
        other.write(directory, [2])
        other.end("t__append")
        assert ids(lake) == [2]
        with pytest.raises(REFUSED, match="no rows"):
            other.end("t__append")  # of a statement without rows, as that of ANALYZE
        one.end("t__append")
        assert ids(lake) == [1, 2]
        one.close()
    finally:
        other.close()
    with pytest.raises(REFUSED, match="no rows"):
        spark().end("t__append")


class _KilledError(BaseException):
    """As if the process had ended here."""


@pytest.mark.parametrize("at", ["move", "commit", "publish", "answer"])
def test_another_process_ends_what_one_that_was_killed_has_begun(
    lake: Client,
    service: Service,
    another: Another,
    spark: Callable[..., SparkClient],
    monkeypatch: pytest.MonkeyPatch,
    at: str,
) -> None:
    """Between any two steps: after some files were moved, before and after the commit, before the reply."""
    one = spark()
    directory = one.look_up("p__append")
    for number in range(3):
        one.write(directory, [number], partition=f"m={number}")
    shown = one.last_call("p__append")
    assert service.hms is not None
    stop = service.hms.stop
    monkeypatch.setattr(service.hms, "stop", lambda *_: stop(0.1))  # its worker is gone
    one.connect(port_of(service), timeout_s=2)  # nobody will answer
    with monkeypatch.context() as patched:
        _kill(patched, at)
        with pytest.raises(TTransportException):
            one.send("p__append", shown)
    one.connect(another())
    one.send("p__append", shown)
    assert ids(lake, "p") == [0, 1, 2]
    one.end("p__append")
    assert versions(lake, "p") == 1
    with pytest.raises(REFUSED, match="no rows"):
        one.end("p__append")


def _kill(patched: pytest.MonkeyPatch, at: str) -> None:
    def killed(*_: object, **__: object) -> None:
        raise _KilledError

    if at == "move":
        real = publication.contents.move

        def first_only(location: str, pairs: Iterator[tuple[str, str]], pool: Executor) -> None:
            real(location, [next(iter(pairs))], pool)
            raise _KilledError

        patched.setattr(publication.contents, "move", first_only)
    elif at == "commit":
        patched.setattr(Timeline, "commit", killed)
    elif at == "publish":
        patched.setattr(records, "publish", killed)
    else:
        patched.setattr(records, "answer", killed)


def test_names_of_doors(lake: Client, spark: Callable[..., SparkClient]) -> None:
    one = spark()
    lake.branches.create("default.t", "dev")
    one.insert("t__dev__append", [7])
    assert ids(lake) == []
    assert lake.read("default.t", branch="dev").column("id").to_pylist() == [7]
    lake.tables.create("default.t__append", "id int")
    assert one.client.get_table("default", "t__append").tableType == "VIRTUAL_VIEW", "a table of that name comes first"
    for name in ("t__strange", "nothing__append", "t__dev2__append", "__append", "append"):
        with pytest.raises(NoSuchObjectException):
            one.client.get_table("default", name)


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("k__append", r"k has a key \(id\).*lakemark_spark\.upsert"),
        ("k__overwrite", r"lakemark_spark\.overwrite"),
        ("k__upsert", r"lakemark_spark\.upsert"),
        ("k__delete", r"lakemark_spark\.delete"),
        ("t__insert", r"no key: use default\.t__append"),
        ("t__upsert", r"lakemark_spark\.upsert"),
    ],
)
def test_doors_that_a_table_has_not_name_the_way(
    lake: Client, spark: Callable[..., SparkClient], name: str, way: str
) -> None:
    lake.tables.create("default.k", "id int, x int", properties={"lakemark.primary-key": "id"})
    with pytest.raises(MetaException, match=way):
        spark().client.get_table("default", name)


def test_a_door_is_neither_changed_nor_dropped(lake: Client, spark: Callable[..., SparkClient]) -> None:
    one = spark()
    shown = one.client.get_table("default", "t__append")
    shown.parameters["mine"] = "1"
    with pytest.raises(REFUSED, match=r"is a door into lake table default\.t"):
        one.send("t__append", shown)
    with pytest.raises((*REFUSED, NoSuchObjectException), match="cannot be dropped"):
        one.client.drop_table("default", "t__append", True)


def test_not_null_is_kept(lake: Client, spark: Callable[..., SparkClient]) -> None:
    lake.tables.create("default.n", "id int not null")
    one = spark()
    one.write(one.look_up("n__append"), [1, None])  # type: ignore[list-item]
    with pytest.raises(REFUSED, match="column 'id' is NOT NULL"):
        one.end("n__append")


def test_many_files(lake: Client, spark: Callable[..., SparkClient]) -> None:
    one = spark()
    directory = one.look_up("t__append")
    one.write(directory, [1], done=False)
    (first,) = directory.glob("*.parquet")
    for number in range(1, 2_000):
        shutil.copyfile(first, directory / f"part-{number:05d}.c000.snappy.parquet")
    one.done(directory)
    one.end("t__append")
    assert len(list(lake.plan("default.t").files())) == 2_000
    assert versions(lake) == 1


@pytest.mark.parametrize("door", ["t__append", "p__append"])
def test_a_call_looks_only_into_directories_that_changed(
    lake: Client, spark: Callable[..., SparkClient], monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    """However many statements came before it over the connection, and however many look-ups they made."""
    one = spark()
    looked_into: list[set[str]] = []
    real = contents._by_directory

    def counted(system: FileSystem, path: str, names: Sequence[str], *, whole: bool) -> dict[str, set[str]]:
        looked_into.append(set(names))
        return real(system, path, names, whole=whole)

    monkeypatch.setattr(contents, "_by_directory", counted)
    monkeypatch.setattr(looks, "RESOLUTION_NS", 1)
    waiting = one.look_up(door)
    for number in range(30):
        look_ups = [one.look_up(door) for _ in range(5)]
        one.write(look_ups[0], [number], partition="" if door == "t__append" else "m=1")
        one.end(door, size=1)
    assert max(len(names) for names in looked_into[10:]) < 10
    one.write(waiting, [99], partition="" if door == "t__append" else "m=1")
    one.end(door, size=1)
    assert ids(lake, door[0]) == [*range(30), 99]


def test_what_is_decided_is_deleted_by_and_by(
    lake: Client, spark: Callable[..., SparkClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors_service, "SETTLED_MS", -1_000)
    one = spark()
    directory = one.look_up("t__append")
    one.write(directory, [1])
    one.end("t__append")
    assert directory.is_dir(), "a committer may not be done with its _SUCCESS"
    one.insert("t__append", [2])
    assert not directory.exists()
