"""Dropping lake tables, and bringing them back.

A dropped table loses its name and keeps its id, its versions and its files until its time is over. Nothing is moved, so
the drop is a small transaction whatever the size of the table, and readers of its files can go on. The numbers of files
and bytes in the log line are read before, from the latest snapshot. The table's record says that it was dropped
(``LakeTableRecord.dropped``), and looking it up by id finds nothing unless dropped tables are asked for.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, cast

import structlog

from lakemark_core import storage
from lakemark_core.errors import (
    AlreadyExists,
    CorruptStore,
    DatabaseNotFound,
    FailedPrecondition,
    FilesLeft,
    InvalidArgument,
    LakemarkError,
    TableNotFound,
    Unavailable,
)
from lakemark_core.types import Schema
from lakemark_proto.store.v1.store_pb2 import Dropped, Holder, LakeTableRecord, TableEntry
from lakemark_proto.v1 import catalog_pb2 as pb
from lakemark_proto.v1 import events_pb2 as pbe
from lakemark_server.admission import usage
from lakemark_server.admission.quotas import Quotas
from lakemark_server.catalog import (
    clean_schedule,
    databases,
    definitions,
    directories,
    drop_policy,
    events,
    lake,
    named_content,
    tables,
)
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.catalog.named_content import TableName
from lakemark_server.catalog.names import NAME_CHARS_MAX, catalog_name, legal_name
from lakemark_server.context import caller
from lakemark_server.context.clock import time_text
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.ownership import Ownership, closures, places
from lakemark_server.ownership.tenures import LEFT_MS
from lakemark_server.store.keyspace import DROPPED, DROPPED_DUE, RESTORED
from lakemark_server.store.mutations import Mutation, Mutations

RETAIN_MS_DEFAULT: Final = 7 * 86_400_000

PURGED_AT_ONCE_MAX: Final = 100
OF_ONE_NAME_MAX: Final = 1_000

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Size:
    """The latest version of a table's main branch: its number, how many files it has, and their bytes."""

    version: int
    files: int
    size_bytes: int


Measure: TypeAlias = Callable[[str, str, str], Size]
"""Measures the table with this catalog, database and name. Raises LakemarkError."""


