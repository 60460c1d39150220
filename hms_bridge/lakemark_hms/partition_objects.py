"""Converts partitions between Thrift structs and the records of the warehouse, which are cut in two at the location."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from lakemark_core import storage
from lakemark_core.errors import InvalidArgument, InvalidPartition, PartitionNotFound
from lakemark_core.types import DEFAULT_PARTITION
from lakemark_core.types.partitions import unescape_path_name
from lakemark_hms.objects import DDL_TIME, VIEW
from lakemark_hms.partition_view import PartitionView
from lakemark_hms.wire.codec import decode_struct, encode_struct
from lakemark_hms.wire.cut import I32, LIST, MAP, STRING, STRUCT, Cut, Field, field_head, fields, patch
from lakemark_hms.wire.heads import PartitionHead
from lakemark_hms.wire.splice import i32_value, string_list_value, string_map_value, string_value
from lakemark_server.catalog.partition_sets import PartitionSet
from lakemark_server.catalog.warehouse_partitions import check_values
from lakemark_server.catalog.warehouse_records import HiveTable, Partition, Values, new_partition
from lakemark_server.grants.objects import PUBLIC
from lakemark_thrift.ttypes import PrincipalPrivilegeSet, StorageDescriptor

_VALUES, _DB_NAME, _TABLE_NAME, _CREATE_TIME, _SD, _PARAMETERS, _PRIVILEGES, _CATALOG = 1, 2, 3, 4, 6, 7, 8, 9
_COLUMNS, _LOCATION, _SERDE = 1, 2, 7
_KEPT_BYTES_MAX: Final = 50_000  # of columns that are known to be right
_LOCATION_HEAD: Final = field_head(STRING, _LOCATION)


def values_of(texts: Sequence[str] | None) -> Values:
    """Partition values as they are stored. An empty text stands for null, as in Hive."""
    return tuple(text or DEFAULT_PARTITION for text in texts or ())


def values_of_name(table: HiveTable | PartitionView, name: str, *, exact: bool = False) -> Values:
    """``month=1/origin=JFK`` to values. As in Hive, the order of the columns does not matter, nor what else is named.

    ``exact``: the case of the columns counts. Raises InvalidPartition if there is no name, PartitionNotFound if it
    lacks a column.
    """
    if not name:
        raise InvalidPartition("the name of the partition is empty")
    if not table.columns:
        raise InvalidPartition("the table is not partitioned")
    parts = [part.partition("=") for part in name.split("/")]
    given = {
        column if exact else column.lower(): value
        for column, value in ((unescape_path_name(head), text) for head, equals, text in parts if equals and text)
    }
    texts = [given.get(column if exact else column.lower()) for column in table.columns]
    if None in texts:
        raise PartitionNotFound(
            f"partition name {name!r} does not fit the partition columns [{', '.join(table.columns)}]"
        )
    return tuple(unescape_path_name(text or "") for text in texts)


def ending(table: HiveTable) -> bytes:
    """The bytes that complete the struct of each partition of the table: the names, and the end."""
    return ending_of(table.database.name, table.name, table.database.catalog)


def ending_of(database: str, table: str, catalog: str = "") -> bytes:
    """The ``ending`` for these names."""
    names = field_head(STRING, _DB_NAME) + string_value(database)
    names += field_head(STRING, _TABLE_NAME) + string_value(table)
    return names + (field_head(STRING, _CATALOG) + string_value(catalog) if catalog else b"") + b"\0"


def privileges(user: str | None, groups: Sequence[str] | None) -> bytes:
    """The field of a partition that has privileges of its own: nobody was granted any."""
    none_granted = PrincipalPrivilegeSet(
        userPrivileges={} if user is None else {user: []},
        groupPrivileges={group: [] for group in groups or ()},
        rolePrivileges={PUBLIC: []},
    )
    return field_head(STRUCT, _PRIVILEGES) + encode_struct(none_granted)


def open_struct(row: Partition, base: str) -> bytes:
    """The struct without its ``ending``."""
    return row.head + string_value(row.full_location(base)) + row.tail if row.located else row.head


def view_of(table: HiveTable, loaded: PartitionSet | Sequence[Partition]) -> PartitionView:
    """The partitions as read methods need them. A ``PartitionSet`` keeps the view for the table's place and names."""
    record = table.record
    base = record.partition_base

    def make(rows: Sequence[Partition]) -> PartitionView:
        structs = [open_struct(row, base) for row in rows]
        return PartitionView(
            record.partition_columns, record.partition_types, [row.values for row in rows], structs, ending(table)
        )

    if isinstance(loaded, PartitionSet):
        key = (base, table.label, *record.partition_columns, *record.partition_types)
        return loaded.derived(key, make)
    return make(loaded)


