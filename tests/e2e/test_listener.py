"""An outside Hive 2.3 metastore that follows: the real one, and plain Spark on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from benchmarks.peers.hive23 import HiveMetastore

from lakemark import Client
from lakemark_core.types import BIGINT, INT, STRING, Field, Schema
from lakemark_hms.outside import Metastore
from lakemark_server.process import Service
from tests.e2e.conftest import StartSpark
from tests.e2e.spark_runner import SparkStatementError
from tests.integration.listener import objects
from tests.integration.listener.conftest import settled, until
from tests.integration.listener.objects import add_partitions, alter, append, create, described, get, rows, table

pytestmark = pytest.mark.spark

SCHEMA = Schema.build([Field(0, "id", BIGINT), Field(0, "name", STRING), Field(0, "m", INT)], ["m"])
DB = "listened"


@pytest.fixture
def here(service: Service) -> Iterator[Metastore]:
    with Metastore(service.hms_uri) as opened:
        yield opened


@contextmanager
def listening(client: Client, name: str, uri: str, patterns: list[str]) -> Iterator[None]:
    client.listeners.create(name, uri, patterns)
    try:
        yield
    finally:
        client.listeners.drop(name)


def ddl(here: Metastore, db: str) -> None:
    """Warehouse objects of all kinds."""
    create(here, table("plain", parameters={"k": "v", "comment": "c"}, db=db))
    create(here, table("days", keys="day string, hour int", db=db))
    create(here, table("gone", db=db))
    create(here, objects.view("v", f"select a from {db}.plain", db=db))
    here.call("create_function", func=objects.function("f", db=db))
    add_partitions(here, "days", [(f"d {day}/x=y", str(hour)) for day in range(4) for hour in range(4)], db=db)


def changes(here: Metastore, db: str) -> None:
    plain = get(here, db, "plain")
    plain.parameters["k"] = "w"
    alter(here, plain)
    days = get(here, db, "days")
    days.sd.cols = objects.columns("b string, c double")  # Hive does not alter a table like this
    here.call("alter_table_with_cascade", dbname=db, tbl_name="days", new_tbl=days, cascade=True)
    here.call("drop_table", dbname=db, name="gone", deleteData=True)
    here.call("drop_partition", db_name=db, tbl_name="days", part_vals=["d 1/x=y", "1"], deleteData=True)
    moved = here.call("get_partition", db_name=db, tbl_name="days", part_vals=["d 2/x=y", "2"])
    moved.values = ["d 2/x=y", "99"]
    here.call("rename_partition", db_name=db, tbl_name="days", part_vals=["d 2/x=y", "2"], new_part=moved)
    here.call("alter_function", dbName=db, funcName="f", newFunc=objects.function("f", "com.example.G", db=db))


def lake_partitions(side: Metastore, db: str, name: str) -> set[str]:
    return {one.sd.location for one in side.call("get_partitions", db_name=db, tbl_name=name, max_parts=-1)}


def files_of(client: Client, name: str) -> set[str]:
    location = client.tables.get(name).location
    return {f"{location}/{file.path.rpartition('/')[0]}" for file in client.plan(name)}


def test_hive_has_what_we_have(client: Client, here: Metastore, hive23_uri: str) -> None:
    here.call("create_database", database=objects.database(DB, parameters={"p": "1"}, ownerName="ann"))
    with Metastore(hive23_uri) as there, listening(client, "hive23", hive23_uri, [DB]):
        ddl(here, DB)
        client.tables.create(f"{DB}.orders", SCHEMA, comment="of today")
        append(client, f"{DB}.orders", rows(0, 20))
        settled(client, "hive23")
        without_lake = {name for name in described(here, [DB]) if ".orders" not in name}

        def same() -> bool:
            ours, theirs = described(here, [DB]), described(there, [DB])
            return {name: ours.get(name) for name in without_lake} == {name: theirs.get(name) for name in without_lake}

        assert same()
        assert lake_partitions(there, DB, "orders") == files_of(client, f"{DB}.orders")
        changes(here, DB)
        append(client, f"{DB}.orders", rows(20, 20))
        client.tables.add_column(f"{DB}.orders", Field(0, "extra", STRING))
        client.tables.rename(f"{DB}.orders", f"{DB}.bought")
        settled(client, "hive23")
        without_lake = {name for name in described(here, [DB]) if ".bought" not in name}
        assert same()
        assert lake_partitions(there, DB, "bought") == files_of(client, f"{DB}.bought")
        assert get(there, DB, "orders") is get(there, DB, "gone") is None
        assert client.listeners.compare("hive23").differences == []

        changed = get(there, DB, "plain")
        changed.parameters["by"] = "hand"
        alter(there, changed)
        there.call("drop_partition", db_name=DB, tbl_name="days", part_vals=["d 3/x=y", "3"], deleteData=False)
        client.listeners.repair("hive23")
        settled(client, "hive23")
        (problem,) = client.listeners.get("hive23").problems
        assert (problem.name, problem.state) == (f"{DB}.plain", "left")
        client.listeners.repair("hive23", ["*"])
        settled(client, "hive23")
        assert same()
        here.call("drop_database", name=DB, deleteData=True, cascade=True)
        settled(client, "hive23")
        assert DB not in there.call("get_all_databases")
        assert client.listeners.get("hive23").problems == []


@pytest.mark.slow
def test_hive_is_killed_and_comes_back(client: Client, here: Metastore, tmp_path: Path) -> None:
    db = "killed"
    here.call("create_database", database=objects.database(db))
    client.tables.create(f"{db}.orders", SCHEMA)
    with ExitStack() as stack:
        hive = HiveMetastore(tmp_path / "hive")
        stack.callback(hive.stop)
        hive.start()
        uri = f"thrift://127.0.0.1:{hive.port}"
        stack.enter_context(listening(client, "killed", uri, [db]))
        ddl(here, db)
        append(client, f"{db}.orders", rows(0, 500))
        until(lambda: client.listeners.get("killed").repaired > 0)
        hive.kill()
        until(lambda: client.listeners.get("killed").condition == "failing")
        changes(here, db)
        append(client, f"{db}.orders", rows(500, 20))
        hive.start()
        settled(client, "killed")
        with Metastore(uri) as there:
            ours, theirs = described(here, [db]), described(there, [db])
            assert lake_partitions(there, db, "orders") == files_of(client, f"{db}.orders")
        assert {one for one in ours if ".orders" not in one} == {one for one in theirs if ".orders" not in one}
        assert client.listeners.compare("killed").differences == []


@pytest.mark.slow
def test_spark_reads_the_same_rows_there(
    client: Client, service: Service, here: Metastore, hive23_uri: str, start_spark: StartSpark
) -> None:
    db = "sparked"
    here.call("create_database", database=objects.database(db))
    client.tables.create(f"{db}.orders", SCHEMA)
    flat = Schema.build([Field(0, "id", BIGINT), Field(0, "Name", STRING)], [])
    client.tables.create(f"{db}.flat", flat)
    query = "SELECT * EXCEPT (lakemark_slice) FROM {} WHERE {} ORDER BY id"
    with listening(client, "sparked", hive23_uri, [db]):
        ours, theirs = start_spark("4.3", service.hms_uri), start_spark("4.3", hive23_uri)
        for step in range(3):
            append(client, f"{db}.orders", rows(step * 10, 10))
            append(client, f"{db}.flat", rows(step * 10, 10).select(["id", "name"]).rename_columns(["id", "Name"]))
            if step == 1:
                with client.begin(f"{db}.orders", "overwrite_partitions", partitions=[{"m": 0}]) as writer:
                    writer.write(rows(100, 3, months=1))
                    writer.commit()
            if step == 2:
                client.tables.add_column(f"{db}.orders", Field(0, "extra", STRING))
            settled(client, "sparked")
            for name in ("orders", "flat"):
                for where in ("true", "id > 7") + (("m = 1",) if name == "orders" else ()):
                    here_rows = ours.sql(f"SELECT * FROM {db}.{name} WHERE {where} ORDER BY id")
                    assert theirs.sql(query.format(f"{db}.{name}", where)) == here_rows
                    assert here_rows
        client.mounts.create("mounted", hive23_uri, db, cache_s=0)
        until(lambda: "mounted" in here.call("get_all_databases"))
        expected = ours.sql(f"SELECT * FROM {db}.orders ORDER BY id")
        assert ours.sql(query.format("mounted.orders", "true")) == expected
        with pytest.raises(SparkStatementError, match="mounted here to be read"):
            ours.sql("DROP TABLE mounted.orders")
        client.mounts.drop("mounted")
