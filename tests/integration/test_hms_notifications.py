"""The notification log as clients of Hive read it: ids, types, messages, filters, limits; what clients tell."""

from __future__ import annotations

import base64
import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore import ttypes as h
from thrift.Thrift import TApplicationException

from lakemark_core.errors import Unavailable
from lakemark_hms.bridge import HmsBridge
from lakemark_hms.notifications import log
from lakemark_hms.notifications.formats import BY_SETTING
from lakemark_hms.wire.codec import encode_struct
from lakemark_proto.v1.admin_pb2 import Quota
from lakemark_proto.v1.catalog_pb2 import WAREHOUSE
from lakemark_proto.v1.events_pb2 import (
    CONSTRAINTS_ADDED,
    TABLE_CREATED,
    Constraint,
    ConstraintsChange,
    Event,
    TableChange,
)
from lakemark_server.catalog import events
from lakemark_server.catalog.service import Catalog
from lakemark_server.events import upkeep
from lakemark_server.events.upkeep import EventRetention, LogUpkeep
from lakemark_thrift import ttypes
from tests.integration.conftest import Client, Connect
from tests.integration.hms_constraints import constrained_table
from tests.integration.hms_notifications import (
    external,
    function,
    inserted,
    make_changes,
    message,
    plain,
    statistics,
)
from tests.integration.hms_objects import database, partition, table
from tests.integration.hms_raw import Raw

# The fields of messages, in the order in which Hive 4.0.1 writes them.
_HEAD = ["server", "servicePrincipal"]
_TABLE = [*_HEAD, "db", "table", "tableType"]
FIELDS = {
    "CREATE_DATABASE": [*_HEAD, "db", "dbJson", "timestamp"],
    "ALTER_DATABASE": [*_HEAD, "db", "dbObjBeforeJson", "dbObjAfterJson", "timestamp"],
    "DROP_DATABASE": [*_HEAD, "db", "dbJson", "timestamp"],
    "CREATE_TABLE": [*_TABLE, "tableObjJson", "timestamp", "files"],
    "ALTER_TABLE": [*_TABLE, "tableObjBeforeJson", "tableObjAfterJson", "isTruncateOp", "timestamp", "writeId"],
    "DROP_TABLE": [*_TABLE, "tableObjJson", "timestamp"],
    "ADD_PARTITION": [*_TABLE, "tableObjJson", "timestamp", "partitions", "partitionListJson", "partitionFiles"],
    "ALTER_PARTITION": [
        *_TABLE, "tableObjJson", "isTruncateOp", "timestamp", "writeId", "keyValues", "partitionObjBeforeJson",
        "partitionObjAfterJson",
    ],
    "DROP_PARTITION": [*_TABLE, "tableObjJson", "timestamp", "partitions"],
    "CREATE_FUNCTION": [*_HEAD, "db", "functionObjJson", "timestamp"],
    "DROP_FUNCTION": [*_HEAD, "db", "functionName", "timestamp"],
    "INSERT": [*_TABLE, "tableObjJson", "ptnObjJson", "timestamp", "replace", "files", "partKeyVals"],
    "UPDATE_TBL_COL_STAT_EVENT": [
        "writeId", "timestamp", *_HEAD, "database", "colStatsJson", "parameters", "tableObjJson",
    ],
    "UPDATE_PART_COL_STAT_EVENT": [
        "writeId", "timestamp", *_HEAD, "database", "colStatsJson", "parameters", "partVals", "tableObjJson",
    ],
    "DELETE_TBL_COL_STAT_EVENT": ["timestamp", *_HEAD, "database", "colName"],
    "DELETE_PART_COL_STAT_EVENT": ["timestamp", *_HEAD, "database", "colName", "partName", "partValues"],
    "ACID_WRITE_EVENT": [
        "txnid", "writeId", "timestamp", *_HEAD, "database", "table", "partition", "tableObjJson", "partitionObjJson",
        "files",
    ],
    "ADD_PRIMARYKEY": [*_HEAD, "timestamp", "primaryKeyListJson"],
    "ADD_FOREIGNKEY": [*_HEAD, "timestamp", "foreignKeyListJson"],
    "ADD_UNIQUECONSTRAINT": [*_HEAD, "timestamp", "uniqueConstraintListJson"],
    "ADD_NOTNULLCONSTRAINT": [*_HEAD, "timestamp", "notNullConstraintListJson"],
    "ADD_DEFAULTCONSTRAINT": [*_HEAD, "timestamp", "defaultConstraintListJson"],
    "ADD_CHECKCONSTRAINT": [*_HEAD, "timestamp", "checkConstraintListJson"],
    "DROP_CONSTRAINT": [*_HEAD, "catName", "dbName", "tableName", "constraintName", "timestamp"],
    "RELOAD": ["timestamp", *_HEAD, "db", "table", "tableObjJson", "ptnObjJson", "refreshEvent"],
}  # fmt: skip


