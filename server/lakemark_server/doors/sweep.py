"""Deletes what statements have left: directories that were given a day ago, and what is remembered of them."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, cast

from lakemark_core import storage
from lakemark_core.errors import LakemarkError, TableNotFound
from lakemark_proto.store.v1.doors_pb2 import DoorSessionRecord
from lakemark_server.catalog import lake
from lakemark_server.context.clock import ClockMs
from lakemark_server.doors import contents, records
from lakemark_server.doors.directories import GivenDirectory, session_path
from lakemark_server.kv import Store, keys_below
from lakemark_server.store.keyspace import DOOR_DIRECTORIES, DOOR_SESSIONS
from lakemark_server.store.mutations import Mutation, Mutations

RETAIN_MS: Final = 24 * 3_600_000
"""A statement has so long from its first look-up to its end."""
FORGOTTEN_MAX: Final = 1_000
"""Records that a round clears of a session that is in use."""
INTERVAL_MS: Final = 600_000
"""Directories are listed no more often."""


class DoorSweep:
    """``store`` is fenced: what is decided here is decided while the lease is held."""

    def __init__(self, store: Store, clock: ClockMs) -> None:
        self._mutations = Mutations(store, clock)
        self._store, self._clock = store, clock
        self._next_ms = 0

    def round(self) -> int:
        """Returns how many directories were deleted; 0 also if the last round was a short time ago."""
        now = self._clock()
        if now < self._next_ms:
            return 0
        self._next_ms = now + INTERVAL_MS
        deleted = 0
        for key, value in keys_below(self._store, DOOR_SESSIONS):
            table_id, session = cast("tuple[int, str]", key)
            with suppress(LakemarkError):  # of one table, or of one store of files; the next round tries again
                deleted += self._sweep(table_id, session, DoorSessionRecord.FromString(value), now - RETAIN_MS)
        return deleted

    def _sweep(self, table_id: int, session: str, record: DoorSessionRecord, before_ms: int) -> int:
        try:
            location = self._store.read(lambda tx: lake.get_record(tx, table_id)).location
        except TableNotFound:  # it goes with the table, or is looked at once that is back
            return 0
        over = record.swept or record.used_ms < before_ms
        if over and not record.swept:
            # First, so that no call finds half of the files.
            self._mutations.run(lambda mutation: _mark(mutation, table_id, session))
        given = contents.given_directories(location, session)
        old = given if over else [one for one in given if one.given_ms < before_ms]
        for directory in old:
            if not over:
                self._mutations.run(lambda mutation, one=directory: _retire(mutation, table_id, one))  # type: ignore[misc]
            storage.delete_directory(storage.join(location, directory.path))
        if over:
            storage.delete_directory(storage.join(location, session_path(session)))
        self._mutations.run(lambda mutation: _forget(mutation, table_id, session, None if over else before_ms))
        return len(old)


def _mark(mutation: Mutation, table_id: int, session: str) -> None:
    record = records.find_session(mutation.tx, table_id, session)
    if record is not None:
        record.swept = True
        records.put_session(mutation.tx, table_id, session, record)


def _retire(mutation: Mutation, table_id: int, directory: GivenDirectory) -> None:
    records.retire(mutation.tx, table_id, [directory], "it was given more than a day ago", mutation.now_ms)


def _forget(mutation: Mutation, table_id: int, session: str, before_ms: int | None) -> None:
    """Clears what was decided about directories that were given before then; None: everything of the session."""
    begin, end = DOOR_DIRECTORIES.range(table_id, session)
    if before_ms is None:
        mutation.tx.clear_range(begin, end)
        mutation.tx.clear(DOOR_SESSIONS.key(table_id, session))
        return
    for key, _ in mutation.tx.get_range(begin, end, limit=FORGOTTEN_MAX):
        name = cast(str, DOOR_DIRECTORIES.unpack(key)[-1])
        if GivenDirectory(session, name).given_ms < before_ms:
            mutation.tx.clear(key)
