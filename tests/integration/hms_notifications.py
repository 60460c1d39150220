"""Changes that lead to every type of notification which Hive 2.3 knows, made with a client of Hive 2.3."""

from __future__ import annotations

import json
from typing import Any

from hmsclient.genthrift.hive_metastore import ttypes as h

from tests.integration.hms_objects import database, partition, table


def make_changes(client: Any, warehouse: str) -> list[str]:
    """Makes changes in a new database ``d``, all of which is dropped again. Returns the types to be told, in order.

    ``warehouse``: a URI below which the client may place tables.
    """
    client.create_database(database("d", description='says "hé"', parameters={"team": "blue"}))
    client.create_table(table("t", db="d", keys="p string"))
    client.create_table(external(warehouse))
    changed = client.get_table("d", "e")
    changed.parameters["colour"] = "red"
    client.alter_table("d", "e", changed)
    changed.tableName = "e2"
    client.alter_table("d", "e", changed)
    client.add_partitions([partition([value], of="t", db="d") for value in ("1", "2")])
    row = client.get_partition("d", "t", ["1"])
    row.parameters["k"] = "v"
    client.alter_partition("d", "t", row)
    client.drop_partition("d", "t", ["2"], True)
    client.create_function(function())
    client.drop_function("d", "f")
    client.fire_listener_event(inserted("e2", ["file:/f1", "file:/f2"]))
    client.fire_listener_event(inserted("t", ["file:/f3"], ["1"]))
    client.drop_table("d", "t", True)
    client.drop_table("d", "e2", False)
    client.drop_database("d", True, False)
    return [
        "CREATE_DATABASE",
        "CREATE_TABLE",
        "CREATE_TABLE",
        "ALTER_TABLE",
        "ALTER_TABLE",
        "ADD_PARTITION",
        "ALTER_PARTITION",
        "DROP_PARTITION",
        "CREATE_FUNCTION",
        "DROP_FUNCTION",
        "INSERT",
        "INSERT",
        "DROP_TABLE",
        "DROP_TABLE",
        "DROP_DATABASE",
    ]


def external(warehouse: str) -> h.Table:
    return table(
        "e", db="d", location=f"{warehouse}/outside", kind="EXTERNAL_TABLE", parameters={"EXTERNAL": "TRUE", "a": "1"}
    )


def function() -> h.Function:
    uri = h.ResourceUri(h.ResourceType.JAR, "file:/x.jar")
    return h.Function("f", "d", "x.Y", "owner", h.PrincipalType.USER, 0, h.FunctionType.JAVA, [uri])


def inserted(name: str, files: list[str], values: list[str] | None = None, db: str = "d") -> h.FireEventRequest:
    checksums = ["0" for _ in files]  # Hive 2.3's own listener does not do without
    data = h.FireEventRequestData(insertData=h.InsertEventRequestData(filesAdded=files, filesAddedChecksum=checksums))
    return h.FireEventRequest(successful=True, data=data, dbName=db, tableName=name, partitionVals=values)


def statistics(name: str, partition_name: str | None = None, db: str = "d") -> h.ColumnStatistics:
    longs = h.LongColumnStatsData(lowValue=-5, highValue=7, numNulls=1, numDVs=3)
    doubles = h.DoubleColumnStatsData(lowValue=0.5, highValue=1e300, numNulls=0, numDVs=2)
    return h.ColumnStatistics(
        h.ColumnStatisticsDesc(partition_name is None, db, name, partition_name),
        [
            h.ColumnStatisticsObj("a", "int", h.ColumnStatisticsData(longStats=longs)),
            h.ColumnStatisticsObj("b", "double", h.ColumnStatisticsData(doubleStats=doubles)),
        ],
    )


def message(event: Any) -> dict[str, Any]:
    """The message of a notification as JSON."""
    parsed: dict[str, Any] = json.loads(event.message)
    return parsed


def plain(text: str) -> Any:
    """Text of Thrift's JSON protocol as plain values: structs by field id, lists, maps."""
    return _plain_struct(json.loads(text))


def _plain_struct(fields: dict[str, dict[str, Any]]) -> dict[int, Any]:
    return {int(number): _plain(*typed) for number, value in fields.items() for typed in value.items()}


def _plain(kind: str, value: Any) -> Any:
    if kind == "rec":
        return _plain_struct(value)
    if kind in ("lst", "set"):
        return [_plain(value[0], one) for one in value[2:]]
    if kind == "map":
        return {key: _plain(value[1], one) for key, one in value[3].items()}
    return value