@pytest.fixture
def start(client: Client) -> int:
    """The id before all that the test does."""
    last: int = client.get_current_notificationEventId().eventId
    return last


def following(client: Client, start: int, count: int = 0) -> list[h.NotificationEvent]:
    events: list[h.NotificationEvent] = client.get_next_notification(h.NotificationEventRequest(start, count)).events
    return events


def types(events: list[Any]) -> list[str]:
    return [event.eventType for event in events]


def last_message(client: Client, kind: str) -> dict[str, Any]:
    told = [event for event in following(client, 0) if event.eventType == kind]
    fields = message(told[-1])
    assert list(fields) == FIELDS[kind]
    return fields


def fire(raw: Raw, name: str, data: ttypes.FireEventRequestData, **fields: Any) -> list[int]:
    request = ttypes.FireEventRequest(successful=True, data=data, dbName="default", tableName=name, **fields)
    ids: list[int] = raw.call("fire_listener_event", rqst=request).success.eventIds
    return ids


def test_ids_are_dense_and_types_are_in_order(client: Client, start: int, tmp_path: Path) -> None:
    expected = make_changes(client, tmp_path.as_uri())
    told = following(client, start)
    assert types(told) == expected
    assert [event.eventId for event in told] == list(range(start + 1, start + 1 + len(expected)))
    assert client.get_current_notificationEventId().eventId == start + len(expected)
    assert {event.messageFormat for event in told} == {"json-0.2"}
    assert [list(message(event)) for event in told] == [FIELDS[event.eventType] for event in told]
    assert [(event.dbName, event.tableName) for event in told[:5]] == [
        ("d", None), ("d", "t"), ("d", "e"), ("d", "e"), ("d", "e2"),
    ]  # fmt: skip


def test_pages_are_the_whole(client: Client, start: int, tmp_path: Path) -> None:
    make_changes(client, tmp_path.as_uri())
    client.create_table(table("t", keys="p string"))
    client.add_partitions([partition([str(value)], of="t") for value in range(5)])
    client.alter_partitions("default", "t", client.get_partitions("default", "t", -1))  # five events in one batch
    whole = following(client, start)
    assert types(whole)[-5:] == ["ALTER_PARTITION"] * 5
    for size in (1, 2, 7):
        read: list[h.NotificationEvent] = []
        while page := following(client, read[-1].eventId if read else start, size):
            assert len(page) <= size
            read += page
        assert read == whole


def test_a_reader_that_is_at_the_end_sees_what_comes(client: Client, start: int) -> None:
    assert following(client, start) == []
    for number in range(3):
        client.create_database(database(f"d{number}"))
        assert types(following(client, start + number)) == ["CREATE_DATABASE"]
        assert client.get_current_notificationEventId().eventId == start + number + 1
    assert following(client, start + 99) == []


def test_another_process_tells_the_same(client: Client, catalog: Catalog, start: int, tmp_path: Path) -> None:
    make_changes(client, tmp_path.as_uri())
    told = log.NotificationLog(HmsBridge(catalog).services, BY_SETTING["json"])
    ours = log.NotificationLog(HmsBridge(catalog).services, BY_SETTING["json"])
    first = told.after("hive", start, log.Wanted(), 100)
    assert first == ours.after("hive", start, log.Wanted(), 100) == told.after("hive", start, log.Wanted(), 100)
    assert len(first) == len(following(client, start))


