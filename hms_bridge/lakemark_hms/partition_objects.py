"""Converts partitions between Thrift structs and the records of the warehouse, which are cut in two at the location."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lakemark_core import storage
from lakemark_core.errors import InvalidArgument
from lakemark_core.types import DEFAULT_PARTITION, partition_texts
from lakemark_hms.objects import DDL_TIME, VIEW
from lakemark_hms.partition_view import PartitionView
from lakemark_hms.wire.cut import I32, LIST, MAP, STRING, STRUCT, Cut, field_head, fields, patch
from lakemark_hms.wire.heads import PartitionHead
from lakemark_hms.wire.splice import i32_value, string_list_value, string_map_value, string_value
from lakemark_server.catalog.partition_sets import PartitionSet
from lakemark_server.catalog.warehouse_partitions import check_values
from lakemark_server.catalog.warehouse_records import HiveTable, Partition, Values, new_partition

_VALUES, _DB_NAME, _TABLE_NAME, _CREATE_TIME, _SD, _PARAMETERS, _PRIVILEGES = 1, 2, 3, 4, 6, 7, 8
_COLUMNS, _LOCATION = 1, 2
_LOCATION_HEAD: Final = field_head(STRING, _LOCATION)


def values_of(texts: Sequence[str] | None) -> Values:
    """Partition values as they are stored. An empty text stands for null, as in Hive."""
    return tuple(text or DEFAULT_PARTITION for text in texts or ())


def values_of_name(table: HiveTable | PartitionView, name: str) -> Values:
    """``month=1/origin=JFK`` to values, columns in any case. Raises InvalidArgument."""
    texts = partition_texts(name, table.columns) if name else None
    if texts is None:
        raise InvalidArgument(
            f"partition name {name!r} does not fit the partition columns [{', '.join(table.columns)}]"
        )
    return texts


def ending(table: HiveTable) -> bytes:
    """The bytes that complete the struct of each partition of the table: the names, and the end."""
    return ending_of(table.database.name, table.name)


def ending_of(database: str, table: str) -> bytes:
    """The ``ending`` for these names."""
    names = field_head(STRING, _DB_NAME) + string_value(database)
    return names + field_head(STRING, _TABLE_NAME) + string_value(table) + b"\0"


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
    check_values(table, values_of(sent.value.values))
    parameters = dict(sent.value.parameters or {})
    parameters.setdefault(DDL_TIME, str(now))
    location = default_location(table, sent.value)
    return split(table, values_of(sent.value.values), _cleaned(sent, parameters, now), location)


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
    """The location that the client gave, or one below the table; "" for a partition of a view."""
    given = _given_location(head)
    if given:
        return given
    if table.entry.hive_type == VIEW or not table.record.location:
        return ""
    return storage.join(table.record.location, table.partition_name(values_of(head.values)))


def _given_location(head: PartitionHead) -> str:
    given = head.sd.location if head.sd is not None else None
    return storage.normal_uri(given) if given and given.strip() else ""


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
    }
    if create_time is not None:
        changes[_CREATE_TIME] = (I32, i32_value(create_time))
    return patch(sent.raw, changes)


def split(table: HiveTable, values: Values, raw: bytes, location: str) -> Partition:
    """Cuts ``raw``, a struct without the names of its table, in two where the location stands or belongs."""
    descriptor = fields(raw).get(_SD)
    if descriptor is None or not location:
        return new_partition(table, values, "", raw[:-1], b"", located=False)
    given = fields(raw, descriptor.start).get(_LOCATION)
    if given is None:
        head, tail = raw[: descriptor.start] + _LOCATION_HEAD, raw[descriptor.start : -1]
    else:
        head, tail = raw[: given.start], raw[given.end : -1]
    return new_partition(table, values, location, head, tail, located=True)