class DroppedTables:
    """Thread-safe. ``retain_ms``: how long a table can be brought back unless its properties say otherwise."""

    def __init__(
        self,
        mutations: Mutations,
        quotas: Quotas,
        ownership: Ownership,
        warehouse: str,
        retain_ms: int = RETAIN_MS_DEFAULT,
        measure: Measure | None = None,
    ) -> None:
        self._mutations = mutations
        self._store = mutations.store
        self._clock = mutations.clock
        self._quotas = quotas
        self._ownership = ownership
        self._warehouse = warehouse
        self._retain_ms = retain_ms
        self._measure = measure

    # -- dropping -----------------------------------------------------------------------------------------------------

    def drop(
        self,
        catalog: str,
        database: str,
        name: str,
        *,
        if_exists: bool = False,
        delete_files: bool = True,
        now: bool = False,
        request_id: str = "",
    ) -> LakeTableRecord:
        """Frees the table's name; ``undrop`` brings the table back until ``dropped.until_ms`` of the answer.

        ``now``: the table is deleted at once, as is a table of which nothing is to be kept; the answer has no
        ``dropped`` then. The answer is empty if there was no such table and ``if_exists``. ``delete_files``: the files
        are deleted together with the table, unless its location was given by the user.

        Raises DatabaseNotFound, TableNotFound, UnsupportedOperation for a warehouse table, FailedPrecondition if the
        table is protected, QuotaExceeded; FilesLeft if the table is deleted but its files are not yet.
        """
        size = self._size(catalog, database, name)

        def drop(mutation: Mutation) -> LakeTableRecord:
            tx = mutation.tx
            try:
                owner, entry = tables.get(tx, catalog, database, name)
            except (DatabaseNotFound, TableNotFound):
                if if_exists:
                    return LakeTableRecord()
                raise
            lake.require_lake(entry, database, name)
            record = lake.get_record(tx, entry.table_id)
            _require_not_protected(record)
            before = _definition(tx, record)
            tables.clear_name(tx, owner.database_id, name.lower())
            named_content.drop(tx, TableName(owner.catalog, owner.name, name.lower()))
            usage.add(tx, owner.catalog, usage.TABLES, -1)
            retain_ms = 0 if now else drop_policy.retain_ms(record.properties, self._retain_ms)
            if retain_ms:
                self._keep(tx, record, _how(mutation.now_ms, retain_ms, size, keep_files=not delete_files))
            else:
                self._delete(mutation, record, delete_files=delete_files)
            kept = not delete_files or record.external
            dropped = events.of_lake_table(pbe.TABLE_DROPPED, before, files_kept=kept, request_id=request_id)
            mutation.tell(dropped)
            if not retain_ms:
                mutation.tell(events.of_lake_table(pbe.TABLE_PURGED, before, files_kept=kept, request_id=request_id))
            return record

        def body(mutation: Mutation) -> tuple[LakeTableRecord, bool, bool]:
            record, repeated = mutation.once(request_id, f"DropTable {database}.{name}", LakeTableRecord, drop)
            deleting = not record.HasField("dropped") and _is_being_deleted(mutation.tx, record)
            return record, repeated, deleting

        record, repeated, deleting = self._mutations.run(body)
        if record.table_id and not repeated:
            _tell("dropped a table", record, size)
        if deleting:
            self._delete_files_of(record)
        return record

    def _size(self, catalog: str, database: str, name: str) -> Size | None:
        """None if the table cannot be measured: a table whose metadata is damaged can still be dropped.

        Raises Unavailable.
        """
        if self._measure is None:
            return None
        try:
            return self._measure(catalog, database, name)
        except Unavailable:
            raise  # of the store: the drop would fail, too, and can be asked for again
        except LakemarkError:
            return None

    def _keep(self, tx: Transaction, record: LakeTableRecord, how: Dropped) -> None:
        """Marks the table as dropped. A location that the user chose becomes free for another table."""
        self._quotas.take(tx, record.catalog, usage.DROPPED_TABLES)
        record.dropped.CopyFrom(how)
        if record.external:
            places.put(tx, lake.holding(record))
        clean_schedule.clear(tx, record.table_id)
        lake.put(tx, record)
        tx.set(DROPPED.key(record.catalog, record.database, record.name, record.table_id), b"")
        tx.set(DROPPED_DUE.key(how.until_ms, record.table_id), b"")

    def _keep_no_longer(self, tx: Transaction, record: LakeTableRecord) -> None:
        usage.add(tx, record.catalog, usage.DROPPED_TABLES, -1)
        tx.clear(DROPPED.key(record.catalog, record.database, record.name, record.table_id))
        tx.clear(DROPPED_DUE.key(record.dropped.until_ms, record.table_id))

    def _delete(self, mutation: Mutation, record: LakeTableRecord, *, delete_files: bool) -> None:
        """Deletes all that the service knows of the table; its files are deleted after the transaction."""
        tx = mutation.tx
        usage.close_writers(tx, record.catalog, record.table_id)
        clean_schedule.clear(tx, record.table_id)
        tables.clear_content(tx, record.table_id)
        for holding in self._ownership.leave(tx, Holder.LAKE_TABLE, record.table_id):
            if delete_files and not record.external and not self._ownership.what_keeps(tx, holding):
                directories.begin_deletion(tx, record.location, mutation.now_ms, aside=False)

    # -- what can be brought back -------------------------------------------------------------------------------------

    def listed(
        self, catalog: str, database: str = "", *, after: tuple[str, str, int] | None = None, limit: int = 1_000
    ) -> list[LakeTableRecord]:
        """Dropped tables of one database or ("") of all, in the order of the names that they had.

        ``after``: database, name and table id of the last table of the page before.
        """
        within = (catalog_name(catalog), *([database.lower()] if database else []))
        if max(map(len, within)) > NAME_CHARS_MAX:  # no table has such a name, and it would not fit into a key
            return []

        def body(tx: ReadTransaction) -> list[LakeTableRecord]:
            begin, end = DROPPED.range(*within)
            if after is not None:
                begin = max(begin, DROPPED.key(catalog_name(catalog), *after) + b"\x00")
            pairs = tx.get_range(begin, end, limit=limit) if begin < end else []
            ids = [cast(int, DROPPED.unpack(key)[-1]) for key, _ in pairs]
            return [lake.get_record(tx, table_id, or_dropped=True) for table_id in ids]

        return self._store.read(body)

    def undrop(
        self,
        catalog: str,
        database: str,
        name: str,
        *,
        table_id: int = 0,
        new_database: str = "",
        new_name: str = "",
        request_id: str = "",
    ) -> LakeTable:
        """Brings back a table that had this name: the one with ``table_id``, or (0) the one dropped last.

        It has the id, versions, branches, tags and properties that it had when it was dropped. Raises TableNotFound if
        there is none; AlreadyExists if the (new) name is taken, or the location that the user had chosen;
        DatabaseNotFound, InvalidName, QuotaExceeded.
        """
        target = legal_name("table", new_name or name)
        target_database = (new_database or database).lower()

        def undrop(mutation: Mutation) -> LakeTableRecord:
            tx = mutation.tx
            record = _last_dropped(tx, catalog, database, name, table_id)
            owner = databases.get(tx, catalog, target_database)
            if tables.find(tx, owner.database_id, target) is not None:
                raise AlreadyExists(
                    f"table {owner.name}.{target} exists already; bring the dropped table back under another name",
                    table=target,
                )
            self._keep_no_longer(tx, record)
            self._quotas.take(tx, owner.catalog, usage.TABLES)
            record.ClearField("dropped")
            record.database, record.name = owner.name, target
            if record.external:
                self._ownership.take(tx, lake.holding(record), database_id=owner.database_id)
            entry = TableEntry(table_id=record.table_id, kind=pb.LAKE, hive_type="VIRTUAL_VIEW")
            tables.put(tx, owner.database_id, target, entry)
            lake.put(tx, record)
            clean_schedule.follow(tx, record, mutation.now_ms)
            after = definitions.lake_table(lake.load(tx, record.table_id))
            mutation.tell(events.of_lake_table(pbe.TABLE_UNDROPPED, after=after, request_id=request_id))
            return record

        def body(mutation: Mutation) -> tuple[LakeTable, bool]:
            kind = f"UndropTable {database}.{name} as {target_database}.{target}"
            record, repeated = mutation.once(request_id, kind, LakeTableRecord, undrop)
            return lake.load(mutation.tx, record.table_id), repeated

        table, repeated = self._mutations.run(body)
        if not repeated:
            _log.info(
                "brought back a dropped table",
                table=f"{table.record.database}.{table.record.name}",
                table_id=table.table_id,
                by=caller.current() or "the service",
            )
        return table

    def purge(self, catalog: str, database: str, name: str, *, table_id: int = 0, request_id: str = "") -> None:
        """Deletes a dropped table before its time is over. ``table_id`` says which of several that had the name.

        Raises TableNotFound, InvalidArgument if there are several, FilesLeft.
        """

        def purge(mutation: Mutation) -> LakeTableRecord:
            candidates = _dropped(mutation.tx, catalog, database, name, table_id)
            if len(candidates) > 1:
                ids = ", ".join(str(record.table_id) for record in candidates)
                raise InvalidArgument(
                    f"{len(candidates)} dropped tables had the name {database}.{name}: say which one by its table id "
                    f"({ids})"
                )
            self._purge(mutation, candidates[0], request_id)
            return candidates[0]

        def body(mutation: Mutation) -> tuple[LakeTableRecord, bool, bool]:
            record, repeated = mutation.once(request_id, f"PurgeTable {database}.{name}", LakeTableRecord, purge)
            return record, repeated, _is_being_deleted(mutation.tx, record)

        record, repeated, deleting = self._mutations.run(body)
        if not repeated:
            _tell("deleted a dropped table", record, None)
        if deleting:
            self._delete_files_of(record)

    def _purge(self, mutation: Mutation, record: LakeTableRecord, request_id: str = "") -> None:
        before = _definition(mutation.tx, record)
        kept = record.dropped.keep_files or record.external
        mutation.tell(events.of_lake_table(pbe.TABLE_PURGED, before, files_kept=kept, request_id=request_id))
        self._keep_no_longer(mutation.tx, record)
        self._delete(mutation, record, delete_files=not record.dropped.keep_files)

    # -- what is done in the background -------------------------------------------------------------------------------

    def purge_due(self, limit: int = PURGED_AT_ONCE_MAX) -> list[str]:
        """Deletes the dropped tables whose time is over. Returns the names that they had."""
        begin, end = DROPPED_DUE.range()[0], DROPPED_DUE.key(self._clock() + 1)
        due = self._store.read(lambda tx: tx.get_range(begin, end, limit=limit))
        names = []
        for key, _ in due:
            record = self._mutations.run(partial(self._purge_one_due, key))
            if record is not None:
                _tell("deleted a dropped table", record, None)
                names.append(f"{record.database}.{record.name}")
                if self._store.read(partial(_is_being_deleted, record=record)):
                    directories.try_to_delete(self._store, record.location, self._clock())
                    self._leave_database(record)
        return names

    def _purge_one_due(self, key: bytes, mutation: Mutation) -> LakeTableRecord | None:
        """None if the table was brought back or deleted meanwhile, or its time is not over after all."""
        tx = mutation.tx
        if tx.get(key) is None:
            return None
        record = lake.get_record(tx, cast(int, DROPPED_DUE.unpack(key)[-1]), or_dropped=True)
        if _prolong(tx, record.dropped):
            tx.clear(key)
            tx.set(DROPPED_DUE.key(record.dropped.until_ms, record.table_id), b"")
            lake.put(tx, record)
            return None
        self._purge(mutation, record)
        return record

    def _delete_files_of(self, record: LakeTableRecord) -> None:
        try:
            directories.finish_deletion(self._store, record.location, self._clock())
        except LakemarkError as error:  # it says that nothing was applied, which holds for the files only
            _log.warning("files of a dropped table cannot be deleted yet", reason=error.message)
            raise FilesLeft(
                f"the table is dropped, but {record.location} is still being deleted; ask again with the same request "
                f"id, or it is done within {LEFT_MS // 60_000 + 1} minutes",
                location=record.location,
            ) from error
        self._leave_database(record)

    def _leave_database(self, record: LakeTableRecord) -> None:
        """Removes the directory of a dropped database with the last dropped table that lay in it."""
        parent = posixpath.dirname(record.location)
        if parent.startswith(f"{self._warehouse}/") and not self._store.read(
            lambda tx: databases.find(tx, record.catalog, record.database)
        ):
            storage.remove_if_empty(parent)