def test_databases(client: Client) -> None:
    client.create_database(database("d", description="é", parameters={"team": "blue"}))
    made = last_message(client, "CREATE_DATABASE")
    struct = plain(made["dbJson"])
    assert (made["db"], struct[1], struct[2], struct[4]) == ("d", "d", "é", {"team": "blue"})
    assert struct[3] == client.get_database("d").locationUri
    changed = client.get_database("d")
    changed.parameters = {"team": "red"}
    client.alter_database("d", changed)
    altered = last_message(client, "ALTER_DATABASE")
    assert plain(altered["dbObjBeforeJson"])[4] == {"team": "blue"}
    assert plain(altered["dbObjAfterJson"])[4] == {"team": "red"}


def test_tables(client: Client, tmp_path: Path) -> None:
    client.create_database(database("d"))
    client.create_table(external(tmp_path.as_uri()))
    made = last_message(client, "CREATE_TABLE")
    struct = plain(made["tableObjJson"])
    assert (made["table"], made["tableType"], made["files"]) == ("e", "EXTERNAL_TABLE", [])
    assert (struct[1], struct[2], struct[12]) == ("e", "d", "EXTERNAL_TABLE")
    assert [column[1] for column in struct[7][1]] == ["a", "b"]
    assert struct[7][2] == client.get_table("d", "e").sd.location
    changed = client.get_table("d", "e")
    changed.tableName = "e2"
    client.alter_table("d", "e", changed)
    renamed = last_message(client, "ALTER_TABLE")
    assert (renamed["table"], renamed["isTruncateOp"], renamed["writeId"]) == ("e", "false", -1)
    assert [plain(renamed[f"tableObj{which}Json"])[1] for which in ("Before", "After")] == ["e", "e2"]


def test_truncation(client: Client, raw: Raw) -> None:
    """As Hive 4 tells it: a change that changes nothing, with a flag by which caches read the files anew."""
    client.create_table(table("flat"))
    client.create_table(table("t", keys="p string"))
    client.add_partitions([partition([value], of="t") for value in ("1", "2", "3")])
    raw.call("truncate_table", dbName="default", tableName="flat")
    told = last_message(client, "ALTER_TABLE")
    assert (told["table"], told["isTruncateOp"]) == ("flat", "true")
    assert told["tableObjBeforeJson"] == told["tableObjAfterJson"]
    raw.call("truncate_table", dbName="default", tableName="t", partNames=["p=2"])
    told = last_message(client, "ALTER_PARTITION")
    assert (told["table"], told["isTruncateOp"], told["keyValues"]) == ("t", "true", {"p": "2"})
    before = client.get_current_notificationEventId().eventId
    raw.call("truncate_table", dbName="default", tableName="t")
    events = client.get_next_notification(h.NotificationEventRequest(before, 10)).events
    assert [(event.eventType, message(event)["keyValues"]["p"]) for event in events] == [
        ("ALTER_PARTITION", "1"), ("ALTER_PARTITION", "2"), ("ALTER_PARTITION", "3"),
    ]  # fmt: skip


def test_partitions(client: Client) -> None:
    client.create_table(table("t", keys="p string, q int"))
    client.add_partitions([partition([value, "7"], of="t") for value in ("1", "2")])
    added = last_message(client, "ADD_PARTITION")
    assert added["partitions"] == [{"p": "1", "q": "7"}, {"p": "2", "q": "7"}]
    structs = [plain(text) for text in added["partitionListJson"]]
    assert [(struct[1], struct[2], struct[3]) for struct in structs] == [
        (["1", "7"], "default", "t"), (["2", "7"], "default", "t"),
    ]  # fmt: skip
    assert structs[0][6][2] == client.get_partition("default", "t", ["1", "7"]).sd.location
    row = client.get_partition("default", "t", ["1", "7"])
    row.values = ["9", "7"]
    client.rename_partition("default", "t", ["1", "7"], row)
    altered = last_message(client, "ALTER_PARTITION")
    assert altered["keyValues"] == {"p": "1", "q": "7"}
    assert plain(altered["partitionObjBeforeJson"])[1] == ["1", "7"]
    assert plain(altered["partitionObjAfterJson"])[1] == ["9", "7"]
    client.drop_partition("default", "t", ["2", "7"], True)
    dropped = last_message(client, "DROP_PARTITION")
    assert dropped["partitions"] == [{"p": "2", "q": "7"}]
    assert [key[1] for key in plain(dropped["tableObjJson"])[8]] == ["p", "q"]


