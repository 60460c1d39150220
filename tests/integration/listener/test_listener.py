"""A listener between two Lakemarks: what happens here is there, whatever happens in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark import Client
from lakemark.errors import AlreadyExists, InvalidArgument, InvalidName, NotFound, Unavailable
from lakemark_core.types import BIGINT, INT, STRING, Field, Schema
from lakemark_hms.listener.facts import EPOCH_MARK, VERSION_MARK
from lakemark_hms.outside import Metastore
from lakemark_server.process import Service
from tests.integration.grpc_server import connected, running_service
from tests.integration.listener import objects
from tests.integration.listener.conftest import Outside, settled, until
from tests.integration.listener.objects import add_partitions, alter, append, create, described, get, rows, table

SCHEMA = Schema.build([Field(0, "id", BIGINT), Field(0, "name", STRING), Field(0, "m", INT)], ["m"])


def lake(client: Client, name: str = "sales.orders", **fields: object) -> None:
    client.tables.create(name, SCHEMA, **fields)


def partitions(side: Metastore, name: str, db: str = "sales") -> dict[tuple[str, ...], str]:
    found = side.call("get_partitions", db_name=db, tbl_name=name, max_parts=-1)
    return {tuple(one.values): one.sd.location for one in found}


def files_of(client: Client, name: str) -> set[str]:
    """The directories of the latest version's files."""
    location = client.tables.get(name).location
    return {f"{location}/{file.path.rpartition('/')[0]}" for file in client.plan(name)}


def test_ddl_of_warehouse_objects(client: Client, here: Metastore, there: Metastore, outside: Outside) -> None:
    here.call("create_database", database=objects.database("before", parameters={"p": "1"}, ownerName="ann"))
    create(here, table("old", keys="day string", db="before"))
    add_partitions(here, "old", [("1",), ("__HIVE_DEFAULT_PARTITION__",), ("a/b=c d",)], db="before")
    client.listeners.create("hive", outside.uri, ["before", "sales"])
    here.call("create_database", database=objects.database("sales", ownerName="ann"))
    here.call("create_database", database=objects.database("elsewhere"))
    create(here, table("plain", parameters={"k": "v", "comment": "c"}))
    create(here, table("days", keys="day string, hour int"))
    create(here, table("gone"))
    create(here, objects.view("v", "select a from plain"))
    here.call("create_function", func=objects.function("f"))
    here.call("create_function", func=objects.function("g"))
    add_partitions(here, "days", [(str(day), str(hour)) for day in range(30) for hour in range(20)])
    settled(client, "hive")
    assert described(here, ["before", "sales"]) == described(there, ["before", "sales"])
    assert "elsewhere" not in there.call("get_all_databases")

    plain = get(here, "sales", "plain")
    plain.parameters |= {"k": "w"}
    alter(here, plain)
    days = get(here, "sales", "days")
    days.sd.cols = objects.columns("a int, b string, c double")
    here.call("alter_table_with_cascade", dbname="sales", tbl_name="days", new_tbl=days, cascade=True)
    here.call("drop_table", dbname="sales", name="gone", deleteData=True)
    here.call("drop_partition", db_name="sales", tbl_name="days", part_vals=["1", "1"], deleteData=True)
    moved = here.call("get_partition", db_name="sales", tbl_name="days", part_vals=["2", "2"])
    moved.values = ["2", "99"]
    here.call("rename_partition", db_name="sales", tbl_name="days", part_vals=["2", "2"], new_part=moved)
    here.call("drop_function", dbName="sales", funcName="g")
    here.call("alter_function", dbName="sales", funcName="f", newFunc=objects.function("f", "com.example.G"))
    here.call("alter_database", dbname="before", db=objects.database("before", parameters={"p": "2"}, ownerName="bob"))
    settled(client, "hive")
    assert described(here, ["before", "sales"]) == described(there, ["before", "sales"])
    assert get(there, "sales", "plain").tableType == "EXTERNAL_TABLE"

    renamed = get(here, "sales", "days")
    renamed.tableName = "hours"
    alter(here, renamed, "days")
    here.call("drop_database", name="before", deleteData=True, cascade=True)
    settled(client, "hive")
    assert described(here, ["before", "sales"]) == described(there, ["before", "sales"])
    assert "before" not in there.call("get_all_databases")
    compared = client.listeners.compare("hive")
    assert (compared.different, compared.compared > 4) == (0, True)
    assert client.listeners.get("hive").problems == []