def _is_being_deleted(tx: ReadTransaction, record: LakeTableRecord) -> bool:
    return bool(record.location) and closures.find(tx, record.location) is not None


def _prolong(tx: ReadTransaction, how: Dropped) -> bool:
    """Extends the time if the store was restored from a backup since. Returns False if it stays.

    The backup may be old: a table that was brought back after it was made is still dropped in it.
    """
    stored = tx.get(RESTORED)
    restored_ms = 0 if stored is None else int.from_bytes(stored, "big")
    if restored_ms <= how.dropped_ms or how.restored_ms == restored_ms:
        return False
    how.restored_ms, how.until_ms = restored_ms, max(how.until_ms, restored_ms + how.until_ms - how.dropped_ms)
    return True


def _how(now_ms: int, retain_ms: int, size: Size | None, *, keep_files: bool) -> Dropped:
    how = Dropped(dropped_ms=now_ms, until_ms=now_ms + retain_ms, by=caller.current(), keep_files=keep_files)
    if size is not None:
        how.version, how.files, how.bytes = size.version, size.files, size.size_bytes
    return how


def _require_not_protected(record: LakeTableRecord) -> None:
    if drop_policy.is_protected(record.properties):
        name = f"{record.database}.{record.name}"
        raise FailedPrecondition(
            f"{name} is protected and cannot be dropped, nor replaced by a statement that drops it first; to drop it, "
            f"remove the property {drop_policy.PROTECTED_PROPERTY} (lakemark tables set {name} --remove "
            f"{drop_policy.PROTECTED_PROPERTY})",
            table=name,
        )


