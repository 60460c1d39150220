"""Makes a commit of each directory: reads its footers, moves its files to where slices lie, and publishes them.

Every step can be done again, by whichever process: the instant is found by the directory's request id, a file has one
place to which it is moved, and an instant is committed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import structlog
from pyarrow import fs

from lakemark_core import storage
from lakemark_core.errors import (
    FailedPrecondition,
    InstantStateError,
    Internal,
    InvalidFile,
    InvalidSchema,
    LakemarkError,
    UnknownOutcome,
)
from lakemark_core.messages.values import partition_to_proto
from lakemark_core.parquet.footers import read_footer
from lakemark_core.parquet.stored import check_stored
from lakemark_core.storage import open_location
from lakemark_core.types import ColumnValue, Schema, check_fits
from lakemark_proto.store.v1.doors_pb2 import DoorDirectoryRecord
from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_proto.v1 import timeline_pb2
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.context import caller
from lakemark_server.context.periodic import PeriodicThread
from lakemark_server.doors import contents, records
from lakemark_server.doors.base_files import BaseFileLookup
from lakemark_server.doors.directories import GivenDirectory, StatementFile, data_paths, slice_of
from lakemark_server.doors.entries import entry_of
from lakemark_server.doors.keyed_files import BYTES_MAX, KeyedFiles
from lakemark_server.doors.parts import in_parts
from lakemark_server.doors.statements import DoorKind, Statement
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.store.mutations import Mutation
from lakemark_server.timeline.jobs.opening import OWNER_CHARS_MAX, OpenJob, find_opened
from lakemark_server.timeline.publication.commits import CommitDraft
from lakemark_server.timeline.publication.rollback import roll_back
from lakemark_server.timeline.service import Timeline

HEARTBEAT_MS: Final = 120_000
"""For so long another process can finish what one that died has begun. Until then it blocks others."""
APPEND_HEARTBEAT_MS: Final = 3_600_000
"""An append blocks nobody."""
HEARTBEAT_S: Final = 20.0
"""How often it is told that a statement is still worked on."""
FOOTERS_AT_ONCE: Final = 8
DOOR_METADATA: Final = "door"
"""A commit's metadata say by this which door it came through."""

_OPERATIONS: Final[dict[DoorKind, timeline_pb2.Operation.ValueType]] = {
    "overwrite": timeline_pb2.OVERWRITE_PARTITIONS,
    "upsert": timeline_pb2.UPSERT,
    "delete": timeline_pb2.DELETE,
}

_log = structlog.get_logger(__name__)


def committed(tx: ReadTransaction, table_id: int, directories: Iterable[GivenDirectory]) -> dict[GivenDirectory, int]:
    """Those whose files are committed already, and how many files each of them has."""
    instants = {one: find_opened(tx, table_id, one.request_id) for one in directories}
    return {
        one: instant.staged.files
        for one, instant in instants.items()
        if instant is not None and instant.state == timeline_pb2.COMPLETED
    }


def give_up(
    mutation: Mutation, table: LakeTable, directories: Iterable[GivenDirectory], reason: str
) -> list[InstantRecord]:
    """Retires directories that are not committed, and rolls back what is open of them: others may work on them.

    Returns what was rolled back. Its files are to be deleted after the transaction.
    """
    rolled_back = []
    for directory in directories:
        records.retire(mutation.tx, table.table_id, [directory], reason, mutation.now_ms)
        instant = find_opened(mutation.tx, table.table_id, directory.request_id)
        if instant is not None and instant.state in (timeline_pb2.REQUESTED, timeline_pb2.INFLIGHT):
            roll_back(mutation, table.record, instant, reason)
            rolled_back.append(instant)
    return rolled_back


