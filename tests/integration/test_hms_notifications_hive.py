"""Notifications read by Hive's own code, and compared with those of Hive's own metastore.

The classes of Hive 2.3 are those inside pyspark. Those of Hive 4.0.1, and the listener that writes the log of Hive
2.3's metastore, are pinned in ``scripts/locks/jars.toml``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peers.hive23 import connect as connect_peer
from benchmarks.peers.hive23 import hive_metastore
from benchmarks.peers.jars import jars
from hmsclient.genthrift.hive_metastore import ttypes as h
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from lakemark_hms.bridge import HmsBridge
from lakemark_hms.notifications.formats import BY_SETTING
from lakemark_server.catalog.service import Catalog
from lakemark_server.events import upkeep
from lakemark_server.events.upkeep import EventRetention, LogUpkeep
from lakemark_thrift import ttypes
from tests.hive_jvm import SPARK_JARS, HiveJvm, hive_classes
from tests.integration.conftest import Client
from tests.integration.hms_constraints import constrained_table
from tests.integration.hms_notifications import (
    external,
    function,
    make_changes,
    message,
    plain,
    statistics,
)
from tests.integration.hms_objects import database, partition, table
from tests.integration.hms_raw import Raw

pytestmark = pytest.mark.slow

# Of each type: the getter of its message, and where the message has Thrift objects: getter, field of the JSON.
OBJECTS: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "CREATE_DATABASE": ("CreateDatabase", (("getDatabaseObject", "dbJson"),)),
    "ALTER_DATABASE": (
        "AlterDatabase",
        (("getDbObjBefore", "dbObjBeforeJson"), ("getDbObjAfter", "dbObjAfterJson")),
    ),
    "DROP_DATABASE": ("DropDatabase", (("getDatabaseObject", "dbJson"),)),
    "CREATE_TABLE": ("CreateTable", (("getTableObj", "tableObjJson"),)),
    "ALTER_TABLE": (
        "AlterTable",
        (("getTableObjBefore", "tableObjBeforeJson"), ("getTableObjAfter", "tableObjAfterJson")),
    ),
    "DROP_TABLE": ("DropTable", (("getTableObj", "tableObjJson"),)),
    "ADD_PARTITION": ("AddPartition", (("getTableObj", "tableObjJson"),)),
    "ALTER_PARTITION": (
        "AlterPartition",
        (
            ("getTableObj", "tableObjJson"),
            ("getPtnObjBefore", "partitionObjBeforeJson"),
            ("getPtnObjAfter", "partitionObjAfterJson"),
        ),
    ),
    "DROP_PARTITION": ("DropPartition", (("getTableObj", "tableObjJson"),)),
    "CREATE_FUNCTION": ("CreateFunction", (("getFunctionObj", "functionObjJson"),)),
    "DROP_FUNCTION": ("DropFunction", ()),
    "INSERT": ("Insert", (("getTableObj", "tableObjJson"), ("getPtnObj", "ptnObjJson"))),
    "UPDATE_TBL_COL_STAT_EVENT": (
        "UpdateTableColumnStat",
        (("getColumnStatistics", "colStatsJson"), ("getTableObject", "tableObjJson")),
    ),
    "UPDATE_PART_COL_STAT_EVENT": (
        "UpdatePartitionColumnStat",
        (("getColumnStatistics", "colStatsJson"), ("getTableObject", "tableObjJson")),
    ),
    "DELETE_TBL_COL_STAT_EVENT": ("DeleteTableColumnStat", ()),
    "DELETE_PART_COL_STAT_EVENT": ("DeletePartitionColumnStat", ()),
    "ADD_PRIMARYKEY": ("AddPrimaryKey", ()),
    "ADD_FOREIGNKEY": ("AddForeignKey", ()),
    "ADD_UNIQUECONSTRAINT": ("AddUniqueConstraint", ()),
    "ADD_NOTNULLCONSTRAINT": ("AddNotNullConstraint", ()),
    "ADD_DEFAULTCONSTRAINT": ("AddDefaultConstraint", ()),
    "ADD_CHECKCONSTRAINT": ("AddCheckConstraint", ()),
    "DROP_CONSTRAINT": ("DropConstraint", ()),
    "ACID_WRITE_EVENT": ("AcidWrite", (("getTableObj", "tableObjJson"), ("getPartitionObj", "partitionObjJson"))),
}
# Of each type: the getter of its list of Thrift objects, and the field of the JSON.
LISTS = {
    "ADD_PRIMARYKEY": ("getPrimaryKeys", "primaryKeyListJson"),
    "ADD_FOREIGNKEY": ("getForeignKeys", "foreignKeyListJson"),
    "ADD_UNIQUECONSTRAINT": ("getUniqueConstraints", "uniqueConstraintListJson"),
    "ADD_NOTNULLCONSTRAINT": ("getNotNullConstraints", "notNullConstraintListJson"),
    "ADD_DEFAULTCONSTRAINT": ("getDefaultConstraints", "defaultConstraintListJson"),
    "ADD_CHECKCONSTRAINT": ("getCheckConstraints", "checkConstraintListJson"),
}
# The catalog; of a table also its owner's type, the write id and what may be done with it.
NOT_IN_HIVE_2 = {"Table": (17, 18, 19, 25), "Partition": (9,), "Function": (9,)}
# What Hive 2.3 has, and reads of it.
IN_HIVE_2 = {
    "CREATE_DATABASE": (),
    "CREATE_TABLE": OBJECTS["CREATE_TABLE"][1],
    "ALTER_TABLE": OBJECTS["ALTER_TABLE"][1],
    "DROP_TABLE": (),
    "ADD_PARTITION": OBJECTS["ADD_PARTITION"][1],
    "ALTER_PARTITION": OBJECTS["ALTER_PARTITION"][1],
    "DROP_PARTITION": OBJECTS["DROP_PARTITION"][1],
    "CREATE_FUNCTION": OBJECTS["CREATE_FUNCTION"][1],
    "DROP_FUNCTION": (),
    "INSERT": (),
    "DROP_DATABASE": (),
}


@pytest.fixture(scope="module")
def hive4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveJvm]:
    with hive_classes(jars("hive 4"), tmp_path_factory.mktemp("hive4") / "log") as classes:
        yield classes


def everything(client: Client, raw: Raw, tmp_path: Path) -> None:
    """Changes that lead to every type."""
    make_changes(client, tmp_path.as_uri())
    client.create_database(database("d"))
    changed = client.get_database("d")
    changed.parameters = {"k": "v"}
    client.alter_database("d", changed)
    client.create_table(table("t", db="d", keys="p string"))
    client.create_table(external(tmp_path.as_uri()))
    client.add_partitions([partition([value], of="t", db="d") for value in ("1", "é 2")])
    client.create_function(function())
    client.update_table_column_statistics(statistics("t"))
    client.update_partition_column_statistics(statistics("t", "p=1"))
    client.delete_table_column_statistics("d", "t", "a")
    client.delete_partition_column_statistics("d", "t", "p=1", None)
    files = ttypes.InsertEventRequestData(filesAdded=["file:/f1"])
    write = ttypes.WriteNotificationLogRequest(
        txnId=7, writeId=2, db="d", table="t", fileInfo=files, partitionVals=["1"]
    )
    raw.call("add_write_notification_log", rqst=write)
    client.create_database(database("c"))
    raw.call("create_table_req", request=constrained_table("c"))
    raw.call("drop_constraint", req=ttypes.DropConstraintRequest(dbname="c", tablename="t", constraintname="u1"))


def told_by(client: Any, start: int) -> list[Any]:
    """As Hive's own client reads them, which checks the ids."""
    return list(client.getNextNotification(start, 1_000, None).getEvents())


