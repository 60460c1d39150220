"""The message of a notification: the JSON that Hive's own listener writes for the same change (format json-0.2).

The names of the fields and their order are those of Hive 4; Hive 2.3 and 3 read the ones they know. Thrift objects are
texts of Thrift's JSON protocol inside the JSON. What Hive lists of a directory (``files`` of a new table, of added
partitions) is empty: the service lists no directories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Final

from google.protobuf import json_format

from lakemark_core.errors import PartitionNotFound
from lakemark_core.types import partition_name
from lakemark_core.types.partitions import parse_partition_name
from lakemark_hms.constraints import (
    CHECK,
    DEFAULT,
    FOREIGN_KEY,
    NOT_NULL,
    PRIMARY_KEY,
    UNIQUE,
    Kind,
    told_structs,
)
from lakemark_hms.notifications import kinds
from lakemark_hms.notifications.formats import Message
from lakemark_hms.notifications.tables import TableTexts, ToldTable, ToldTables
from lakemark_hms.notifications.thrift_json import struct_json
from lakemark_hms.objects import TableNames, database_struct
from lakemark_hms.partition_objects import ending_of, full_struct, undetailed
from lakemark_hms.services import Services
from lakemark_hms.wire.codec import decode_struct, encode_struct
from lakemark_hms.wire.cut import STRING
from lakemark_hms.wire.splice import string_value, struct, struct_field, struct_list_field, value_field
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_proto.store.v1.warehouse_pb2 import ConstraintRecord
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1 import timeline_pb2
from lakemark_proto.v1.catalog_pb2 import WAREHOUSE, Database, Table
from lakemark_proto.v1.events_pb2 import Event, PartitionState
from lakemark_server.catalog.warehouse_records import Values
from lakemark_thrift import ttypes

_ENGINE: Final = "hive"
_NO_WRITE_ID: Final = -1
_REPLACING: Final = frozenset(
    {timeline_pb2.OVERWRITE_PARTITIONS, timeline_pb2.OVERWRITE_TABLE, timeline_pb2.RESTORE_VERSION}
)


class Messages:
    """Makes the messages of one call. Not thread-safe."""

    def __init__(self, services: Services, texts: TableTexts) -> None:
        self._services = services
        self._tables = ToldTables(services, texts)

    def of(self, event: Event, event_type: str) -> Message:
        """The message of an event that is told as this type."""
        make = _MAKERS.get(event_type, Messages._own)
        message = make(self, event)
        if event.table_change.hive_after:
            self._tables.remember(event.table_id, event.table_change.hive_after)
        return message

    # -- databases and functions

    def _database(self, event: Event) -> Message:
        change = event.database_change
        created = change.HasField("after")
        known, hive = (change.after, change.hive_after) if created else (change.before, change.hive_before)
        return _head() | {
            "db": event.database,
            "dbJson": self._database_text(known, hive),
            "timestamp": _seconds(event),
        }

    def _altered_database(self, event: Event) -> Message:
        change = event.database_change
        return _head() | {
            "db": event.database,
            "dbObjBeforeJson": self._database_text(change.before, change.hive_before),
            "dbObjAfterJson": self._database_text(change.after, change.hive_after),
            "timestamp": _seconds(event),
        }

    def _database_text(self, database: Database, hive: bytes) -> str:
        record = DatabaseRecord(
            catalog=database.catalog,
            name=database.name,
            description=database.description,
            properties=database.properties,
            owner=database.owner,
            hive=hive,
        )
        location = self._services.for_engines(database.location)
        return struct_json(database_struct(record, location), ttypes.Database.thrift_spec)

    def _created_function(self, event: Event) -> Message:
        text = struct_json(event.function_change.hive_after, ttypes.Function.thrift_spec)
        return _head() | {"db": event.database, "functionObjJson": text, "timestamp": _seconds(event)}

    def _dropped_function(self, event: Event) -> Message:
        return _head() | {
            "db": event.database,
            "functionName": event.function_change.name_before,
            "timestamp": _seconds(event),
        }

    # -- tables

    def _created_table(self, event: Event) -> Message:
        change = event.table_change
        table = self._told(change.after, change.hive_after)
        return self._of_table(event, table) | {"timestamp": _seconds(event), "files": []}

    def _dropped_table(self, event: Event) -> Message:
        change = event.table_change
        table = self._told(change.before, change.hive_before)
        return self._of_table(event, table) | {"timestamp": _seconds(event)}

    def _altered_table(self, event: Event) -> Message:
        change = event.table_change
        before = self._told(change.before, change.hive_before)
        after = self._told(change.after, change.hive_after)
        return _head() | {
            "db": change.before.name.database,
            "table": change.before.name.table,
            "tableType": before.hive_type,
            "tableObjBeforeJson": before.text,
            "tableObjAfterJson": after.text,
            "isTruncateOp": _flag(event.kind == pb.TABLE_TRUNCATED),
            "timestamp": _seconds(event),
            "writeId": _NO_WRITE_ID,
        }

    def _told(self, table: Table, hive: bytes) -> ToldTable:
        return self._tables.of_struct(hive) if table.kind == WAREHOUSE else self._tables.lake(table)

    def _of_table(self, event: Event, table: ToldTable) -> Message:
        return _head() | {
            "db": event.database,
            "table": event.table,
            "tableType": table.hive_type,
            "tableObjJson": table.text,
        }

    # -- partitions

    def _added_partitions(self, event: Event) -> Message:
        change = event.partitions_change
        table = self._tables.warehouse(event, change.columns)
        return self._of_table(event, table) | {
            "timestamp": _seconds(event),
            "partitions": [_key_values(change.columns, one.values) for one in change.partitions],
            "partitionListJson": [_partition(event, table, one.values, one.after) for one in change.partitions],
            "partitionFiles": [
                {"partitionName": partition_name(change.columns, one.values), "files": []} for one in change.partitions
            ],
        }

    def _dropped_partitions(self, event: Event) -> Message:
        change = event.partitions_change
        table = self._tables.warehouse(event, change.columns)
        return self._of_table(event, table) | {
            "timestamp": _seconds(event),
            "partitions": [_key_values(change.columns, one.values) for one in change.partitions],
        }

    def _altered_partition(self, event: Event) -> Message:
        columns, one = event.partitions_change.columns, event.partitions_change.partitions[0]
        table = self._tables.warehouse(event, columns)
        values_before = one.values_before or one.values
        return self._of_table(event, table) | {
            "isTruncateOp": _flag(event.kind == pb.PARTITIONS_TRUNCATED),
            "timestamp": _seconds(event),
            "writeId": _NO_WRITE_ID,
            "keyValues": _key_values(columns, values_before),
            "partitionObjBeforeJson": _partition(event, table, values_before, one.before),
            "partitionObjAfterJson": _partition(event, table, one.values, one.after),
        }

    def _partition_now(self, event: Event, table: ToldTable, values: Values) -> str:
        """The partition as it is when the notification is made."""
        hive = self._tables.now(event)
        if hive is not None:
            try:
                row = self._services.warehouse.partitions.get(hive, values)
            except PartitionNotFound:
                pass
            else:
                return struct_json(full_struct(hive, row), ttypes.Partition.thrift_spec)
        return _partition(event, table, values, PartitionState())

    # -- statistics

    def _updated_statistics(self, event: Event) -> Message:
        change = event.statistics_change
        columns, values = _place(change.partition)
        table = self._tables.warehouse(event, columns)
        description = ttypes.ColumnStatisticsDesc(
            isTblLevel=not change.partition,
            dbName=event.database,
            tableName=event.table,
            partName=change.partition or None,
            lastAnalyzed=_seconds(event),
            catName=event.catalog,
        )
        statistics = struct(
            struct_field(1, encode_struct(description)),
            struct_list_field(2, change.hive),
            value_field(STRING, 4, string_value(_ENGINE)),
        )
        of_place: Message = {"partVals": list(values)} if change.partition else {}
        return (
            {"writeId": _NO_WRITE_ID, "timestamp": _seconds(event)}
            | _head()
            | {
                "database": event.database,
                "colStatsJson": struct_json(b"".join(statistics), ttypes.ColumnStatistics.thrift_spec),
                "parameters": {},
            }
            | of_place
            | {"tableObjJson": table.text}
        )

    def _deleted_statistics(self, event: Event) -> Message:
        change = event.statistics_change
        of_place: Message = {}
        if change.partition:
            of_place = {"partName": change.partition, "partValues": list(_place(change.partition)[1])}
        return (
            {"timestamp": _seconds(event)}
            | _head()
            | {"database": event.database, "colName": change.columns[0] if len(change.columns) == 1 else None}
            | of_place
        )

    # -- constraints

    def _added_constraints(self, event: Event) -> Message:
        kind, field = _CONSTRAINTS[event.constraints_change.constraints[0].type]
        names = TableNames(event.catalog, event.database, event.table)
        texts = []
        for one in event.constraints_change.constraints:
            record = ConstraintRecord(
                kind=kind.kind, name=one.name, columns=one.columns, parent_columns=one.parent_columns, hive=one.hive
            )
            structs = told_structs(kind, names, record, one.parent_database, one.parent_table)
            texts += [struct_json(each, kind.struct.thrift_spec) for each in structs]
        return _head() | {"timestamp": _seconds(event), field: texts}

    def _dropped_constraint(self, event: Event) -> Message:
        return _head() | {
            "catName": event.catalog,
            "dbName": event.database,
            "tableName": event.table,
            "constraintName": event.constraints_change.constraints[0].name,
            "timestamp": _seconds(event),
        }

    # -- files

    def _inserted(self, event: Event) -> Message:
        if event.kind == pb.CLIENT_NOTED:
            return self._noted_insert(event)
        if event.kind == pb.COMMITTED:
            replaces = event.commit.operation in _REPLACING
            return self._insert(event, self._tables.committed(event), replaces=replaces)
        table = self._tables.warehouse(event, event.partitions_change.columns)
        return self._insert(event, table, replaces=event.kind == pb.PARTITIONS_TRUNCATED)

    def _noted_insert(self, event: Event) -> Message:
        note = event.note
        data = decode_struct(ttypes.InsertEventRequestData, note.hive)
        # Hive takes an INSERT of which nobody said so for one that replaces what was there.
        table = self._tables.warehouse(event)
        values = tuple(note.partition_values)
        told = self._insert(event, table, replaces=data.replace is not False)
        told["files"] = encoded_files(note.files, data.subDirectoryList or ())
        if values:
            told["ptnObjJson"] = self._partition_now(event, table, values)
            told["partKeyVals"] = _key_values(table.columns, values)
        return told

    def _insert(self, event: Event, table: ToldTable, *, replaces: bool = False) -> Message:
        """An INSERT of the whole table. Hive 2.3 reads ``partKeyVals`` where later releases read ``ptnObjJson``."""
        return self._of_table(event, table) | {
            "ptnObjJson": None,
            "timestamp": _seconds(event),
            "replace": _flag(replaces),
            "files": [],
            "partKeyVals": {},
        }

    def _acid_write(self, event: Event) -> Message:
        note = event.note
        request = decode_struct(ttypes.WriteNotificationLogRequest, note.hive)
        subdirectories = request.fileInfo.subDirectoryList if request.fileInfo else None
        table = self._tables.warehouse(event)
        values = tuple(note.partition_values)
        partition = partition_name(table.columns, values) if values else ""
        return (
            {"txnid": request.txnId, "writeId": request.writeId, "timestamp": _seconds(event)}
            | _head()
            | {
                "database": event.database,
                "table": event.table,
                "partition": partition,
                "tableObjJson": table.text,
                "partitionObjJson": self._partition_now(event, table, values) if values else None,
                "files": encoded_files(note.files, subdirectories or ()),
            }
        )

    def _reload(self, event: Event) -> Message:
        table = self._tables.warehouse(event)
        values = tuple(event.note.partition_values)
        return (
            {"timestamp": _seconds(event)}
            | _head()
            | {
                "db": event.database,
                "table": event.table,
                "tableObjJson": table.text,
                "ptnObjJson": self._partition_now(event, table, values) if values else None,
                "refreshEvent": "true",
            }
        )

    # -- what Hive knows nothing of

    def _own(self, event: Event) -> Message:
        told = json_format.MessageToDict(event, preserving_proto_field_name=True)
        return _head() | {
            "db": event.database or None,
            "table": event.table or None,
            "timestamp": _seconds(event),
            "event": told,
        }


_CONSTRAINTS: Final[Mapping[str, tuple[Kind, str]]] = {
    "PRIMARY_KEY": (PRIMARY_KEY, "primaryKeyListJson"),
    "FOREIGN_KEY": (FOREIGN_KEY, "foreignKeyListJson"),
    "UNIQUE": (UNIQUE, "uniqueConstraintListJson"),
    "NOT_NULL": (NOT_NULL, "notNullConstraintListJson"),
    "DEFAULT": (DEFAULT, "defaultConstraintListJson"),
    "CHECK": (CHECK, "checkConstraintListJson"),
}
"""By the type of a constraint: how it is converted, and the field of the message that lists those of this type."""

_MAKERS: Final[Mapping[str, Callable[[Messages, Event], Message]]] = {
    "CREATE_DATABASE": Messages._database,
    "ALTER_DATABASE": Messages._altered_database,
    "DROP_DATABASE": Messages._database,
    "CREATE_FUNCTION": Messages._created_function,
    "DROP_FUNCTION": Messages._dropped_function,
    "CREATE_TABLE": Messages._created_table,
    "ALTER_TABLE": Messages._altered_table,
    "DROP_TABLE": Messages._dropped_table,
    "ADD_PARTITION": Messages._added_partitions,
    "DROP_PARTITION": Messages._dropped_partitions,
    kinds.ALTER_PARTITION: Messages._altered_partition,
    "UPDATE_TBL_COL_STAT_EVENT": Messages._updated_statistics,
    "UPDATE_PART_COL_STAT_EVENT": Messages._updated_statistics,
    "DELETE_TBL_COL_STAT_EVENT": Messages._deleted_statistics,
    "DELETE_PART_COL_STAT_EVENT": Messages._deleted_statistics,
    **dict.fromkeys(kinds.OF_CONSTRAINTS.values(), Messages._added_constraints),
    "DROP_CONSTRAINT": Messages._dropped_constraint,
    kinds.INSERT: Messages._inserted,
    kinds.ACID_WRITE: Messages._acid_write,
    kinds.RELOAD: Messages._reload,
}


def encoded_files(files: Sequence[str], subdirectories: Sequence[str]) -> list[str]:
    """Files as Hive writes them where no copies of deleted files are kept: file###subdirectory."""
    return [f"{file}###{within}" for file, within in zip_longest(files, subdirectories[: len(files)], fillvalue="")]


def _head() -> Message:
    return {"server": "", "servicePrincipal": ""}


def _seconds(event: Event) -> int:
    return event.time_ms // 1_000


def _flag(value: bool) -> str:
    """As Hive writes truth into a message."""
    return "true" if value else "false"


def _key_values(columns: Sequence[str], values: Sequence[str]) -> dict[str, str]:
    return dict(zip(columns, values, strict=False))


def _place(name: str) -> tuple[list[str], list[str]]:
    """The columns and values of a partition's name; none for that of a whole table."""
    pairs = parse_partition_name(name) if name else []
    return [column for column, _ in pairs], [value for _, value in pairs]


def _partition(event: Event, table: ToldTable, values: Iterable[str], state: PartitionState) -> str:
    """The partition as an event tells it. What it does not tell is that of the table."""
    if state.head:
        struct_open = state.head + string_value(state.location) + state.tail if state.located else state.head
    else:
        struct_open = undetailed(tuple(values), _seconds(event), table.storage, state.location)
    return struct_json(struct_open + ending_of(event.database, event.table), ttypes.Partition.thrift_spec)
