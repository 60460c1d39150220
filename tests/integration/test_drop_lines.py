"""Every drop is one line in the log that says what was dropped and by whom, because it may have been a slip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from lakemark import Client, connect
from lakemark_server.process import Service
from tests.integration.conftest import Client as Hive
from tests.integration.grpc_server import running_service
from tests.integration.hms_objects import partition, table


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running_service(tmp_path_factory.mktemp("service")) as running:
        yield running


def lines(logs: list[Any]) -> list[dict[str, Any]]:
    return [dict(one) for one in logs if "drop" in one["event"]]


def filled(client: Client, name: str) -> None:
    client.tables.create(name, "id bigint")
    with client.begin(name) as writer:
        writer.write(pa.table({"id": [1, 2]}))
        writer.commit()


def test_drops_over_grpc(service: Service) -> None:
    with connect(service.grpc_address) as client:
        client.databases.create("d")
        filled(client, "d.t")
        client.branches.create("d.t", "dev")
        with capture_logs() as logs:
            client.branches.drop("d.t", "dev")
            client.tables.drop("d.t")
            client.tables.purge("d.t")
            client.databases.drop("d")
        branch, dropped, purged, database = lines(logs)
    assert (branch["event"], branch["table"], branch["name"]) == ("dropped a branch or tag", "d.t", "dev")
    assert (dropped["event"], dropped["table"], dropped["versions"], dropped["files"]) == (
        "dropped a table",
        "d.t",
        1,
        1,
    )
    assert dropped["bytes"] > 0
    assert dropped["until"] > "2026"
    assert (purged["event"], purged["table"]) == ("deleted a dropped table", "d.t")
    assert (database["event"], database["database"]) == ("dropped a database", "d")
    for one in (dropped, purged, database):
        assert "@" in one["by"]
        assert "127.0.0.1" in one["by"]


def test_drops_over_the_metastore_protocol(client: Hive) -> None:
    client.create_table(table("t", keys="p string"))
    client.add_partitions([partition([value], of="t") for value in "abcde"])
    with capture_logs() as logs:
        client.drop_partition("default", "t", ["a"], True)
        client.drop_table("default", "t", True)
    some, whole = lines(logs)
    assert (some["event"], some["table"], some["partitions"], some["first"]) == (
        "dropped partitions", "default.t", 1, ["p=a"],
    )  # fmt: skip
    assert (whole["event"], whole["table"], whole["files"]) == ("dropped a warehouse table", "default.t", "deleted")