@pytest.mark.parametrize("form", BY_SETTING)
def test_hive_4_reads_every_type(
    hive4: HiveJvm, catalog: Catalog, client: Client, raw: Raw, tmp_path: Path, form: str
) -> None:
    everything(client, raw, tmp_path)
    messaging = hive4.metastore.messaging
    with HmsBridge(catalog, notification_format=BY_SETTING[form]) as bridge:
        reader = hive4.client(hive4.metastore.conf.MetastoreConf.newMetastoreConf(), bridge.port)
        last = reader.getCurrentNotificationEventId().getEventId()
        events = told_by(reader, 0)
        request = hive4.metastore.api.NotificationEventsCountRequest(0, "d")
        of_database = [event for event in events if event.getDbName() == "d"]
        assert reader.getNotificationEventsCount(request).getEventsCount() == len(of_database) < len(events)
        reader.close()
    plainly = {event.eventId: message(event) for event in client.get_next_notification(_all()).events}
    assert [event.getEventId() for event in events] == list(range(1, last + 1))
    assert {event.getEventType() for event in events} == set(OBJECTS)
    for event in events:
        deserializer = messaging.MessageFactory.getInstance(event.getMessageFormat()).getDeserializer()
        getter, objects = OBJECTS[event.getEventType()]
        read = getattr(deserializer, f"get{getter}Message")(event.getMessage())
        fields = plainly[event.getEventId()]
        if event.getEventType() != "UPDATE_PART_COL_STAT_EVENT":  # Hive 4.0.1 takes that for one of a table
            assert read.getEventType().toString() == event.getEventType()
        # Hive's messages of new constraints leave it to the objects to name the database.
        in_message = None if event.getEventType() in LISTS else event.getDbName()
        assert (read.getDB(), read.getTimestamp()) == (in_message, event.getEventTime())
        for object_getter, name in objects:
            check_object(hive4, getattr(read, object_getter)(), fields[name])
        _check_fields(event.getEventType(), read, fields, hive4)