def _dropped(tx: ReadTransaction, catalog: str, database: str, name: str, table_id: int) -> list[LakeTableRecord]:
    """Dropped tables of this name, and of this id unless it is 0. Raises TableNotFound if there is none."""
    names, ids = (catalog_name(catalog), database.lower(), name.lower()), []
    if max(map(len, names)) <= NAME_CHARS_MAX:
        pairs = tx.get_range(*DROPPED.range(*names), limit=OF_ONE_NAME_MAX)
        ids = [cast(int, DROPPED.unpack(key)[-1]) for key, _ in pairs]
    dropped = [lake.get_record(tx, dropped_id, or_dropped=True) for dropped_id in ids if table_id in (0, dropped_id)]
    if not dropped:
        which = f" with table id {table_id}" if table_id else ""
        raise TableNotFound(
            f"there is no dropped table {database}.{name}{which} that could be brought back; "
            f"lakemark tables list {database} --dropped shows those that can",
            database=database,
            table=name,
        )
    return dropped


def _last_dropped(tx: ReadTransaction, catalog: str, database: str, name: str, table_id: int) -> LakeTableRecord:
    dropped = _dropped(tx, catalog, database, name, table_id)
    return max(dropped, key=lambda record: (record.dropped.dropped_ms, record.table_id))


def _tell(what: str, record: LakeTableRecord, size: Size | None) -> None:
    """Logs one line for each table: a drop may have been a mistake."""
    known = {} if size is None else {"versions": size.version, "files": size.files, "bytes": size.size_bytes}
    _log.info(
        what,
        table=f"{record.database}.{record.name}",
        table_id=record.table_id,
        location=record.location,
        by=caller.current() or "the service",
        until=time_text(record.dropped.until_ms) if record.dropped.until_ms else "now",
        **known,
    )


def _definition(tx: ReadTransaction, record: LakeTableRecord) -> pb.Table:
    """For the event. A table whose schema is damaged can still be dropped."""
    try:
        schema = lake.get_schema(tx, record.table_id, record.schema_id)
    except CorruptStore:
        schema = Schema(())
    return definitions.lake_table(LakeTable(record, schema))