def test_an_older_event_is_told_with_the_names_that_its_table_had(client: Client, start: int) -> None:
    client.create_table(table("t", keys="p string"))
    client.add_partitions([partition(["1"], of="t")])
    changed = client.get_table("default", "t")
    changed.tableName = "t2"
    client.alter_table("default", "t", changed)
    added = message(following(client, start + 1, 1)[0])
    assert (added["table"], plain(added["tableObjJson"])[1]) == ("t", "t")
    assert plain(added["tableObjJson"])[7][2] == client.get_table("default", "t2").sd.location
    assert plain(added["partitionListJson"][0])[3] == "t"


def test_a_dropped_table_is_told_by_its_names(client: Client, start: int) -> None:
    client.create_table(table("t", keys="p string"))
    client.add_partitions([partition(["1"], of="t")])
    client.drop_table("default", "t", True)
    alone = message(following(client, start + 1, 1)[0])
    struct = plain(alone["tableObjJson"])
    assert (struct[1], struct[2], struct[12]) == ("t", "default", "EXTERNAL_TABLE")
    assert [key[1] for key in struct[8]] == ["p"]


def test_what_an_answer_has_told_before_counts(client: Client, start: int) -> None:
    client.create_table(table("t", keys="p string"))
    client.add_partitions([partition(["1"], of="t")])
    client.drop_table("default", "t", True)
    made, added, _ = following(client, start)
    assert message(added)["tableObjJson"] == message(made)["tableObjJson"]


def test_functions(client: Client) -> None:
    client.create_database(database("d"))
    client.create_function(function())
    struct = plain(last_message(client, "CREATE_FUNCTION")["functionObjJson"])
    assert (struct[1], struct[2], struct[3], struct[8]) == ("f", "d", "x.Y", [{1: 1, 2: "file:/x.jar"}])
    client.drop_function("d", "f")
    assert last_message(client, "DROP_FUNCTION")["functionName"] == "f"


def test_statistics(client: Client) -> None:
    client.create_table(table("t", keys="p string"))
    client.add_partitions([partition(["1"], of="t")])
    client.update_table_column_statistics(statistics("t", db="default"))
    of_table = plain(last_message(client, "UPDATE_TBL_COL_STAT_EVENT")["colStatsJson"])
    assert (of_table[1][1], of_table[1][2], of_table[1][3]) == (1, "default", "t")
    assert of_table[2][0][3] == {2: {1: -5, 2: 7, 3: 1, 4: 3}}
    assert of_table[2][1][3] == {3: {1: 0.5, 2: 1e300, 3: 0, 4: 2}}
    client.update_partition_column_statistics(statistics("t", "p=1", db="default"))
    of_part = last_message(client, "UPDATE_PART_COL_STAT_EVENT")
    assert of_part["partVals"] == ["1"]
    assert plain(of_part["colStatsJson"])[1][4] == "p=1"
    client.delete_table_column_statistics("default", "t", "a")
    assert last_message(client, "DELETE_TBL_COL_STAT_EVENT")["colName"] == "a"
    client.delete_partition_column_statistics("default", "t", "p=1", None)
    deleted = last_message(client, "DELETE_PART_COL_STAT_EVENT")
    assert (deleted["colName"], deleted["partName"], deleted["partValues"]) == (None, "p=1", ["1"])