def check_object(hive: HiveJvm, made: Any, text: str | None, unknown: Sequence[int] = ()) -> None:
    """The object that Hive has read has all that the text has, but for the fields ``unknown`` to this version of Hive.

    Hive sets defaults beside that.
    """
    if text is None:
        assert made is None
    else:
        told = {number: value for number, value in plain(text).items() if number not in unknown}
        assert _without_defaults(plain(hive.json_of(made)), told) == told


def _without_defaults(made: Any, told: Any) -> Any:
    if isinstance(made, dict) and isinstance(told, dict):
        return {key: _without_defaults(value, told[key]) for key, value in made.items() if key in told}
    if isinstance(made, list) and isinstance(told, list) and len(made) == len(told):
        return [_without_defaults(*pair) for pair in zip(made, told, strict=True)]
    return made


def items(iterable: Any) -> list[Any]:
    """The elements of an Iterable of Java."""
    return [] if iterable is None else list(iterable.iterator())


def _check_fields(kind: str, read: Any, fields: dict[str, Any], hive: HiveJvm) -> None:
    """What is no Thrift object, or a list of them."""
    if kind in LISTS:
        getter, name = LISTS[kind]
        for made, text in zip(getattr(read, getter)(), fields[name], strict=True):
            check_object(hive, made, text)
    if kind == "DROP_CONSTRAINT":
        assert (read.getTable(), read.getConstraint()) == ("t", "u1")
    if kind in ("CREATE_TABLE", "INSERT", "ACID_WRITE_EVENT"):
        assert items(read.getFiles()) == fields["files"]
    if kind in ("CREATE_TABLE", "ALTER_TABLE", "DROP_TABLE", "ADD_PARTITION", "DROP_PARTITION", "INSERT"):
        assert (read.getTable(), read.getTableType()) == (fields["table"], fields["tableType"])
    if kind in ("ALTER_TABLE", "ALTER_PARTITION"):
        assert (read.getIsTruncateOp(), read.getWriteId()) == (False, -1)
    if kind == "ALTER_PARTITION":
        assert dict(read.getKeyValues()) == fields["keyValues"]
    if kind in ("ADD_PARTITION", "DROP_PARTITION"):
        assert [dict(one) for one in read.getPartitions()] == fields["partitions"]
    if kind == "ADD_PARTITION":
        _check_partitions(hive, read, fields)
        files = [(one.getPartitionName(), items(one.getFiles())) for one in items(read.getPartitionFilesIter())]
        assert files == [(one["partitionName"], one["files"]) for one in fields["partitionFiles"]]
    if kind == "INSERT":
        assert read.isReplace() == (fields["replace"] == "true")
    if kind == "DROP_FUNCTION":
        assert read.getFunctionName() == fields["functionName"]
    if kind == "UPDATE_PART_COL_STAT_EVENT":
        assert list(read.getPartVals()) == fields["partVals"]
    if kind.startswith("DELETE_"):
        assert read.getColName() == fields["colName"]
    if kind == "DELETE_PART_COL_STAT_EVENT":
        assert (read.getPartName(), list(read.getPartValues())) == (fields["partName"], fields["partValues"])
    if kind == "ACID_WRITE_EVENT":
        assert (read.getTxnId(), read.getWriteId(), read.getPartition()) == (7, 2, "p=1")