class Publication:
    """Thread-safe."""

    def __init__(self, store: Store, timeline: Timeline, snapshots: Snapshots, bytes_max: int = BYTES_MAX) -> None:
        self._store = store
        self._timeline = timeline
        self._footers = ThreadPoolExecutor(FOOTERS_AT_ONCE, thread_name_prefix="door-footers")
        self._keyed = KeyedFiles(BaseFileLookup(store, snapshots), self._footers, bytes_max)

    def publish(self, table: LakeTable, statements: Sequence[Statement]) -> dict[GivenDirectory, int]:
        """Commits all of them or none; each is a version of its own. Returns how many files each has.

        Raises what refuses one of them (CommitConflict, InvalidSchema, LimitExceeded …), after which their instants
        are rolled back; UnknownOutcome if that cannot be found out, and it has to be asked for again.
        """
        open_instants: list[int] = []
        drafts: list[CommitDraft] = []
        files: dict[GivenDirectory, int] = {}
        alive = PeriodicThread(
            "door-heartbeat", HEARTBEAT_S, lambda: self._timeline.heartbeat(table.table_id, list(open_instants))
        )
        try:
            if any(statement.kind != "append" for statement in statements):
                alive.start()
            for statement in statements:
                record = self._open(table, statement)
                if record.state == timeline_pb2.COMPLETED:
                    files[statement.directory] = record.staged.files
                    continue
                open_instants.append(record.instant)
                self._require_undecided(table, statement)
                if record.state == timeline_pb2.INFLIGHT and statement.kind != "append":
                    # An earlier attempt may have opened it long ago.
                    self._timeline.heartbeat(table.table_id, [record.instant])
                draft = self._draft(table, statement, record.instant)
                files[statement.directory] = len(draft.added.list.files) if draft.added is not None else 0
                drafts.append(draft)
            if len(drafts) == 1:
                self._timeline.commit(table, drafts[0])
            elif drafts:
                self._timeline.commit_together([(table, draft) for draft in drafts])
        except LakemarkError as error:
            if self._took_back(table, open_instants, error):
                raise
            return self._found(table, statements, error)
        except Exception as error:
            failure = Internal(f"it failed here: {error}")
            if self._took_back(table, open_instants, failure):
                raise
            return self._found(table, statements, failure)
        finally:
            alive.stop()
        return files

    def discard(self, table: LakeTable, statements: Sequence[Statement]) -> None:
        """Deletes the files of statements that are published, of which others were made."""
        for statement in statements if table.kind.key else ():
            with suppress(LakemarkError):  # the sweep finds what is left
                contents.delete_rows(table.record.location, statement.directory)

    def _took_back(self, table: LakeTable, instants: Sequence[int], error: LakemarkError) -> bool:
        """Whether the instants were not committed, of which all are or none; they are rolled back then.

        Raises UnknownOutcome if that cannot be found out.
        """
        committed = 0
        for instant in instants:
            try:
                self._timeline.rollback(table, instant, error.message)
            except InstantStateError:
                committed += 1
            except LakemarkError as failure:
                raise UnknownOutcome(f"whether rows were committed is not known yet: {failure.message}") from error
        return not instants or committed < len(instants)

    def _found(
        self, table: LakeTable, statements: Sequence[Statement], error: LakemarkError
    ) -> dict[GivenDirectory, int]:
        """As ``publish`` returns it, though that failed: another process has done it, or the answer was lost.

        Raises UnknownOutcome if some are not committed, since it failed before they were reached.
        """
        directories = [one.directory for one in statements]
        files = self._store.read(lambda tx: committed(tx, table.table_id, directories))
        if len(files) < len(directories):
            raise UnknownOutcome(f"not all rows are committed yet: {error.message}") from error
        _log.info("a commit through a door was found to be made", table=table.name, reason=error.message)
        return files

    def _open(self, table: LakeTable, statement: Statement) -> InstantRecord:
        """The statement's instant, which may be committed already.

        Raises CommitConflict, FailedPrecondition (it was rolled back before).
        """
        schema = self._schema(table, statement)
        operation, profile = timeline_pb2.APPEND, timeline_pb2.WorkProfile()
        if statement.kind != "append":
            sources = self._sources(table, statement.directory)
            partitions = dict.fromkeys(slice_of(source, 0, schema).partition for source in sources)
            whole = statement.kind == "overwrite" and not schema.partition_columns
            # Without rows nothing is replaced. If others have moved the files by now, the instant is open already.
            if partitions or whole:
                operation = timeline_pb2.OVERWRITE_TABLE if whole else _OPERATIONS[statement.kind]
            profile.whole_table = whole
            profile.partitions.extend(
                timeline_pb2.WorkProfile.Partition(values=partition_to_proto(one, schema))
                for one in partitions
                if not whole
            )
        job = OpenJob(
            operation,
            statement.branch,
            statement.directory.request_id,
            caller.current()[:OWNER_CHARS_MAX],
            {DOOR_METADATA: statement.kind},
            APPEND_HEARTBEAT_MS if statement.kind == "append" else HEARTBEAT_MS,
            # What the statement may have read: it must not lose what came since. An append has read nothing.
            None if statement.kind == "append" else statement.directory.version,
            profile,
        )
        record = self._timeline.open(table.table_id, job).record
        if record.state == timeline_pb2.ROLLED_BACK:
            raise FailedPrecondition(f"the rows of the statement were given up: {record.rolled_back_reason}")
        return record

    def _require_undecided(self, table: LakeTable, statement: Statement) -> None:
        """Raises FailedPrecondition if another process gave the statement up before its instant was open.

        If it does so later it rolls the instant back.
        """
        known = self._store.read(lambda tx: records.find(tx, table.table_id, statement.directory))
        if known.outcome == DoorDirectoryRecord.RETIRED:
            raise FailedPrecondition(f"the rows of the statement were given up: {known.reason}")

    def _schema(self, table: LakeTable, statement: Statement) -> Schema:
        """Which the files were written with; another one may have come since."""
        schema_id = statement.directory.schema_id
        if schema_id == table.schema.schema_id:
            return table.schema
        return self._store.read(lambda tx: lake.get_schema(tx, table.table_id, schema_id))

    def _sources(self, table: LakeTable, directory: GivenDirectory) -> dict[str, int]:
        """The sizes of the files that a statement has written, by their paths in its directory, in order."""
        sizes = dict(storage.list_files(storage.join(table.record.location, directory.path)))
        return {path: sizes[path] for path in data_paths(sizes)}

    def _draft(self, table: LakeTable, statement: Statement, instant: int) -> CommitDraft:
        """The commit, once its files are checked and in their places. Raises InvalidSchema, InvalidFile …"""
        schema = self._schema(table, statement)
        if table.kind.key:
            sources = self._sources(table, statement.directory)
            added = self._keyed.write(table, schema, statement, sources, instant)
        else:
            added = self._moved_files(table, schema, statement.directory, instant)
        return CommitDraft(
            instant,
            pb.DataFiles(list=pb.DataFileList(files=added)) if added else None,
            schema_id=statement.directory.schema_id,
            metadata={DOOR_METADATA: statement.kind},
            by=caller.name(),
        )

    def _moved_files(
        self, table: LakeTable, schema: Schema, directory: GivenDirectory, instant: int
    ) -> list[pb.DataFile]:
        """Those of the statement that have rows, once they are checked and in their places."""
        location = table.record.location
        # In this order: a file that is moved between the two is in both lists, and never in none.
        here = [slice_of(source, instant, schema) for source in self._sources(table, directory)]
        if len({one.target for one in here}) < len(here):
            raise InvalidFile(f"the statement wrote two files that would be one in {table.name}; it was not committed")
        moved = {f"{instant}/{path}" for path, _ in storage.list_files(storage.join(location, str(instant)))}
        slices = {one.target: one for one in (*here, *_moved(moved, instant, schema))}
        files = in_parts(
            self._footers,
            lambda one: self._file(table, schema, directory, one, is_moved=one.target in moved),
            slices.values(),
        )
        empty = {file.path for file in files if not file.row_count}
        contents.move(
            location,
            (
                (f"{directory.path}/{one.source}", one.target)
                for one in here
                if one.target not in moved and one.target not in empty
            ),
            self._footers,
        )
        return [file for file in files if file.path not in empty]

    def _file(
        self, table: LakeTable, schema: Schema, directory: GivenDirectory, one: StatementFile, *, is_moved: bool
    ) -> pb.DataFile:
        """Raises InvalidSchema, InvalidFile."""
        system, root = open_location(table.record.location)
        places = [storage.join(root, directory.path, one.source), storage.join(root, one.target)]
        try:
            footer = read_footer(places[is_moved], system)
        except InvalidFile:
            if is_moved or system.get_file_info(places[True]).type != fs.FileType.File:
                raise
            footer = read_footer(places[True], system)  # another process has moved it just now
        metadata, _ = footer
        reasons = check_fits(schema, metadata.schema.to_arrow_schema()) or check_stored(schema, metadata)
        if not reasons:
            entry = entry_of(one.target, footer, schema, one.partition, one.group)
            reasons = _nulls(entry, schema, one.partition)
            if not reasons:
                return entry
        raise InvalidSchema(f"the rows do not fit {table.name}: {'; '.join(reasons)}", table=table.name)


def _nulls(entry: pb.DataFile, schema: Schema, partition: tuple[ColumnValue, ...]) -> list[str]:
    """In which columns a file has nulls that may not be there."""
    with_nulls = {known.column_id for known in entry.statistics if known.null_count}
    reasons = [
        f"column '{field.name}' is NOT NULL, and the statement has nulls in it"
        for field in schema.data_columns
        if not field.nullable and field.id in with_nulls
    ]
    return reasons + [
        f"partition column '{field.name}' is NOT NULL, and the statement has nulls in it"
        for field, value in zip(schema.partition_fields, partition, strict=True)
        if not field.nullable and value is None
    ]


def _moved(targets: set[str], instant: int, schema: Schema) -> list[StatementFile]:
    """The slices that an earlier attempt has moved. ``targets``: what lies below the instant's directory."""
    slices = []
    for path in targets:
        above, _, name = path.removeprefix(f"{instant}/").rpartition("/")
        partition = above.rpartition("/")[0]
        one = slice_of(f"{partition}/{name}" if partition else name, instant, schema)
        if one.target == path:
            slices.append(one)
    return slices
