"""Where partitions have their files, as far as their names do not say it, inside a transaction.

A partition in the directory that is named after it, below the table's own, needs no note: nobody else can have that
directory. One elsewhere below the table is noted with the table (``PARTITION_PLACES``), one outside holds a place of
its own (``ownership``). Both notes may be written and cleared again without harm.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from lakemark_core.storage import is_within
from lakemark_core.types import partition_name
from lakemark_core.types.partitions import unescape_path_name
from lakemark_proto.store.v1.store_pb2 import ClosedRecord, Holder
from lakemark_server.catalog import warehouse_records
from lakemark_server.catalog.warehouse_records import HiveTable, Partition, Values
from lakemark_server.kv import ReadTransaction, Transaction, pack
from lakemark_server.ownership import Holding, Ownership, closures, places
from lakemark_server.store.keyspace import PARTITION_PLACES

_LOOKED_AT_MAX: Final = 50


def part_of(values: Values) -> bytes:
    """What stands for a partition's values in notes."""
    return hashlib.blake2b(pack(*values), digest_size=12).digest()


def holding(table: HiveTable, row: Partition) -> Holding:
    """What the partition holds, wherever it is."""
    return places.holding(
        row.full_location(table.record.partition_base),
        Holder.PARTITION,
        table.table_id,
        f"{table.partition_name(row.values)} of {table.label}",
        owns=table.record.owns_data,
        part=part_of(row.values),
    )


def is_named(columns: Sequence[str], row: Partition) -> bool:
    """Whether the directory has the partition's name, or there is none: such a partition needs no note."""
    return not row.located or (row.relative and row.location == partition_name(columns, row.values))


def take(
    tx: Transaction,
    ownership: Ownership,
    table: HiveTable,
    rows: Iterable[Partition],
    *,
    keeping: bool = False,
    closed: Sequence[ClosedRecord] = (),
) -> None:
    """Notes where partitions have their files. ``keeping``: where they had them before stays noted, too.

    Raises LocationTaken if such a directory is another's, or is being deleted.
    """
    rows = [row for row in rows if row.located]
    base = table.record.partition_base
    inner = [row for row in rows if row.relative]
    if inner:
        wanted = [places.place_of(base)]
        if closures.any_inside(tx, wanted[0]):
            wanted = [places.place_of(row.full_location(base)) for row in inner]
        closures.require_open(tx, wanted, but=closed)
    mine = {place: [record] for record in closed for place in closures.places_of(record)}
    for row in rows:
        if not row.relative:
            claim = holding(table, row)
            ownership.take(
                tx, claim, database_id=table.database.database_id, closed=mine.get(claim.place, ()), keeping=keeping
            )
        elif not is_named(table.columns, row):
            note(tx, table, row)


def note(tx: Transaction, table: HiveTable, row: Partition) -> None:
    """Notes where a partition has its files, without asking whether it may."""
    if row.relative:
        tx.set(PARTITION_PLACES.key(table.table_id, row.location, part_of(row.values)), b"")
    else:
        places.put(tx, holding(table, row))


def leave(tx: Transaction, table_id: int, columns: Sequence[str], gone: Partition, now: Partition | None) -> None:
    """The partition is ``now`` and no longer ``gone``. None: it is dropped."""
    if not gone.located or stays_in_place(gone, now):
        return
    if gone.relative:
        if not is_named(columns, gone):
            tx.clear(PARTITION_PLACES.key(table_id, gone.location, part_of(gone.values)))
        return
    kept = places.place_of(now.location) if now and now.located and not now.relative else None
    for held in places.held(tx, Holder.PARTITION, table_id, part_of(gone.values)):
        if held.place != kept:
            places.clear(tx, held)


def stays_in_place(before: Partition | None, after: Partition | None) -> bool:
    """Whether a partition, which has the same values before and after a change, has the same directory."""
    return (
        before is not None
        and after is not None
        and (before.location, before.relative, before.located)
        == (
            after.location,
            after.relative,
            after.located,
        )
    )


def what_keeps(
    tx: ReadTransaction, ownership: Ownership, table: HiveTable, rows: Sequence[Partition]
) -> dict[Values, str]:
    """Why directories of partitions must not be deleted or emptied, as the end of a sentence, by values of partitions.

    The partitions may have been dropped, or still be there. Those whose directory may be deleted are left out.
    """
    base = places.place_of(table.record.partition_base or table.record.location)
    strangers = [
        one
        for one in places.around_and_inside(tx, base)
        if not (one.id == table.table_id and one.kind == Holder.WAREHOUSE_TABLE)
        and not ((one.is_database or one.is_catalog) and is_within(base, one.place))
    ]
    reasons = {row.values: _what_keeps_one(tx, ownership, table, row, base, bool(strangers)) for row in rows}
    return {values: reason for values, reason in reasons.items() if reason}


def _what_keeps_one(
    tx: ReadTransaction, ownership: Ownership, table: HiveTable, row: Partition, base: str, has_strangers: bool
) -> str:
    if row.relative and not has_strangers:
        return _sibling_at(tx, table, row)
    own = holding(table, row)
    reason = ownership.what_keeps(tx, own)
    if reason:
        return reason
    if row.relative:
        return _sibling_at(tx, table, row)
    if is_within(own.place, base) or is_within(base, own.place):  # siblings in directories of their names are not noted
        return f"it is in the directory of {table.label} by another name, {row.location}"
    return ""


def _sibling_at(tx: ReadTransaction, table: HiveTable, row: Partition) -> str:
    """Another partition of the table whose directory is this one's, or lies around or inside it; "": there is none."""
    own = (row.location, part_of(row.values))
    noted = PARTITION_PLACES.space(table.table_id)
    near_by = []
    if tx.get_range(*noted.range(), limit=1):
        parts = row.location.split("/")
        for count in range(1, len(parts) + 1):
            near_by += tx.get_range(*noted.range("/".join(parts[:count])), limit=_LOOKED_AT_MAX)
        near_by += tx.get_range(*noted.range_of_texts(f"{row.location}/"), limit=_LOOKED_AT_MAX)
    for key, _ in near_by:
        location, part = noted.unpack(key)
        if (location, part) != own:
            return f"another partition of {table.label} has its directory at {location!s}"
    leading = _leading(table.columns, row.location)
    if leading is None:
        return ""
    begin, end = warehouse_records.partition_range(table.table_id, leading)
    if len(leading) == len(table.columns):
        near = [one for one in [warehouse_records.find_partition(tx, table.table_id, leading)] if one]
    else:
        near = warehouse_records.partitions_in(tx, table.table_id, begin, end, _LOOKED_AT_MAX)
    for other in near:
        if other.values != row.values and other.relative and _overlap(other.location, row.location):
            return f"partition {table.partition_name(other.values)} has its directory at {other.location}"
    if len(near) >= _LOOKED_AT_MAX:
        return f"{table.label} has more than {_LOOKED_AT_MAX} partitions whose directories could lie in it"
    return ""


def _overlap(first: str, second: str) -> bool:
    return first == second or first.startswith(second + "/") or second.startswith(first + "/")


def _leading(columns: Sequence[str], location: str) -> Values | None:
    """The values of partitions whose named directories could be this one, or lie around or inside it; None: none."""
    values = []
    for column, part in zip(columns, location.split("/"), strict=False):
        name, equals, text = part.partition("=")
        if not equals or name != column:
            return None
        values.append(unescape_path_name(text))
    return tuple(values)
