"""Tables as notifications tell them: serialized Thrift structs, and their text in Thrift's JSON protocol.

An event of a table's partitions, statistics or files does not hold the table's definition. Its notification tells the
definition that an earlier notification of the same answer has told, or else the one that the table has when the
notification is made, in both cases with the names that the table had at the event.

A lake table is told as a plain external parquet table, partitioned as it is itself: that is what the readers of
notifications understand. Nothing of it depends on how the facade shows lake tables to Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from lakemark_core.messages.types import schema_from_proto
from lakemark_core.types import Schema
from lakemark_hms.lake.tables import SCHEMA_PARAMETER, hive_columns, parquet_storage
from lakemark_hms.notifications.thrift_json import struct_json
from lakemark_hms.objects import EXTERNAL, storage_of, stored_type, with_names
from lakemark_hms.services import Services
from lakemark_hms.wire.codec import decode_struct, encode_struct
from lakemark_proto.v1.catalog_pb2 import Table
from lakemark_proto.v1.events_pb2 import Event
from lakemark_server.catalog import definitions
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.catalog.warehouse_records import HiveTable
from lakemark_server.file_index.cache import ByteLru
from lakemark_thrift import ttypes

_EXTERNAL_PARAMETER: Final = "EXTERNAL"
_TEXTS_BYTES_MAX: Final = 8 << 20


class TableTexts:
    """Thread-safe. Texts of tables by their structs: most tables are told many times before they change."""

    def __init__(self) -> None:
        self._texts: ByteLru[bytes, str] = ByteLru(_TEXTS_BYTES_MAX, lambda text: 2 * len(text))

    def of(self, raw: bytes) -> str:
        """The struct in Thrift's JSON protocol."""
        text = self._texts.get(raw)
        if text is None:
            text = struct_json(raw, ttypes.Table.thrift_spec)
            self._texts.put(raw, text)
        return text


class ToldTable:
    """A table as a notification tells it: the struct, and its text in Thrift's JSON protocol."""

    def __init__(self, raw: bytes, text: str) -> None:
        self.raw = raw
        self.text = text

    @cached_property
    def hive_type(self) -> str:
        return stored_type(self.raw)

    @cached_property
    def columns(self) -> list[str]:
        """The names of the partition columns."""
        return [key.name or "" for key in decode_struct(ttypes.Table, self.raw).partitionKeys or ()]

    @cached_property
    def storage(self) -> bytes:
        """The serialized StorageDescriptor; b"" if there is none."""
        return storage_of(self.raw)


class ToldTables:
    """Looks tables up, each only once: for the notifications of one call. Not thread-safe."""

    def __init__(self, services: Services, texts: TableTexts) -> None:
        self._services = services
        self._texts = texts
        self._known: dict[tuple[int, str, str, int], ToldTable] = {}
        self._told: dict[int, bytes] = {}
        self._now: dict[tuple[int, str, str], HiveTable | None] = {}

    def remember(self, table_id: int, hive: bytes) -> None:
        """Notes what an event has told of a warehouse table, for the notifications behind it."""
        self._told[table_id] = hive
        self._known = {key: told for key, told in self._known.items() if key[0] != table_id}

    def warehouse(self, event: Event, columns: Sequence[str] = ()) -> ToldTable:
        """The warehouse table of an event. If it was dropped since, little but its names and ``columns`` are told."""
        key = (event.table_id, event.database, event.table, 0)
        told = self._known.get(key)
        if told is None:
            told = self._known[key] = self._warehouse(event, columns)
        return told

    def _warehouse(self, event: Event, columns: Sequence[str]) -> ToldTable:
        hive = self._told.get(event.table_id)
        if hive is None:
            table = self.now(event)
            if table is None:
                return self._made(_dropped(event.database, event.table, columns))
            hive = table.record.hive
        return self.of_struct(with_names(hive, event.database, event.table))

    def now(self, event: Event) -> HiveTable | None:
        """The warehouse table of an event as it is now, under the names that it had; None if it was dropped."""
        key = (event.table_id, event.database, event.table)
        if key not in self._now:
            self._now[key] = self._services.warehouse.tables.by_id(
                event.table_id, event.catalog, event.database, event.table
            )
        return self._now[key]

    def committed(self, event: Event) -> ToldTable:
        """The lake table of a commit, with the schema of that commit."""
        key = (event.table_id, event.database, event.table, event.commit.schema_id)
        told = self._known.get(key)
        if told is None:
            table = self._services.catalog.lake_table_by_id(event.table_id, event.commit.schema_id)
            told = self._known[key] = self._made(self._committed(event, table))
        return told

    def _committed(self, event: Event, table: LakeTable | None) -> ttypes.Table:
        if table is None:
            return _dropped(event.database, event.table)
        definition = definitions.lake_table(table, 0)
        definition.name.database, definition.name.table = event.database, event.table
        return self._external(definition, table.schema)

    def lake(self, table: Table) -> ToldTable:
        """A lake table as an event tells it."""
        return self._made(self._external(table, schema_from_proto(table.schema)))

    def of_struct(self, raw: bytes) -> ToldTable:
        """A warehouse table as an event tells it."""
        return ToldTable(raw, self._texts.of(raw))

    def _made(self, table: ttypes.Table) -> ToldTable:
        return self.of_struct(encode_struct(table))

    def _external(self, table: Table, schema: Schema) -> ttypes.Table:
        parameters = dict(table.properties) | {
            _EXTERNAL_PARAMETER: "TRUE",
            SCHEMA_PARAMETER: str(schema.schema_id),
        }
        if table.comment:
            parameters["comment"] = table.comment
        location = self._services.for_engines(table.location)
        return ttypes.Table(
            tableName=table.name.table,
            dbName=table.name.database,
            owner=table.owner,
            createTime=table.created_ms // 1_000,
            lastAccessTime=0,
            retention=0,
            sd=parquet_storage(hive_columns(schema.data_columns), location),
            partitionKeys=hive_columns(schema.partition_fields),
            parameters=parameters,
            tableType=EXTERNAL,
            catName=table.name.catalog,
        )


def _dropped(database: str, name: str, columns: Sequence[str] = ()) -> ttypes.Table:
    """A table of which nothing else is known any more; an external one, of which no reader copies or deletes files."""
    return ttypes.Table(
        tableName=name,
        dbName=database,
        createTime=0,
        lastAccessTime=0,
        retention=0,
        sd=parquet_storage([], ""),
        partitionKeys=[ttypes.FieldSchema(name=column, type="string") for column in columns],
        parameters={_EXTERNAL_PARAMETER: "TRUE"},
        tableType=EXTERNAL,
    )
