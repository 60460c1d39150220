"""Copies from and to Hive's own metastore (2.3), which is compared with what it was copied from, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemark_hms.migration import Migration, Orders
from lakemark_hms.outside import Metastore
from lakemark_server.process import Service
from tests.integration.grpc_server import running_service
from tests.integration.listener.objects import add_partitions, alter, create, database, function, get, table, view
from tests.integration.listener.test_migration import counts, statistics

pytestmark = pytest.mark.spark

DB = "sales"


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Service]:
    with running_service(tmp_path / "ours", hms_enabled=True, hms_port=0) as running:
        yield running


def test_from_hive_and_back(hive23_uri: str, ours: Service, tmp_path: Path) -> None:
    """Managed tables keep their files in Hive's warehouse; what comes back is what was there."""
    with Metastore(hive23_uri) as hive, Metastore(ours.hms_uri) as here:
        hive.call("create_database", database=database(DB, ownerName="ann", locationUri=f"file:{tmp_path}/theirs"))
        create(hive, table("orders", keys="day string, hour int", parameters={"team": "ops"}))
        add_partitions(hive, "orders", [(f"d {day}/x=y", str(hour)) for day in range(4) for hour in range(4)])
        create(hive, table("plain", location=f"file:{tmp_path}/plain", kind="EXTERNAL_TABLE"))
        create(hive, view("late", f"select a from {DB}.plain"))
        hive.call("create_function", func=function("f"))
        statistics(hive, "plain", "", 3)
        statistics(hive, "orders", "day=d 1%2Fx%3Dy/hour=2", 4)

        patterns = Orders(patterns=[DB])
        there = Migration(hive23_uri, ours.hms_uri, patterns)
        assert counts(there.copy())["table"] == {"made": 3}
        compared = there.compare()
        assert compared.wrong == 0, compared.told
        assert counts(compared) == {
            "database": {"equal": 1},
            "function": {"equal": 1},
            "table": {"equal": 3},
            "partition": {"equal": 16},
            "column statistics": {"equal": 2},
        }

        # Here, work goes on; then everything goes back.
        changed = get(here, DB, "orders")
        changed.parameters["team"] = "web"
        alter(here, changed)
        add_partitions(here, "orders", [("d 9", "0")])
        create(here, table("new", "a int, b map<string,array<int>>"))
        here.call("drop_table", dbname=DB, name="late", deleteData=False)
        back = Migration(ours.hms_uri, hive23_uri, Orders(patterns=[DB], drops=True))
        assert counts(back.copy())["table"] == {"dropped": 1, "equal": 1, "altered": 1, "made": 1}
        compared = back.compare()
        assert compared.wrong == 0, compared.told
        assert sorted(hive.call("get_all_tables", db_name=DB)) == ["new", "orders", "plain"]
        assert (tmp_path / "theirs" / "orders").is_dir()
