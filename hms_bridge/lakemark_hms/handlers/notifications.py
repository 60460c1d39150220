"""The notification log, and what engines tell of the files that they wrote."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Final

from lakemark_core.errors import InvalidArgument
from lakemark_hms.given import given_struct
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.names import DatabaseName, database_name
from lakemark_hms.notifications.log import NOTIFICATIONS_MAX, NotificationLog, Wanted
from lakemark_hms.partition_objects import values_of
from lakemark_hms.services import Services
from lakemark_hms.wire.codec import encode_struct
from lakemark_hms.wire.cut import LIST, STRUCT, Cut, find, patch
from lakemark_hms.wire.dispatch import Call
from lakemark_hms.wire.splice import reply_struct, struct, struct_list_field
from lakemark_proto.v1.events_pb2 import ClientNote
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog.client_notes import INSERTED, REFRESHED, WRITTEN
from lakemark_server.catalog.names import DEFAULT_CATALOG
from lakemark_server.catalog.warehouse_records import HiveTable
from lakemark_thrift.ttypes import (
    CurrentNotificationEventId,
    FireEventResponse,
    InsertEventRequestData,
    InsertEventRequestDataHive2,
    NotificationEventsCountResponse,
    WriteNotificationLogBatchResponse,
    WriteNotificationLogRequest,
    WriteNotificationLogResponse,
)

# Field ids.
_REQUEST, _DATA, _INSERT, _INSERTS = 1, 2, 1, 2
_FILES, _FILE_INFO = 2, 5

_ALL_DATABASES: Final = "*"

Noted = tuple[HiveTable, ClientNote]


class Notifications(Subject, title="Notifications"):
    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._log = NotificationLog(services, services.notification_format)

    # -- read

    @method("get_next_notification", Rank.READ)
    def after(self, call: Call) -> bytes:
        request = call.args.rqst
        wanted = Wanted(
            database=database_name(request.dbName).name,
            tables=frozenset(name.lower() for name in request.tableNames or ()),
            types=frozenset(request.eventTypeList or ()),
            skipped=frozenset(request.eventTypeSkipList or ()),
        )
        asked = request.maxEvents or 0
        count_max = min(asked, NOTIFICATIONS_MAX) if asked > 0 else NOTIFICATIONS_MAX
        structs = self._log.after(_catalog(request.catName), request.lastEvent or 0, wanted, count_max)
        return reply_struct(call.name, call.seqid, struct(struct_list_field(1, structs)))

    @method("get_current_notificationEventId", Rank.READ)
    def current(self, _call: Call) -> CurrentNotificationEventId:
        """Of the default catalog: the request names none."""
        return CurrentNotificationEventId(eventId=self._log.last(DEFAULT_CATALOG))

    @method("get_notification_events_count", Rank.READ)
    def count(self, call: Call) -> NotificationEventsCountResponse:
        """As Hive: those of no database count with those of any; ``*`` asks for all databases."""
        request = call.args.rqst
        database = database_name(request.dbName, request.catName)
        wanted = Wanted(
            database="" if database.name == _ALL_DATABASES else database.name,
            tables=frozenset(name.lower() for name in request.tableNames or ()),
            or_no_database=True,
        )
        count = self._log.count(database.catalog, request.fromEventId or 0, wanted, request.toEventId)
        return NotificationEventsCountResponse(count if request.limit is None else min(count, max(request.limit, 0)))

    # -- tell

    @method("fire_listener_event", Rank.WRITE)
    def fire(self, call: Call) -> FireEventResponse:
        """Tells what a client has done to a warehouse table. Answers the ids of the notifications.

        Of lake tables nothing is told: their commits are events anyway.
        """
        request = call.args.rqst
        named = self._services.find(database_name(request.dbName, request.catName), request.tableName)
        if not request.successful or named.hive is None:
            return FireEventResponse(eventIds=[])
        table, partition = named.hive, request.partitionVals
        if request.data is not None and request.data.refreshEvent is not None:
            partitions = request.batchPartitionValsForRefresh or [partition or []]
            notes = [(table, _note(REFRESHED, values)) for values in partitions]
        else:
            inserts = _inserts(call)
            if not inserts:
                raise InvalidArgument(
                    "the event that is to be told has no data of an INSERT and asks for no refresh; clients can tell "
                    "no other events"
                )
            notes = [(table, _insert_note(one, partition)) for one in inserts]
        return FireEventResponse(eventIds=self._tell(notes))

    @method("add_write_notification_log", Rank.WRITE)
    def written(self, call: Call) -> WriteNotificationLogResponse:
        sent = given_struct(call, WriteNotificationLogRequest, _REQUEST)
        self._tell([self._write_note(sent, database_name(sent.value.db), sent.value.table)])
        return WriteNotificationLogResponse()

    @method("add_write_notification_log_in_batch", Rank.WRITE)
    def written_in_batch(self, call: Call) -> WriteNotificationLogBatchResponse:
        request = call.args.rqst
        database = database_name(request.db, request.catalog)
        sent = call.cut(WriteNotificationLogRequest, _REQUEST, 4)
        self._tell([self._write_note(one, database, request.table) for one in sent])
        return WriteNotificationLogBatchResponse()

    def _write_note(self, sent: Cut[WriteNotificationLogRequest], database: DatabaseName, table: str | None) -> Noted:
        request = sent.value
        if request.fileInfo is None:
            raise InvalidArgument("a write that is to be told has no files")
        head = encode_struct(request.fileInfo)
        hive = patch(sent.raw, {_FILE_INFO: (STRUCT, patch(head, {_FILES: None}))})
        values = request.partitionVals or request.fileInfo.partitionVal
        note = _note(WRITTEN, values, request.fileInfo.filesAdded or (), hive)
        return self._services.hive_table(database, table), note

    def _tell(self, notes: Sequence[Noted]) -> list[int]:
        """The ids of the notifications. Raises PartitionNotFound."""
        if not notes:
            return []
        for table, note in notes:
            if note.partition_values:
                self._services.warehouse.partitions.get(table, tuple(note.partition_values))
        catalog = notes[0][0].database.catalog
        since = self._log.end(catalog)
        request_id = f"note-{uuid.uuid4().hex}"
        self._services.warehouse.notes.tell(notes, request_id)
        return self._log.ids_of(catalog, since, request_id)


def _catalog(name: str | None) -> str:
    return (name or DEFAULT_CATALOG).lower()


def _inserts(call: Call) -> list[Cut[InsertEventRequestData]]:
    """What was inserted, also as Hive 2 sends it."""
    message, body = call.message.data, call.message.header.body
    for field in (_INSERT, _INSERTS):
        path = (_REQUEST, _DATA, field)
        if find(message, body, path) is None:
            continue
        first = find(message, body, (*path, 1)) if field == _INSERT else None
        if first is not None and first[0] == LIST:
            old = [one.value for one in call.cut(InsertEventRequestDataHive2, *path)]
            new = [
                InsertEventRequestData(filesAdded=o.filesAdded, filesAddedChecksum=o.filesAddedChecksum) for o in old
            ]
            return [Cut(one, encode_struct(one)) for one in new]
        return call.cut(InsertEventRequestData, *path)
    return []


def _insert_note(sent: Cut[InsertEventRequestData], partition: Iterable[str] | None) -> ClientNote:
    data = sent.value
    hive = patch(sent.raw, {_FILES: None})
    return _note(INSERTED, data.partitionVal or partition, data.filesAdded or (), hive)


def _note(what: str, values: Iterable[str] | None, files: Iterable[str] = (), hive: bytes = b"") -> ClientNote:
    return ClientNote(what=what, partition_values=values_of(list(values or ())), files=files, hive=hive)
