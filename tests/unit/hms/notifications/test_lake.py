"""Lake tables in the notification log: plain external parquet tables, and an INSERT for each commit to main."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakemark_core.evolution.statements import parse_changes
from lakemark_hms.notifications.formats import JSON
from lakemark_hms.notifications.log import NotificationLog, Wanted
from lakemark_hms.services import Services
from lakemark_hms.wire.codec import decode_struct
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.catalog import named_content
from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.grants.service import Grants
from lakemark_server.timeline.jobs.alteration import AlterJob
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.references import ReferenceDraft
from lakemark_server.transactions.service import Transactions
from lakemark_thrift.ttypes import NotificationEvent
from tests.integration.hms_notifications import message, plain
from tests.lakes import Lake, file, open_lake


class Reader:
    """What was told since it was asked last."""

    def __init__(self, lake: Lake) -> None:
        services = Services(
            lake.catalog,
            Warehouse(lake.catalog),
            lake.timeline,
            Transactions(lake.catalog.mutations),
            Grants(lake.catalog.mutations, named_content.require),
            engine_schemes={"file": "hdfs"},
        )
        self.log = NotificationLog(services, JSON)
        self._last = self.log.last("hive")

    def new(self) -> list[Any]:
        told = [decode_struct(NotificationEvent, raw) for raw in self.log.after("hive", self._last, Wanted(), 1_000)]
        assert [event.eventId for event in told] == list(range(self._last + 1, self._last + 1 + len(told)))
        self._last += len(told)
        return told


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with open_lake(tmp_path) as made:
        yield made


def types(told: list[Any]) -> list[str]:
    return [event.eventType for event in told]


def test_a_lake_table_is_an_external_parquet_table(lake: Lake) -> None:
    reader = Reader(lake)
    table = lake.table()
    (event,) = reader.new()
    assert (event.eventType, event.dbName, event.tableName, event.catName) == ("CREATE_TABLE", "default", "t", "hive")
    told = message(event)
    struct = plain(told["tableObjJson"])
    assert (told["tableType"], struct[12], struct[9]["EXTERNAL"]) == ("EXTERNAL_TABLE", "EXTERNAL_TABLE", "TRUE")
    assert [(column[1], column[2]) for column in struct[7][1]] == [
        ("id", "bigint"), ("x", "double"), ("name", "string"), ("place", "struct<lat:double>"),
    ]  # fmt: skip
    assert [(key[1], key[2]) for key in struct[8]] == [("m", "int")]
    assert struct[7][2] == table.record.location.replace("file:", "hdfs:")
    assert struct[7][3].endswith("MapredParquetInputFormat")
    assert struct[9]["lakemark.conflict.policy"] == "partition"


def test_a_commit_to_main_is_an_insert_into_the_whole_table(lake: Lake) -> None:
    table = lake.table()
    reader = Reader(lake)
    lake.put(table, [1, 2])
    (event,) = reader.new()
    told = message(event)
    assert (event.eventType, told["ptnObjJson"], told["replace"], told["files"]) == ("INSERT", None, "false", [])
    assert plain(told["tableObjJson"])[1] == "t"
    lake.put(table, [1], t.OVERWRITE_TABLE)
    lake.timeline.restore(table, 1)
    assert [message(event)["replace"] for event in reader.new()] == ["true", "true"]


def test_what_is_no_change_of_main_keeps_its_id(lake: Lake) -> None:
    """A type that no reader knows: the ids stay dense, and nobody reads the table again."""
    table = lake.table()
    lake.put(table, [1])
    reader = Reader(lake)
    lake.timeline.references.create(table, ReferenceDraft(name="try", kind=c.BRANCH))
    lake.timeline.references.create(table, ReferenceDraft(name="first", kind=c.TAG))
    instant = lake.timeline.open(table.table_id, OpenJob(operation=t.APPEND, branch="try", profile=t.WorkProfile()))
    lake.commit(table, instant.record.instant, [file(instant.record.instant, "g9", 9)])
    lake.timeline.rollback(table, lake.open(table), "not wanted")
    told = reader.new()
    assert types(told) == [
        "LAKEMARK_BRANCH_CREATED", "LAKEMARK_TAG_CREATED", "LAKEMARK_COMMITTED", "LAKEMARK_INSTANT_ROLLED_BACK",
    ]  # fmt: skip
    assert {(event.dbName, event.tableName, event.messageFormat) for event in told} == {("default", "t", "json-0.2")}
    assert message(told[1])["event"]["reference"]["name"] == "first"
    assert message(told[2])["event"]["commit"]["branch"] == "try"


def test_schemas_renames_drops(lake: Lake) -> None:
    table = lake.table()
    reader = Reader(lake)
    lake.timeline.alter_schema(table.table_id, AlterJob(tuple(parse_changes("ADD COLUMN extra INT"))))
    altered, committed = sorted(reader.new(), key=lambda event: str(event.eventType))
    assert (altered.eventType, committed.eventType) == ("ALTER_TABLE", "INSERT")
    columns = [
        [column[1] for column in plain(message(altered)[f"tableObj{which}Json"])[7][1]] for which in ("Before", "After")
    ]
    assert columns == [["id", "x", "name", "place"], ["id", "x", "name", "place", "extra"]]
    assert [column[1] for column in plain(message(committed)["tableObjJson"])[7][1]] == columns[1]
    lake.catalog.rename_lake_table("hive", "default", "t", "default", "t2")
    (renamed,) = map(message, reader.new())
    assert [plain(renamed[f"tableObj{which}Json"])[1] for which in ("Before", "After")] == ["t", "t2"]
    lake.catalog.dropped.drop("hive", "default", "t2")
    lake.catalog.dropped.undrop("hive", "default", "t2")
    lake.catalog.dropped.drop("hive", "default", "t2")
    lake.catalog.dropped.purge("hive", "default", "t2")
    assert types(reader.new()) == ["DROP_TABLE", "CREATE_TABLE", "DROP_TABLE", "LAKEMARK_TABLE_PURGED"]


def test_a_commit_of_a_purged_table_is_told_by_its_names(lake: Lake) -> None:
    table = lake.table()
    reader = Reader(lake)
    lake.put(table, [1])
    lake.catalog.dropped.drop("hive", "default", "t")
    lake.catalog.dropped.purge("hive", "default", "t")
    told = reader.new()
    assert types(told) == ["CREATE_TABLE", "INSERT", "DROP_TABLE", "LAKEMARK_TABLE_PURGED"][1:]
    struct = plain(message(told[0])["tableObjJson"])
    assert (struct[1], struct[2], struct[12]) == ("t", "default", "EXTERNAL_TABLE")