def test_a_lake_table_shows_its_latest_version(
    client: Client, here: Metastore, there: Metastore, outside: Outside
) -> None:
    client.databases.create("sales")
    lake(client)
    append(client, "sales.orders", rows(0, 30))
    client.listeners.create("hive", outside.uri)
    settled(client, "hive")
    assert set(partitions(there, "orders").values()) == files_of(client, "sales.orders")
    assert get(there, "sales", "orders").parameters["lakemark_listener.version"] == "1"
    append(client, "sales.orders", rows(30, 30))
    with client.begin("sales.orders", "overwrite_partitions", partitions=[{"m": 0}]) as writer:
        writer.write(rows(100, 5, months=1))
        writer.commit()
    client.branches.create("sales.orders", "dev")
    with client.begin("sales.orders", "append", branch="dev") as writer:
        writer.write(rows(500, 5))
        writer.commit()
    settled(client, "hive")
    assert set(partitions(there, "orders").values()) == files_of(client, "sales.orders")
    assert get(there, "sales", "orders").parameters["lakemark_listener.version"] == "3"
    assert [key.name for key in get(there, "sales", "orders").partitionKeys] == ["m", "lakemark_slice"]

    client.tables.rename("sales.orders", "sales.bought")
    before = client.listeners.get("hive").calls
    settled(client, "hive")
    assert get(there, "sales", "orders") is None
    assert set(partitions(there, "bought").values()) == files_of(client, "sales.bought")
    assert client.listeners.get("hive").calls - before < 20

    client.tables.add_column("sales.bought", Field(0, "extra", STRING))
    settled(client, "hive")
    assert [one.name for one in get(there, "sales", "bought").sd.cols] == ["id", "name", "extra"]
    assert client.listeners.compare("hive").different == 0
    client.tables.drop("sales.bought")
    settled(client, "hive")
    assert get(there, "sales", "bought") is None


def test_versions_that_a_plain_table_cannot_show_are_told(client: Client, there: Metastore, outside: Outside) -> None:
    client.databases.create("sales")
    lake(client)
    append(client, "sales.orders", rows(0, 9))
    client.listeners.create("hive", outside.uri)
    settled(client, "hive")
    client.tables.rename_column("sales.orders", "name", "title")
    settled(client, "hive")
    (problem,) = client.listeners.get("hive").problems
    assert (problem.kind, problem.name, problem.state) == ("table", "sales.orders", "left")
    assert "stays at its version" in problem.reason
    assert [one.name for one in get(there, "sales", "orders").sd.cols] == ["id", "name"]
    with client.begin("sales.orders", "overwrite_table") as writer:
        writer.write(rows(0, 3).rename_columns(["id", "title", "m"]))
        writer.commit()
    settled(client, "hive")
    assert client.listeners.get("hive").problems == []
    assert [one.name for one in get(there, "sales", "orders").sd.cols] == ["id", "title"]
    assert set(partitions(there, "orders").values()) == files_of(client, "sales.orders")