def full_struct(table: HiveTable, row: Partition) -> bytes:
    return open_struct(row, table.record.partition_base) + ending(table)


def added_partition(table: HiveTable, sent: Cut[PartitionHead], now: int) -> Partition:
    """A new partition. Without a location from the client it gets the default one. Times in seconds."""
    values = values_of(sent.value.values)
    check_values(table, values)
    if None in (sent.value.values or ()):
        raise InvalidPartition("a value of a partition cannot be null; an empty text stands for null")
    parameters = dict(sent.value.parameters or {})
    parameters.setdefault(DDL_TIME, str(now))
    location = default_location(table, sent.value)
    raw = _cleaned(sent, parameters, now)
    descriptor = _descriptor_of(raw)
    _check_storage(table, raw, descriptor)
    return _split(table, values, raw, location, descriptor)


def replaced_partition(table: HiveTable, sent: Cut[PartitionHead], now: int, old: Partition) -> Partition:
    """An altered partition. Without a location from the client it keeps the old one."""
    parameters = dict(sent.value.parameters or {})
    if parameters.get(DDL_TIME, "0") == "0":
        parameters[DDL_TIME] = str(now)
    location = _given_location(sent.value) or (old.full_location(table.record.partition_base) if old.located else "")
    return split(table, old.values, _cleaned(sent, parameters, None), location)


def renamed_partition(table: HiveTable, sent: Cut[PartitionHead], now: int, old: Partition) -> Partition:
    """A partition with other values. Its location follows them if it is the default one and the table owns its data.

    Anywhere else the data stay where they are.
    """
    check_values(table, values_of(sent.value.values))
    source = old.full_location(table.record.partition_base)
    location = source
    if table.record.owns_data and storage.is_same_place(
        source, storage.join(table.record.location, table.partition_name(old.values))
    ):
        location = storage.join(table.record.location, table.partition_name(values_of(sent.value.values)))
    parameters = dict(sent.value.parameters or {}) | {DDL_TIME: str(now)}
    return split(table, values_of(sent.value.values), _cleaned(sent, parameters, None), location if old.located else "")


_Descriptor = tuple[int, dict[int, Field]] | None  # where a StorageDescriptor starts, and its fields


def _descriptor_of(raw: bytes) -> _Descriptor:
    found_at = fields(raw).get(_SD)
    return None if found_at is None else (found_at.start, fields(raw, found_at.start))


def _check_storage(table: HiveTable, raw: bytes, descriptor: _Descriptor) -> None:
    """Raises InvalidPartition for a new partition without what readers of its files need. Views may lack it."""
    if table.entry.hive_type == VIEW or not table.record.location:
        return
    if descriptor is None:
        raise InvalidPartition("the partition has no storage descriptor")
    if _SERDE not in descriptor[1]:
        raise InvalidPartition("the storage descriptor of the partition has no serialization library (serdeInfo)")
    columns = descriptor[1].get(_COLUMNS)
    if columns is not None:
        encoded = raw[columns.start : columns.end]
        check = _check_columns if len(encoded) <= _KEPT_BYTES_MAX else _check_columns.__wrapped__
        check(encoded)


