"""Converts databases and tables between the Thrift structs of clients and the records of the catalog.

Structs are stored as clients sent them, with single fields set (``wire.cut.patch``), so that fields survive which only
other releases know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from lakemark_core import storage
from lakemark_core.errors import InvalidArgument
from lakemark_hms.wire.codec import decode_struct, encode_struct
from lakemark_hms.wire.cut import I32, MAP, STRING, STRUCT, Cut, fields, patch
from lakemark_hms.wire.heads import TableHead
from lakemark_hms.wire.splice import i32_value, string_map_value, string_value
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_server.catalog.warehouse_tables import TableDefinition
from lakemark_thrift.ttypes import Database, PrincipalType, Table

DDL_TIME: Final = "transient_lastDdlTime"
MANAGED, EXTERNAL, VIEW = "MANAGED_TABLE", "EXTERNAL_TABLE", "VIRTUAL_VIEW"

# Field ids.
_DATABASE_NAME, _DATABASE_LOCATION, _DATABASE_PRIVILEGES = 1, 3, 5
_NAME, _DB_NAME, _CREATE_TIME, _SD, _PARAMETERS, _TYPE, _PRIVILEGES = 1, 2, 4, 7, 9, 12, 13
_SD_LOCATION = 2

Change = tuple[int, bytes] | None


def database_struct(record: DatabaseRecord, uri: str) -> bytes:
    """The serialized Thrift Database. ``uri``: its location as engines read it."""
    if record.hive:
        name = (STRING, string_value(record.name))
        location = (STRING, string_value(uri))
        return patch(record.hive, {_DATABASE_NAME: name, _DATABASE_LOCATION: location})
    return encode_struct(
        Database(
            name=record.name,
            description=record.description,
            locationUri=uri,
            parameters=dict(record.properties),
            ownerName=record.owner or None,
            ownerType=PrincipalType.USER if record.owner else None,
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
        hive=patch(sent.raw, {_DATABASE_PRIVILEGES: None}),
    )


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


def check_table(table: Table) -> None:
    """Raises InvalidArgument for a table that no metastore accepts."""
    if not table.tableName or table.sd is None:
        raise InvalidArgument("the table has no name" if not table.tableName else "the table has no storage descriptor")
    if table.sd.cols is None:
        raise InvalidArgument(f"table {table.tableName!r} has no column list")
    seen: set[str] = set()
    for column in [*table.sd.cols, *(table.partitionKeys or ())]:
        name = (column.name or "").lower()
        if not name or column.type is None:
            raise InvalidArgument(f"table {table.tableName!r} has a column without a name or type")
        if name in seen:
            raise InvalidArgument(f"table {table.tableName!r} has the column {name!r} twice")
        seen.add(name)


def definition(
    sent: Cut[Table],
    *,
    database: str,
    name: str,
    location: str,
    create_time: int,
    now: int,
) -> TableDefinition:
    """The table to store, with these names, location (a URI or "") and times in seconds."""
    table = sent.value
    hive_type = table_type(table)
    parameters = dict(table.parameters or {})
    parameters.setdefault(DDL_TIME, str(now))
    hive = patch(
        sent.raw,
        {
            _NAME: (STRING, string_value(name)),
            _DB_NAME: (STRING, string_value(database)),
            _CREATE_TIME: (I32, i32_value(create_time)),
            _SD: (STRUCT, _storage_at(sent.raw, location)),
            _PARAMETERS: (MAP, string_map_value(parameters)),
            _TYPE: (STRING, string_value(hive_type)),
            _PRIVILEGES: None,
        },
    )
    return TableDefinition(
        name=name,
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
    return patch(descriptor, {_SD_LOCATION: (STRING, string_value(location))}) if location else descriptor