def _check_partitions(hive: HiveJvm, read: Any, fields: dict[str, Any]) -> None:
    for made, text in zip(items(read.getPartitionObjs()), fields["partitionListJson"], strict=True):
        check_object(hive, made, text)


def test_hive_4_sees_that_events_are_missing(
    hive4: HiveJvm, catalog: Catalog, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "EVENTS_A_MARK", 5)
    for number in range(20):
        client.create_database(database(f"d{number}"))
    trimmed = LogUpkeep(catalog.store, catalog.clock, EventRetention(ms=10**9, bytes=2_000)).round()["hive"]
    with HmsBridge(catalog) as bridge:
        reader = hive4.client(hive4.metastore.conf.MetastoreConf.newMetastoreConf(), bridge.port)
        with pytest.raises(Py4JJavaError, match="Notification events are missing in the meta store"):
            told_by(reader, 3)
        assert len(told_by(reader, trimmed)) == 21 - trimmed
        request = hive4.metastore.api.NotificationEventRequest(3)
        gaps = reader.getNextNotification(request, True, None).getEvents()
        assert [event.getEventId() for event in gaps] == list(range(trimmed + 1, 22))
        reader.close()


def test_hive_4_tells_of_an_insert(hive4: HiveJvm, hms: HmsBridge, client: Client) -> None:
    client.create_table(table("t", keys="p string"))
    client.add_partitions([partition(["1"], of="t")])
    api = hive4.metastore.api
    data = api.InsertEventRequestData(hive4.list_of(["file:/f"]))
    data.setReplace(False)
    request = api.FireEventRequest(True, api.FireEventRequestData.insertData(data))
    request.setDbName("default")
    request.setTableName("t")
    request.setPartitionVals(hive4.list_of(["1"]))
    writer = hive4.client(hive4.metastore.conf.MetastoreConf.newMetastoreConf(), hms.port)
    assert list(writer.fireListenerEvent(request).getEventIds()) == [4]
    (event,) = told_by(writer, 3)
    writer.close()
    told = message(_Named(event.getMessage()))
    assert (event.getEventType(), told["replace"], told["files"]) == ("INSERT", "false", ["file:/f###"])


class _Named:
    def __init__(self, text: str) -> None:
        self.message = text


