"""Converts databases and tables between the Thrift structs of clients and the records of the catalog.

Structs are stored as clients sent them, with single fields set (``wire.cut.patch``), so that fields survive which only
other releases know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from lakemark_core import storage
from lakemark_hms.wire.codec import decode_struct, encode_struct
from lakemark_hms.wire.cut import I32, I64, LIST, MAP, STRING, STRUCT, Cut, fields, patch
from lakemark_hms.wire.heads import TableHead
from lakemark_hms.wire.splice import (
    i32_value,
    i64_value,
    string_list_value,
    string_map_value,
    string_value,
    struct_list_value,
)
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_server.catalog.warehouse_tables import TableDefinition
from lakemark_server.grants.objects import PUBLIC
from lakemark_thrift.ttypes import Database, PrincipalType, SkewedInfo, Table

DDL_TIME: Final = "transient_lastDdlTime"
MANAGED, EXTERNAL, VIEW, MATERIALIZED = "MANAGED_TABLE", "EXTERNAL_TABLE", "VIRTUAL_VIEW", "MATERIALIZED_VIEW"

# Field ids.
_DATABASE_NAME, _DATABASE_DESCRIPTION, _DATABASE_LOCATION, _DATABASE_PARAMETERS, _DATABASE_PRIVILEGES = 1, 2, 3, 4, 5
_DATABASE_OWNER_TYPE, _DATABASE_CATALOG, _DATABASE_CREATE_TIME, _DATABASE_MANAGED = 7, 8, 9, 10

_NAME, _DB_NAME, _CREATE_TIME, _SD, _PARAMETERS, _TYPE, _PRIVILEGES = 1, 2, 4, 7, 9, 12, 13
_PARTITION_KEYS, _REWRITE, _CREATION_METADATA, _CATALOG, _OWNER_TYPE, _WRITE_ID, _ID = 8, 15, 16, 17, 18, 19, 25
_SD_LOCATION, _SD_SERDE, _SD_BUCKETS, _SD_SORTED, _SD_PARAMETERS, _SD_SKEWED = 2, 7, 8, 9, 10, 11
_SERDE_PARAMETERS = 3

Change = tuple[int, bytes] | None

_NO_STRUCTS: Final = (LIST, struct_list_value(()))
_DEFAULTS: Final[Mapping[int, Change]] = {
    _PARTITION_KEYS: _NO_STRUCTS,
    _OWNER_TYPE: (I32, i32_value(PrincipalType.USER)),
    _WRITE_ID: (I64, i64_value(0)),
}
_SD_DEFAULTS: Final[Mapping[int, Change]] = {
    _SD_BUCKETS: (LIST, string_list_value(())),
    _SD_SORTED: _NO_STRUCTS,
    _SD_PARAMETERS: (MAP, string_map_value({})),
    _SD_SKEWED: (STRUCT, encode_struct(SkewedInfo([], [], {}))),
}
_DATABASE_DEFAULTS: Final[Mapping[int, Change]] = {_DATABASE_PARAMETERS: (MAP, string_map_value({}))}
_SERDE_DEFAULTS: Final[Mapping[int, Change]] = {_SERDE_PARAMETERS: (MAP, string_map_value({}))}


def database_struct(record: DatabaseRecord, uri: str) -> bytes:
    """The serialized Thrift Database. ``uri``: its location as engines read it."""
    if record.hive:
        return patch(
            record.hive,
            {
                _DATABASE_NAME: (STRING, string_value(record.name)),
                _DATABASE_LOCATION: (STRING, string_value(uri)),
                _DATABASE_CATALOG: (STRING, string_value(record.catalog)),
                _DATABASE_CREATE_TIME: (I32, i32_value(record.created_ms // 1000)),
            },
        )
    owner_type = PrincipalType.ROLE if record.owner == PUBLIC else PrincipalType.USER
    return encode_struct(
        Database(
            name=record.name,
            description=record.description,
            locationUri=uri,
            parameters=dict(record.properties),
            ownerName=record.owner or None,
            ownerType=owner_type if record.owner else None,
            catalogName=record.catalog,
            createTime=record.created_ms // 1000 or None,
        )
    )


def database_record(sent: Cut[Database], catalog: str, name: str) -> DatabaseRecord:
    """The record of the database that a client sent. The catalog fills in id, time and a missing location."""
    database = sent.value
    return DatabaseRecord(
        catalog=catalog,
        name=name,
        description=database.description or "",
        location=database.locationUri or "",
        properties=database.parameters or {},
        owner=database.ownerName or "",
        hive=patch(sent.raw, {_DATABASE_PRIVILEGES: None} | _left_out(sent.raw, _DATABASE_DEFAULTS)),
    )


def altered_database(old: DatabaseRecord, sent: Cut[Database]) -> DatabaseRecord:
    """What ``ALTER DATABASE`` makes of a database, as in Hive: the name stays, and what must not be empty."""
    before, new = decode_struct(Database, database_struct(old, old.location)), sent.value
    kept: dict[int, Change] = {}
    if not new.description and before.description:
        kept[_DATABASE_DESCRIPTION] = (STRING, string_value(before.description))
    if new.ownerType is None and before.ownerType is not None:
        kept[_DATABASE_OWNER_TYPE] = (I32, i32_value(before.ownerType))
    if not new.managedLocationUri and before.managedLocationUri:
        kept[_DATABASE_MANAGED] = (STRING, string_value(before.managedLocationUri))
    raw = patch(sent.raw, kept)
    return database_record(Cut(decode_struct(Database, raw), raw), old.catalog, old.name)


def is_true(parameters: Mapping[str, str], name: str) -> bool:
    return parameters.get(name, "").strip().lower() == "true"


def table_type(table: Table) -> str:
    """The type that a table gets. As in Hive, the parameter EXTERNAL decides for plain tables."""
    sent = table.tableType or MANAGED
    if sent not in (MANAGED, EXTERNAL):
        return sent
    return EXTERNAL if is_true(table.parameters or {}, "EXTERNAL") else MANAGED


def owns_data(hive_type: str, parameters: Mapping[str, str]) -> bool:
    """Whether dropping the table deletes its data."""
    if hive_type == EXTERNAL:
        return is_true(parameters, "external.table.purge")
    return hive_type != VIEW


def partition_columns(table: Table) -> list[tuple[str, str]]:
    return [((key.name or "").lower(), key.type or "string") for key in table.partitionKeys or ()]


def sent_location(table: Table) -> str:
    """The location that a client gave, as a URI; "" if it gave none. Raises InvalidArgument for a relative one."""
    location = table.sd.location if table.sd is not None else None
    return storage.normal_uri(location) if location and location.strip() else ""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the service says of a table, not the client. ``create_time`` is in seconds."""

    table_id: int
    catalog: str
    database: str
    name: str
    create_time: int