def test_constraints(client: Client, raw: Raw, start: int) -> None:
    raw.call("create_table_req", request=constrained_table())
    raw.call("drop_constraint", req=ttypes.DropConstraintRequest(dbname="Default", tablename="T", constraintname="U1"))
    events = following(client, start)
    assert types(events) == [
        "CREATE_TABLE",
        "ADD_PRIMARYKEY",
        "ADD_FOREIGNKEY",
        "ADD_UNIQUECONSTRAINT",
        "ADD_NOTNULLCONSTRAINT",
        "ADD_DEFAULTCONSTRAINT",
        "ADD_CHECKCONSTRAINT",
        "DROP_CONSTRAINT",
    ]
    assert {(event.dbName, event.tableName) for event in events} == {("default", "t")}
    (key,) = last_message(client, "ADD_PRIMARYKEY")["primaryKeyListJson"]
    assert {number: plain(key)[number] for number in (1, 2, 3, 4, 5, 9)} == {
        1: "default", 2: "t", 3: "a", 4: 1, 5: "p", 9: "hive",
    }  # fmt: skip
    (reference,) = last_message(client, "ADD_FOREIGNKEY")["foreignKeyListJson"]
    assert [plain(reference)[number] for number in (1, 2, 3, 4, 5, 6, 7, 10)] == [
        "default", "t", "a", "default", "t", "b", 1, "f",
    ]  # fmt: skip
    unique = map(plain, last_message(client, "ADD_UNIQUECONSTRAINT")["uniqueConstraintListJson"])
    assert [(one[6], one[4], one[5]) for one in unique] == [("u1", "a", 1), ("u1", "b", 2), ("u2", "b", 1)]
    assert len(last_message(client, "ADD_NOTNULLCONSTRAINT")["notNullConstraintListJson"]) == 2
    (default,) = map(plain, last_message(client, "ADD_DEFAULTCONSTRAINT")["defaultConstraintListJson"])
    assert (default[5], default[6]) == ("7", "d")
    (check,) = map(plain, last_message(client, "ADD_CHECKCONSTRAINT")["checkConstraintListJson"])
    assert (check[5], check[6], check[7]) == ("a > b", "c", 1)
    dropped = last_message(client, "DROP_CONSTRAINT")
    assert (dropped["catName"], dropped["dbName"], dropped["tableName"]) == ("hive", "default", "t")
    assert dropped["constraintName"] == "u1"


# -- what clients tell


def test_clients_of_hive_2_tell_of_inserts(client: Client) -> None:
    client.create_table(table("t", keys="p string"))
    client.add_partitions([partition(["1"], of="t")])
    client.fire_listener_event(inserted("t", ["file:/f1", "file:/f2"], ["1"], "default"))
    told = last_message(client, "INSERT")
    assert (told["files"], told["replace"]) == (["file:/f1###", "file:/f2###"], "true")
    assert (plain(told["ptnObjJson"])[1], told["partKeyVals"]) == (["1"], {"p": "1"})


def test_clients_of_hive_4_tell_of_inserts_and_get_the_ids(client: Client, raw: Raw, start: int) -> None:
    client.create_table(table("t", keys="p string"))
    client.add_partitions([partition([value], of="t") for value in ("1", "2")])
    inserts = [
        ttypes.InsertEventRequestData(replace=True, filesAdded=["f1"], subDirectoryList=["s"], partitionVal=[value])
        for value in ("1", "2")
    ]
    assert fire(raw, "t", ttypes.FireEventRequestData(insertDatas=inserts)) == [start + 3, start + 4]
    told = [message(event) for event in following(client, start + 2)]
    assert [plain(one["ptnObjJson"])[1] for one in told] == [["1"], ["2"]]
    assert {(one["replace"], *one["files"]) for one in told} == {("true", "f1###s")}
    assert fire(raw, "t", ttypes.FireEventRequestData(insertData=inserts[0])) == [start + 5]


def test_ids_are_those_of_the_caller_s_own_notifications(connect: Connect, hms: HmsBridge, start: int) -> None:
    """However many tell at once, each gets the ids under which its own files are found."""
    connect().create_table(table("t"))

    def tell(number: int) -> tuple[list[int], list[str]]:
        raw = Raw(hms.port)
        files = [f"f{number}-{at}" for at in range(2)]
        inserts = [ttypes.InsertEventRequestData(filesAdded=[name]) for name in files]
        ids = fire(raw, "t", ttypes.FireEventRequestData(insertDatas=inserts))
        raw.close()
        return ids, [f"{name}###" for name in files]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(tell, range(24)))
    told = {event.eventId: message(event)["files"] for event in following(connect(), start + 1)}
    assert sorted(told) == list(range(start + 2, start + 50))
    for ids, files in answers:
        assert [told[one] for one in ids] == [[name] for name in files]