def test_hive_2_reads_its_types(hms: HmsBridge, client: Client, tmp_path: Path) -> None:
    make_changes(client, tmp_path.as_uri())
    with hive_classes([SPARK_JARS / "*"], tmp_path / "log") as hive:
        reader = hive.client(hive.hive.conf.HiveConf(), hms.port)
        events = told_by(reader, 1)
        assert reader.getCurrentNotificationEventId().getEventId() == events[-1].getEventId()
        reader.close()
        deserializer = hive.metastore.messaging.MessageFactory.getInstance().getDeserializer()
        assert {event.getEventType() for event in events} == set(IN_HIVE_2)
        for event in events:
            read = getattr(deserializer, f"get{OBJECTS[event.getEventType()][0]}Message")(event.getMessage())
            fields = message(_Named(event.getMessage()))
            assert (read.getDB(), read.getTimestamp()) == (event.getDbName(), event.getEventTime())
            for getter, name in IN_HIVE_2[event.getEventType()]:
                made = getattr(read, getter)()
                check_object(hive, made, fields[name], NOT_IN_HIVE_2[made.getClass().getSimpleName()])
            if event.getEventType() == "INSERT":
                assert dict(read.getPartitionKeyValues()) == fields["partKeyVals"]
                assert items(read.getFiles()) == fields["files"]
            if event.getEventType() == "ADD_PARTITION":
                _check_partitions(hive, read, fields)


def test_hive_s_own_metastore_tells_the_same(client: Client, tmp_path: Path) -> None:
    """The same types in the same order, with the same names, and with all that Hive's messages have."""
    types = make_changes(client, (tmp_path / "ours").as_uri())
    ours = client.get_next_notification(h.NotificationEventRequest(1, 1_000)).events
    listener = {
        "hive.metastore.transactional.event.listeners": "org.apache.hive.hcatalog.listener.DbNotificationListener"
    }
    with (
        hive_metastore(tmp_path / "hive", settings=listener, jars=jars("hive 2.3 listener")) as port,
        connect_peer(port) as peer,
    ):
        make_changes(peer, (tmp_path / "theirs").as_uri())
        theirs = peer.get_next_notification(_all()).events
        assert peer.get_next_notification(h.NotificationEventRequest(99, 1)).events == []
    assert [event.eventType for event in theirs] == types
    assert [_named(event) for event in ours] == [_named(event) for event in theirs]
    for our, their in zip(ours, theirs, strict=True):
        assert message(their).keys() <= message(our).keys()
        assert comparable(message(our), message(their)) == comparable(message(their), message(our))


def _all() -> h.NotificationEventRequest:
    return h.NotificationEventRequest(0, 1_000)


def _named(event: Any) -> tuple[str, str | None, str | None]:
    return event.eventType, event.dbName, event.tableName


VOLATILE = ("timestamp", "files")
# What Hive computes (statistics), adds (skewed columns), or names after the place of its warehouse.
PARAMETERS = ("transient_lastDdlTime", "numFiles", "totalSize", "numRows", "rawDataSize", "COLUMN_STATS_ACCURATE")


def comparable(fields: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The fields that the other message has, too, without times and places."""
    made: dict[str, Any] = {}
    for name in fields.keys() & other.keys():
        value = fields[name]
        if name in VOLATILE:
            continue
        if name.endswith("Json"):
            kind = "partition" if name.startswith("partition") else "table" if "table" in name else "other"
            texts = value if isinstance(value, list) else [value]
            value = [_stripped(plain(text), kind) for text in texts]
        made[name] = value
    return made


def _stripped(struct: dict[int, Any], kind: str) -> dict[int, Any]:
    if kind == "other":  # a function; 6: the time of creation, 9: the catalog, which Hive 2.3 does not have
        return {number: value for number, value in struct.items() if number not in (6, 9)}
    storage, parameters, plain_fields = {"table": (7, 9, (1, 2, 3, 8, 12)), "partition": (6, 7, (1, 2, 3))}[kind]
    kept = {number: struct.get(number) for number in plain_fields}
    kept[storage] = {number: struct[storage].get(number) for number in (1, 3, 4, 5, 6, 7, 8, 9, 10)}
    kept[parameters] = {key: text for key, text in struct[parameters].items() if key not in PARAMETERS}
    return kept