def test_what_somebody_else_made_or_changed_is_told_and_stays(
    client: Client, here: Metastore, there: Metastore, outside: Outside
) -> None:
    there.call("create_database", database=objects.database("sales", parameters={"mine": "1"}))
    create(there, table("taken", "z int"))
    there.call("create_function", func=objects.function("f", "com.example.Theirs"))
    here.call("create_database", database=objects.database("sales"))
    create(here, table("taken"))
    create(here, table("changed"))
    create(here, table("days", keys="day string"))
    add_partitions(here, "days", [("1",), ("2",), ("3",)])
    here.call("create_function", func=objects.function("f"))
    client.listeners.create("hive", outside.uri)
    settled(client, "hive")
    told = {one.name: one.reason for one in client.listeners.get("hive").problems}
    assert told == {
        "sales.taken": "there is a table of that name which this listener did not make",
        "sales.f": "there is a function of that name which this listener did not make",
    }
    assert there.call("get_database", name="sales").parameters == {"mine": "1"}

    changed = get(there, "sales", "changed")
    changed.parameters["by"] = "hand"
    alter(there, changed)
    there.call("drop_partition", db_name="sales", tbl_name="days", part_vals=["1"], deleteData=False)
    add_partitions(there, "days", [("8",)])
    two = there.call("get_partition", db_name="sales", tbl_name="days", part_vals=["2"])
    two.sd.location += "-moved"
    there.call("alter_partition", db_name="sales", tbl_name="days", new_part=two)
    ours = get(here, "sales", "changed")
    ours.parameters["k"] = "1"
    alter(here, ours)
    settled(client, "hive")
    assert client.listeners.compare("hive").different == 5
    client.listeners.repair("hive")
    settled(client, "hive")
    told = {one.name: one.reason for one in client.listeners.get("hive").problems}
    assert "parameter 'by' is \"hand\"" in told["sales.changed"] or "parameter 'by' is 'hand'" in told["sales.changed"]
    assert "day=2: it was changed by hand" in told["sales.days"]
    assert "day=8: this listener did not make" in told["sales.days"]
    assert get(there, "sales", "changed").parameters["by"] == "hand"
    add_partitions(here, "days", [("9",)])
    settled(client, "hive")
    assert {values[0] for values in partitions(there, "days")} == {"1", "2", "3", "8", "9"}
    assert {one.name for one in client.listeners.get("hive").problems} >= {"sales.days", "sales.changed"}

    here.call("drop_table", dbname="sales", name="days", deleteData=True)
    here.call("drop_table", dbname="sales", name="changed", deleteData=True)
    settled(client, "hive")
    told = {one.name: one.reason for one in client.listeners.get("hive").problems if one.kind == "table"}
    assert "dropped here, and changed by hand there" in told["sales.changed"]
    assert "which somebody else made or changed" in told["sales.days"]
    assert get(there, "sales", "days") is not None
    client.listeners.repair("hive", ["sales.days", "sales.changed"])
    settled(client, "hive")
    assert get(there, "sales", "days") is get(there, "sales", "changed") is None


def test_a_lake_table_that_is_dropped_before_its_first_version_was_told_outside_goes_there_too(
    client: Client, there: Metastore, outside: Outside
) -> None:
    """A runner that was killed between its partitions and the mark that tells their version."""
    client.databases.create("sales")
    client.listeners.create("hive", outside.uri, ["sales"])
    for name in ("orders", "touched"):
        lake(client, f"sales.{name}")
        append(client, f"sales.{name}", rows(0, 6))
    settled(client, "hive")
    client.listeners.pause("hive")
    for name in ("orders", "touched"):
        half = get(there, "sales", name)
        for mark in (VERSION_MARK, EPOCH_MARK):
            del half.parameters[mark]
        alter(there, half)
        client.tables.drop(f"sales.{name}")
    one = there.call("get_partitions", db_name="sales", tbl_name="touched", max_parts=1)[0]
    one.parameters["by"] = "hand"
    there.call("alter_partition", db_name="sales", tbl_name="touched", new_part=one)
    client.listeners.resume("hive")
    settled(client, "hive")
    assert get(there, "sales", "orders") is None
    (problem,) = client.listeners.get("hive").problems
    assert "which somebody else made or changed" in problem.reason
    assert problem.name == "sales.touched"


def test_overwriting_takes_back_a_change_by_hand(
    client: Client, here: Metastore, there: Metastore, outside: Outside
) -> None:
    here.call("create_database", database=objects.database("sales"))
    create(here, table("t", keys="day string"))
    add_partitions(here, "t", [("1",)])
    client.listeners.create("hive", outside.uri)
    settled(client, "hive")
    changed = get(there, "sales", "t")
    changed.sd.cols = objects.columns("a int, b string, z int")
    alter(there, changed)
    one = there.call("get_partition", db_name="sales", tbl_name="t", part_vals=["1"])
    one.sd.location += "-moved"
    there.call("alter_partition", db_name="sales", tbl_name="t", new_part=one)
    client.listeners.repair("hive")
    settled(client, "hive")
    assert len(client.listeners.get("hive").problems) == 1
    client.listeners.repair("hive", ["*"])
    settled(client, "hive")
    assert client.listeners.get("hive").problems == []
    assert described(here, ["sales"]) == described(there, ["sales"])