def test_a_refresh_is_told(client: Client, raw: Raw, start: int) -> None:
    client.create_table(table("t", keys="p string"))
    client.add_partitions([partition(["1"], of="t")])
    refresh = ttypes.FireEventRequestData(refreshEvent=True)
    assert fire(raw, "t", refresh) == [start + 3]
    assert fire(raw, "t", refresh, partitionVals=["1"]) == [start + 4]
    assert fire(raw, "t", refresh, batchPartitionValsForRefresh=[["1"], ["1"]]) == [start + 5, start + 6]
    told = last_message(client, "RELOAD")
    assert (told["refreshEvent"], plain(told["ptnObjJson"])[1]) == ("true", ["1"])


def test_acid_writes_are_told(client: Client, raw: Raw, start: int) -> None:
    client.create_table(table("t", keys="p string"))
    client.add_partitions([partition(["1"], of="t")])
    files = ttypes.InsertEventRequestData(filesAdded=["f1"])
    write = ttypes.WriteNotificationLogRequest(
        txnId=7, writeId=2, db="default", table="t", fileInfo=files, partitionVals=["1"]
    )
    raw.call("add_write_notification_log", rqst=write)
    batch = ttypes.WriteNotificationLogBatchRequest(catalog="hive", db="default", table="t", requestList=[write, write])
    raw.call("add_write_notification_log_in_batch", rqst=batch)
    assert types(following(client, start + 2)) == ["ACID_WRITE_EVENT"] * 3
    told = last_message(client, "ACID_WRITE_EVENT")
    assert (told["txnid"], told["writeId"], told["partition"], told["files"]) == (7, 2, "p=1", ["f1###"])
    assert plain(told["partitionObjJson"])[1] == ["1"]


def test_what_cannot_be_told_is_refused(client: Client, raw: Raw, start: int) -> None:
    client.create_table(table("t", keys="p string"))
    data = ttypes.FireEventRequestData(insertData=ttypes.InsertEventRequestData(filesAdded=["f"]))
    for arguments, words in (
        ((raw, "t", ttypes.FireEventRequestData()), "asks for no refresh"),
        ((raw, "nothing", data), "nothing table not found"),
    ):
        with pytest.raises(AssertionError, match=words):
            fire(*arguments)
    with pytest.raises(AssertionError, match="has no partition p=1"):
        fire(raw, "t", data, partitionVals=["1"])
    many = ttypes.InsertEventRequestData(filesAdded=["f" * 1_000] * 1_100)
    with pytest.raises(AssertionError, match="at most 1000000 can be told together"):
        fire(raw, "t", ttypes.FireEventRequestData(insertData=many))
    assert types(following(client, start)) == ["CREATE_TABLE"]


def test_a_failed_operation_is_not_told(client: Client, raw: Raw, start: int) -> None:
    client.create_table(table("t"))
    data = ttypes.FireEventRequestData(insertData=ttypes.InsertEventRequestData(filesAdded=["f"]))
    request = ttypes.FireEventRequest(successful=False, data=data, dbName="default", tableName="t")
    assert raw.call("fire_listener_event", rqst=request).success.eventIds == []
    assert len(following(client, start)) == 1


# -- filters, counts, limits


def ask(raw: Raw, last: int, **fields: Any) -> list[Any]:
    request = ttypes.NotificationEventRequest(lastEvent=last, **fields)
    events: list[Any] = raw.call("get_next_notification", rqst=request).success.events
    return events


def count(raw: Raw, since: int, db: str = "", **fields: Any) -> int:
    request = ttypes.NotificationEventsCountRequest(fromEventId=since, dbName=db, **fields)
    number: int = raw.call("get_notification_events_count", rqst=request).success.eventsCount
    return number