def definition(sent: Cut[Table], identity: Identity, *, location: str, now: int) -> TableDefinition:
    """The table to store, at this location (a URI or ""). ``now`` is in seconds.

    What the client left out gets Hive's defaults: its clients ask for the length of lists that are null here.
    """
    table = sent.value
    hive_type = table_type(table)
    parameters = dict(table.parameters or {})
    parameters.setdefault(DDL_TIME, str(now))
    own: dict[int, Change] = {
        _NAME: (STRING, string_value(identity.name)),
        _DB_NAME: (STRING, string_value(identity.database)),
        _CREATE_TIME: (I32, i32_value(identity.create_time)),
        _SD: (STRUCT, _storage_at(sent.raw, location)),
        _PARAMETERS: (MAP, string_map_value(parameters)),
        _TYPE: (STRING, string_value(hive_type)),
        _PRIVILEGES: None,
        _CATALOG: (STRING, string_value(identity.catalog)),
        _ID: (I64, i64_value(identity.table_id)),
    }
    hive = patch(sent.raw, own | _left_out(sent.raw, _DEFAULTS))
    return TableDefinition(
        name=identity.name,
        hive=hive,
        hive_type=hive_type,
        location=location,
        owns_data=owns_data(hive_type, parameters),
        partition_columns=partition_columns(table),
        comment=parameters.get("comment", ""),
    )