def test_either_side_may_be_away(tmp_path: Path, outside: Outside) -> None:
    """Commits never wait for the other side; what happened meanwhile is there when it is back."""
    settings = {"hms_enabled": True, "hms_port": 0, "listener_interval_s": 0.05, "listener_lease_s": 1.0}
    with running_service(tmp_path / "ours", **settings) as service, connected(service) as client:
        client.databases.create("sales")
        lake(client)
        client.listeners.create("hive", outside.uri)
        settled(client, "hive")
        outside.stop()
        append(client, "sales.orders", rows(0, 9))
        client.tables.create("sales.more", SCHEMA)
        until(lambda: client.listeners.get("hive").condition == "failing")
        failing = client.listeners.get("hive")
        assert "does not answer" in failing.last_error
        assert failing.lag_events > 0
        assert failing.next_attempt_ms > 0
        with pytest.raises(Unavailable, match="does not answer"):
            client.listeners.compare("hive")
        append(client, "sales.orders", rows(9, 9))
    outside.start()
    with running_service(tmp_path / "ours", **settings) as service, connected(service) as client:
        settled(client, "hive")
        with Metastore(outside.uri) as there, Metastore(service.hms_uri) as here:
            assert set(partitions(there, "orders").values()) == files_of(client, "sales.orders")
            assert get(there, "sales", "more") is not None
            assert here.call("get_all_tables", db_name="sales") == there.call("get_all_tables", db_name="sales")
        assert client.listeners.get("hive").condition == "active"
        assert client.listeners.compare("hive").different == 0


def test_a_paused_listener_goes_on_and_a_dropped_one_leaves_what_it_made(
    client: Client, there: Metastore, outside: Outside
) -> None:
    client.databases.create("sales")
    client.listeners.create("hive", outside.uri, paused=True)
    lake(client)
    assert client.listeners.get("hive").condition == "paused"
    assert there.call("get_all_databases") == ["default"]
    client.listeners.resume("hive")
    settled(client, "hive")
    assert get(there, "sales", "orders") is not None
    client.listeners.pause("hive")
    assert client.listeners.drop("hive")
    assert not client.listeners.drop("hive", if_exists=True)
    assert get(there, "sales", "orders") is not None
    client.listeners.create("hive", outside.uri)
    settled(client, "hive")
    assert [one.name for one in client.listeners.get("hive").problems] == ["sales.orders"]
    client.listeners.drop("hive")
    client.listeners.create("hive", outside.uri, adopt=True)
    append(client, "sales.orders", rows(0, 5))
    settled(client, "hive")
    assert client.listeners.get("hive").problems == []
    assert set(partitions(there, "orders").values()) == files_of(client, "sales.orders")


def test_trimmed_events_are_made_up_for_by_a_comparison(
    service: Service, client: Client, there: Metastore, outside: Outside
) -> None:
    client.databases.create("sales")
    client.listeners.create("hive", outside.uri)
    settled(client, "hive")
    client.listeners.pause("hive")
    for number in range(3):
        lake(client, f"sales.t{number}")
    from lakemark_server.events.upkeep import EventRetention, LogUpkeep

    LogUpkeep(service.store, lambda: 1 << 60, EventRetention(1, 1)).round()
    client.listeners.resume("hive")
    settled(client, "hive")
    assert there.call("get_all_tables", db_name="sales") == ["t0", "t1", "t2"]


def test_bad_input_is_refused(client: Client, outside: Outside) -> None:
    for uri in ("", "http://a:1", "thrift://"):
        with pytest.raises(InvalidArgument, match="address"):
            client.listeners.create("hive", uri)
    with pytest.raises(InvalidName):
        client.listeners.create("a b", outside.uri)
    with pytest.raises(InvalidArgument, match="pattern"):
        client.listeners.create("hive", outside.uri, ["a.b.c"])
    with pytest.raises(InvalidArgument, match="compared every"):
        client.listeners.create("hive", outside.uri, compare_interval_s=1)
    with pytest.raises(NotFound, match="no listener"):
        client.listeners.get("none")
    client.listeners.create("hive", outside.uri)
    with pytest.raises(AlreadyExists):
        client.listeners.create("hive", outside.uri)
    assert [one.name for one in client.listeners.list()] == ["hive"]


def test_another_runner_takes_over(service: Service, client: Client, there: Metastore, outside: Outside) -> None:
    client.databases.create("sales")
    client.listeners.create("hive", outside.uri)
    settled(client, "hive")
    first = client.listeners.get("hive").runner
    second = service._mirrored(service.catalog.clock).runners(0.05, 1.0)
    second.start()
    try:
        lake(client)
        settled(client, "hive")
        assert client.listeners.get("hive").runner == first
        service._listener_runners.stop()
        append(client, "sales.orders", rows(0, 9))
        until(lambda: client.listeners.get("hive").runner not in ("", first))
        settled(client, "hive")
        assert set(partitions(there, "orders").values()) == files_of(client, "sales.orders")
    finally:
        second.stop()
