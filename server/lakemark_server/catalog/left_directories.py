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

LEFT_MS: Final = 10 * 60_000
"""Whoever closed a directory longer ago is taken for dead (docs/locations.md says what if not)."""

_AT_ONCE_MAX: Final = 100

_log = structlog.get_logger(__name__)


def finish(store: Store, now_ms: int) -> list[str]:
    """Ends what was left. Returns the locations; those that cannot be ended now, which hold up no others, are left."""
    left = store.read(lambda tx: closures.older_than(tx, now_ms - LEFT_MS, _AT_ONCE_MAX))
    done: dict[str, None] = {}
    for record in left:
        try:
            _finish(store, record)
        except LakemarkError as error:
            _log.warning("what was left half way cannot be ended; it is tried again", reason=error.message)
        else:
            done[record.location] = None
    return list(done)


def _finish(store: Store, record: ClosedRecord) -> None:
    if record.why == ClosedRecord.DELETED:
        directories.finish_deletion(store, record.location)
        return
    # What was to be emptied may have new files by now, which a writer need not ask anybody for.
    if record.why == ClosedRecord.MOVED and not _has_moved(store, record) and not storage.is_directory(record.location):
        storage.begin_move(record.target, record.location).finish()
    store.transact(partial(closures.reopen, record=record))


def _has_moved(store: Store, record: ClosedRecord) -> bool:
    """Whether the table or partition says so, or is no more."""

    def body(tx: ReadTransaction) -> str:
        table = warehouse_records.find_record(tx, record.table_id)
        if table is None or not record.values:
            return "" if table is None else table.location
        row = warehouse_records.find_partition(tx, record.table_id, tuple(record.values))
        return "" if row is None else row.full_location(table.partition_base)

    location = store.read(body)
    return not location or places.place_of(location) != places.place_of(record.location)
