"""Ends what processes that died were doing with directories: deletions go on, moves are undone or were done."""

from __future__ import annotations

from functools import partial
from typing import Final

import structlog

from lakemark_core import storage
from lakemark_core.errors import LakemarkError
from lakemark_proto.store.v1.store_pb2 import ClosedRecord
from lakemark_server.catalog import directories, warehouse_records
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.ownership import closures, places
from lakemark_server.ownership.tenures import LEFT_MS, Tenure, at_work, is_at

_AT_ONCE_MAX: Final = 100

_log = structlog.get_logger(__name__)


def finish(store: Store, now_ms: int) -> list[str]:
    """Ends what was left. Returns the locations; those that cannot be ended now, which hold up no others, are left."""
    left = closures.older_than(store, now_ms - LEFT_MS, _AT_ONCE_MAX)
    done: dict[str, None] = {}
    for record in sorted(left, key=_is_deletion):  # those may take long, and others wait for moves
        if is_at(record):
            continue
        taken = store.transact(partial(closures.take_over, record=record, now_ms=now_ms))
        if taken is None:  # its worker lives after all
            continue
        try:
            _finish(store, taken, now_ms)
        except LakemarkError as error:
            _log.warning("what was left half way cannot be ended; it is tried again", reason=error.message)
        else:
            done[record.location] = None
    return list(done)


def _is_deletion(record: ClosedRecord) -> bool:
    return record.why == ClosedRecord.DELETED


def _finish(store: Store, record: ClosedRecord, now_ms: int) -> None:
    if _is_deletion(record):
        directories.finish_deletion(store, record.location, now_ms)
        return
    with at_work(store, [record]) as tenure:
        # What was to be emptied may have new files by now, which a writer need not ask anybody for.
        if record.why == ClosedRecord.MOVED:
            _end_move(store, record, tenure)
        store.transact(partial(closures.reopen, records=[record]))


def _end_move(store: Store, record: ClosedRecord, tenure: Tenure) -> None:
    """Undoes it unless the table or partition says that it has moved; if that is no more, everything stays."""
    location = store.read(partial(_location, record=record))
    if not location:
        return
    stays = places.place_of(location) == places.place_of(record.location)
    move = storage.Move(record.location, record.target, happened=True, may_go_on=tenure.may_go_on)
    if stays:
        move.undo()
    elif places.place_of(location) == places.place_of(record.target):
        move.finish()


def _location(tx: ReadTransaction, record: ClosedRecord) -> str:
    """Of the table or partition that was moved; "" if it is no more."""
    table = warehouse_records.find_record(tx, record.table_id)
    if table is None or not record.values:
        return "" if table is None else table.location
    row = warehouse_records.find_partition(tx, record.table_id, tuple(record.values))
    return "" if row is None else row.full_location(table.partition_base)