def test_a_reader_asks_for_some_of_them(client: Client, raw: Raw, start: int) -> None:
    client.create_database(database("d"))
    for name in ("t", "u", "v"):
        client.create_table(table(name, db="d"))
        client.create_table(table(name))
    in_d = ask(raw, start, dbName="D")
    assert [(event.dbName, event.tableName) for event in in_d] == [("d", None), ("d", "t"), ("d", "u"), ("d", "v")]
    assert [event.eventId for event in in_d] == [start + 1, start + 2, start + 4, start + 6]
    assert [event.tableName for event in ask(raw, start, dbName="d", tableNames=["U", "v"])] == ["u", "v"]
    assert [event.tableName for event in ask(raw, start, dbName="d", tableNames=["u", "v"], maxEvents=1)] == ["u"]
    assert types(ask(raw, start, eventTypeSkipList=["CREATE_TABLE"])) == ["CREATE_DATABASE"]
    assert len(ask(raw, start, eventTypeList=["CREATE_TABLE"])) == 6
    assert ask(raw, start, dbName="nowhere") == []
    assert ask(raw, 0, catName="elsewhere") == []
    # They are the same when they are kept already.
    assert ask(raw, start, dbName="d") == in_d
    assert ask(raw, start, catName="HIVE") == ask(raw, start)


def test_notifications_are_counted(client: Client, raw: Raw, catalog: Catalog, start: int) -> None:
    client.create_database(database("d"))
    for name in ("t", "u", "v"):
        client.create_table(table(name, db="d"))
    assert count(raw, start) == count(raw, start, "*") == 4
    assert count(raw, start, "D") == 4
    assert count(raw, start, "d", tableNames=["t", "V"]) == 2
    assert count(raw, start, "d", toEventId=start + 2) == 2
    assert count(raw, start, "d", limit=3) == 3
    assert count(raw, start, "default") == 0
    assert count(raw, start + 99) == count(raw, start, toEventId=start - 1) == 0
    assert count(raw, 0, "d", catName="elsewhere") == 0
    catalog.quotas.set("hive", Quota(tables=1_000))
    assert types(ask(raw, start + 4)) == ["LAKEMARK_QUOTA_CHANGED"]
    assert ask(raw, start + 4, dbName="d") == []
    assert count(raw, start, "d") == 5  # Hive counts what is of no database, too
    assert client.get_next_notification(h.NotificationEventRequest(-5, 1)).events[0].eventId == 1


def test_trimmed_notifications_are_missing(
    client: Client, raw: Raw, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "EVENTS_A_MARK", 5)
    for number in range(20):
        client.create_database(database(f"d{number}"))
    before = following(client, 0)
    trimmed = LogUpkeep(catalog.store, catalog.clock, EventRetention(ms=10**9, bytes=2_000)).round()["hive"]
    assert 0 < trimmed < 20
    with HmsBridge(catalog) as other:
        fresh = Raw(other.port)
        told = ask(fresh, 3)
        fresh.close()
    assert [event.eventId for event in told] == list(range(trimmed + 1, 22))
    assert [event.message for event in told] == [event.message for event in before[trimmed:]]
    assert count(raw, 0) == 21 - trimmed
    assert count(raw, 0, "d19") == 1