@lru_cache(maxsize=200)
def _check_columns(columns: bytes) -> None:
    """Raises InvalidPartition. Partitions mostly have the columns of others, which are decoded once."""
    storage_of_columns = decode_struct(StorageDescriptor, patch(b"\0", {_COLUMNS: (LIST, columns)}))
    for column in storage_of_columns.cols or ():
        if column.name is None or column.type is None:
            raise InvalidPartition(f"a column of the partition has no {'name' if column.name is None else 'type'}")


def with_columns(table: HiveTable, row: Partition, columns: bytes) -> Partition:
    """The partition with other columns: an encoded list of FieldSchema."""
    raw = open_struct(row, table.record.partition_base) + b"\0"
    descriptor = fields(raw).get(_SD)
    if descriptor is None:
        return row
    changed = patch(raw[descriptor.start : descriptor.end], {_COLUMNS: (LIST, columns)})
    return split(
        table, row.values, patch(raw, {_SD: (STRUCT, changed)}), row.full_location(table.record.partition_base)
    )


def default_location(table: HiveTable, head: PartitionHead) -> str:
    """The location that the client gave, or one below the table; "" for a partition of a view.

    Raises InvalidPartition for a location that is none, or is that of a partition of a view.
    """
    given = _given_location(head)
    if table.entry.hive_type == VIEW or not table.record.location:
        if given:
            raise InvalidPartition(f"{table.label} is a view: its partitions have no location, {given} is given")
        return ""
    if given:
        return given
    return storage.join(table.record.location, table.partition_name(values_of(head.values)))


def _given_location(head: PartitionHead) -> str:
    """Raises InvalidPartition."""
    given = head.sd.location if head.sd is not None else None
    try:
        return storage.normal_uri(given) if given and given.strip() else ""
    except InvalidArgument as error:
        raise InvalidPartition(error.message, **error.details) from error


def undetailed(values: Values, create_time: int, storage_field: bytes, location: str) -> bytes:
    """The struct, without its ``ending``, of a partition of which only this is known.

    ``storage_field``: the StorageDescriptor of its table; b"" if that is not known either.
    """
    where = (STRING, string_value(location)) if location else None
    descriptor = patch(storage_field or b"\0", {_LOCATION: where})
    return b"".join(
        (
            field_head(LIST, _VALUES),
            string_list_value(values),
            field_head(I32, _CREATE_TIME),
            i32_value(create_time),
            field_head(STRUCT, _SD),
            descriptor,
            field_head(MAP, _PARAMETERS),
            string_map_value({}),
        )
    )


def _cleaned(sent: Cut[PartitionHead], parameters: Mapping[str, str], create_time: int | None) -> bytes:
    """The struct without the names of its table, with values as stored and these parameters."""
    changes: dict[int, tuple[int, bytes] | None] = {
        _VALUES: (LIST, string_list_value(values_of(sent.value.values))),
        _DB_NAME: None,
        _TABLE_NAME: None,
        _PARAMETERS: (MAP, string_map_value(parameters)),
        _PRIVILEGES: None,
        _CATALOG: None,
    }
    if create_time is not None:
        changes[_CREATE_TIME] = (I32, i32_value(create_time))
    return patch(sent.raw, changes)


def split(table: HiveTable, values: Values, raw: bytes, location: str) -> Partition:
    """Cuts ``raw``, a struct without the names of its table, in two where the location stands or belongs."""
    return _split(table, values, raw, location, _descriptor_of(raw))


def _split(table: HiveTable, values: Values, raw: bytes, location: str, descriptor: _Descriptor) -> Partition:
    if descriptor is None or not location:
        return new_partition(table, values, "", raw[:-1], b"", located=False)
    at, given = descriptor[0], descriptor[1].get(_LOCATION)
    if given is None:
        head, tail = raw[:at] + _LOCATION_HEAD, raw[at:-1]
    else:
        head, tail = raw[: given.start], raw[given.end : -1]
    return new_partition(table, values, location, head, tail, located=True)