class TableNames(NamedTuple):
    catalog: str
    database: str
    table: str


def names_of(hive: bytes) -> TableNames:
    """The names in the stored struct of a table, which has no catalog that can be relied on."""
    head = decode_struct(TableHead, hive)
    return TableNames("", head.dbName or "", head.tableName or "")


def columns_of(hive: bytes) -> dict[str, str]:
    """The types of the columns in the stored struct of a table, of partition columns too, by name in lower case."""
    table = decode_struct(Table, hive)
    columns = [*((table.sd.cols if table.sd is not None else None) or ()), *(table.partitionKeys or ())]
    return {(column.name or "").lower(): column.type or "" for column in columns}


def location_of(hive: bytes) -> str:
    """The location in the stored struct of a table; "" if it has none."""
    descriptor = fields(hive).get(_SD)
    field = fields(hive, descriptor.start).get(_SD_LOCATION) if descriptor is not None else None
    return hive[field.start + 4 : field.end].decode() if field is not None else ""


def parameters_of(hive: bytes) -> dict[str, str]:
    """The parameters in the stored struct of a table."""
    return decode_struct(TableHead, hive).parameters or {}


def with_creation_metadata(hive: bytes, metadata: bytes | None) -> bytes:
    """The stored struct of a materialized view with these serialized metadata of its creation; None: without any."""
    return patch(hive, {_CREATION_METADATA: None if metadata is None else (STRUCT, metadata)})


def creation_metadata_of(hive: bytes) -> bytes | None:
    """The serialized metadata of a materialized view's creation, if there are any."""
    field = fields(hive).get(_CREATION_METADATA)
    return None if field is None else hive[field.start : field.end]


def is_rewritten_to(hive: bytes) -> bool:
    """Whether the stored struct is a materialized view to which queries may be rewritten."""
    field = fields(hive).get(_REWRITE)
    return field is not None and hive[field.start] != 0


def with_parameters(hive: bytes, parameters: Mapping[str, str]) -> bytes:
    """The stored struct of a table with other parameters."""
    return patch(hive, {_PARAMETERS: (MAP, string_map_value(parameters))})


def with_names(hive: bytes, database: str, name: str) -> bytes:
    """The stored struct of a table under other names."""
    return patch(hive, {_NAME: (STRING, string_value(name)), _DB_NAME: (STRING, string_value(database))})


def stored_type(hive: bytes) -> str:
    """The type in the stored struct of a table; "" if it has none."""
    field = fields(hive).get(_TYPE)
    return hive[field.start + 4 : field.end].decode() if field is not None else ""


def storage_of(hive: bytes) -> bytes:
    """The storage descriptor in the stored struct of a table; b"" if it has none."""
    field = fields(hive).get(_SD)
    return hive[field.start : field.end] if field is not None else b""


def _storage_at(table: bytes, location: str) -> bytes:
    storage_field = fields(table)[_SD]
    descriptor = table[storage_field.start : storage_field.end]
    changes = _left_out(descriptor, _SD_DEFAULTS)
    serde = fields(descriptor).get(_SD_SERDE)
    if serde is not None:
        of_serde = descriptor[serde.start : serde.end]
        changes[_SD_SERDE] = (STRUCT, patch(of_serde, _left_out(of_serde, _SERDE_DEFAULTS)))
    if location:
        changes[_SD_LOCATION] = (STRING, string_value(location))
    return patch(descriptor, changes)


def _left_out(struct: bytes, defaults: Mapping[int, Change]) -> dict[int, Change]:
    """Those defaults that the struct has no field for."""
    given = fields(struct)
    return {field_id: default for field_id, default in defaults.items() if field_id not in given}