def test_an_answer_is_bounded_in_bytes(client: Client, start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        client.create_table(table(f"t{number}", parameters={"long": "x" * 10_000}))
    whole = following(client, start)
    monkeypatch.setattr(log, "ANSWER_BYTES_MAX", 25_000)
    read: list[h.NotificationEvent] = []
    while page := following(client, start + len(read)):
        assert len(page) == 2
        read += page
    assert read == whole
    monkeypatch.setattr(log, "ANSWER_BYTES_MAX", 5_000)
    assert following(client, start) == whole[:1]


def test_a_message_is_made_once(client: Client, start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    client.create_table(table("t"))
    told = following(client, start)

    def refuse(*_: object) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(log.NotificationLog, "_make", refuse)
    assert following(client, start) == told


def test_many_partitions_are_told_as_the_whole_table(
    client: Client, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_table(table("t", keys="p string"))
    monkeypatch.setattr(events, "WHOLE_BYTES_MAX", 1_000)
    client.add_partitions([partition([str(value)], of="t") for value in range(5)])
    listed = message(following(client, start + 1)[0])
    struct = plain(listed["partitionListJson"][4])
    assert struct[1] == ["4"]
    assert struct[6][2] == client.get_partition("default", "t", ["4"]).sd.location
    assert struct[6][3] == plain(listed["tableObjJson"])[7][3]
    monkeypatch.setattr(events, "LISTED_BYTES_MAX", 50)
    monkeypatch.setattr(events, "ALTERED_ONE_BY_ONE_MAX", 1)
    client.add_partitions([partition(["x" * 50 + str(value)], of="t") for value in range(5, 10)])
    rows = client.get_partitions("default", "t", -1)
    client.alter_partitions("default", "t", rows)
    told = following(client, start + 2)
    assert types(told) == ["INSERT", "INSERT"]
    assert [message(event)["ptnObjJson"] for event in told] == [None, None]
    assert plain(message(told[0])["tableObjJson"])[1] == "t"


def test_an_event_that_cannot_be_told_stops_nobody(client: Client, catalog: Catalog, start: int) -> None:
    change = TableChange(hive_after=b"no struct")
    change.after.kind = WAREHOUSE
    broken = Event(kind=TABLE_CREATED, catalog="hive", database="default", table="t", table_change=change)
    catalog.mutations.run(lambda mutation: mutation.tell(broken))
    client.create_table(table("u"))
    told = following(client, start)
    assert types(told) == ["LAKEMARK_TABLE_CREATED", "CREATE_TABLE"]
    assert (told[0].tableName, message(told[0])["event"]["kind"]) == ("t", "TABLE_CREATED")


def test_a_foreign_key_is_told_with_the_names_of_its_parent(client: Client, catalog: Catalog, start: int) -> None:
    client.create_table(table("t"))
    client.add_primary_key(h.AddPrimaryKeyRequest([h.SQLPrimaryKey("default", "t", "a", 1, "p", False, False, True)]))
    client.create_table(table("u"))
    client.add_foreign_key(h.AddForeignKeyRequest([reference("@hive#Default", "T")]))
    (added,) = [event for event in following(client, start) if event.eventType == "ADD_FOREIGNKEY"]
    assert told_parents(added) == [("default", "t")]


def test_a_foreign_key_of_an_earlier_build_refers_to_what_its_first_column_names(
    client: Client, catalog: Catalog, start: int
) -> None:
    def tell(*parents: h.SQLForeignKey) -> None:
        columns = ["a"] * len(parents)
        told = Constraint(
            type="FOREIGN_KEY",
            name="f",
            columns=columns,
            parent_columns=columns,
            hive=list(map(encode_struct, parents)),
        )
        change = ConstraintsChange(constraints=[told])
        event = Event(kind=CONSTRAINTS_ADDED, catalog="hive", database="default", table="u", constraints_change=change)
        catalog.mutations.run(lambda mutation: mutation.tell(event))

    tell(reference("default", "t"), reference("@oops", "another"))
    tell(reference("@oops", "t"))
    first, second = following(client, start)
    assert (first.eventType, told_parents(first)) == ("ADD_FOREIGNKEY", [("default", "t")] * 2)
    assert (second.eventType, second.tableName) == ("LAKEMARK_CONSTRAINTS_ADDED", "u")


def test_details_that_may_come_later_are_waited_for(
    client: Client, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise Unavailable("the store does not answer")

    client.create_table(table("t"))
    with monkeypatch.context() as patched:
        patched.setattr(log.Messages, "of", fail)
        with pytest.raises(TApplicationException, match="does not answer"):
            following(client, start)
    assert types(following(client, start)) == ["CREATE_TABLE"]


def reference(parent_database: str, parent: str) -> h.SQLForeignKey:
    """The column of a foreign key of ``default.u``."""
    return h.SQLForeignKey(parent_database, parent, "a", "default", "u", "a", 1, 0, 0, "f", None, False, False, True)


def told_parents(event: h.NotificationEvent) -> list[tuple[str, str]]:
    return [(one[1], one[2]) for one in map(plain, message(event)["foreignKeyListJson"])]


def test_messages_are_compressed_if_the_service_is_told_so(catalog: Catalog, client: Client) -> None:
    client.create_table(table("t"))
    (plainly,) = following(client, 1)
    with HmsBridge(catalog, notification_format=BY_SETTING["gzip"]) as bridge:
        raw = Raw(bridge.port)
        (event,) = ask(raw, 1)
        raw.close()
    assert event.messageFormat == "gzip(json-2.0)"
    text = gzip.decompress(base64.b64decode(event.message)).decode()
    assert json.loads(text) == message(plainly)
