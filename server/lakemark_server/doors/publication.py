"""Makes a commit of each directory: reads its footers, moves its files to where slices lie, and publishes them.

Every step can be done again, by whichever process: the instant is found by the directory's request id, a file has one
place to which it is moved, and an instant is committed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

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
from lakemark_core.messages.values import partition_to_proto, value_to_proto
from lakemark_core.parquet.footers import FooterStatistics, read_footer, statistics_of
from lakemark_core.parquet.stored import check_stored
from lakemark_core.storage import open_location
from lakemark_core.types import Field, Schema, check_fits
from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_proto.v1 import timeline_pb2
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.context import caller
from lakemark_server.doors import contents
from lakemark_server.doors.directories import GivenDirectory, StatementFile, data_paths, slice_of
from lakemark_server.kv import Store
from lakemark_server.timeline.jobs.opening import OWNER_CHARS_MAX, OpenJob
from lakemark_server.timeline.publication.commits import CommitDraft
from lakemark_server.timeline.service import Timeline

DoorKind: TypeAlias = Literal["append", "overwrite"]

HEARTBEAT_MS: Final = 3_600_000
"""For so long another process can finish what one that died has begun."""
FOOTERS_AT_ONCE: Final = 8
DOOR_METADATA: Final = "door"
"""A commit's metadata say by this which door it came through."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Statement:
    """The rows of one statement, and where they go."""

    kind: DoorKind
    branch: str
    directory: GivenDirectory


class Publication:
    """Thread-safe."""

    def __init__(self, store: Store, timeline: Timeline) -> None:
        self._store = store
        self._timeline = timeline
        self._footers = ThreadPoolExecutor(FOOTERS_AT_ONCE, thread_name_prefix="door-footers")

    def publish(self, table: LakeTable, statements: Sequence[Statement]) -> dict[GivenDirectory, int]:
        """Commits all of them or none; each is a version of its own. Returns how many files each has.

        Raises what refuses one of them (CommitConflict, InvalidSchema, LimitExceeded …), after which their instants
        are rolled back; UnknownOutcome if that cannot be found out, and it has to be asked for again.
        """
        open_instants: list[int] = []
        drafts: list[CommitDraft] = []
        files: dict[GivenDirectory, int] = {}
        try:
            for statement in statements:
                record = self._open(table, statement)
                if record.state == timeline_pb2.COMPLETED:
                    files[statement.directory] = record.staged.files
                    continue
                open_instants.append(record.instant)
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
            # Another process has done it at the same time, or the store's answer was lost.
            _log.info("a commit through a door was found to be made", table=table.name, reason=error.message)
            return {one.directory: self._open(table, one).staged.files for one in statements}
        except Exception as error:
            self._took_back(table, open_instants, Internal(f"it failed here: {error}"))
            raise
        return files

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

    def _open(self, table: LakeTable, statement: Statement) -> InstantRecord:
        """The statement's instant, which may be committed already.

        Raises CommitConflict, FailedPrecondition (it was rolled back before).
        """
        schema = self._schema(table, statement)
        operation = timeline_pb2.APPEND
        profile = timeline_pb2.WorkProfile()
        if statement.kind == "overwrite":
            operation = timeline_pb2.OVERWRITE_TABLE
            profile.whole_table = not schema.partition_columns
            if schema.partition_columns:
                sources = self._sources(table, statement.directory)
                partitions = dict.fromkeys(slice_of(source, 0, schema).partition for source in sources)
                # Without rows nothing is replaced. If others have moved the files by now, the instant is open already.
                operation = timeline_pb2.OVERWRITE_PARTITIONS if partitions else timeline_pb2.APPEND
                profile.partitions.extend(
                    timeline_pb2.WorkProfile.Partition(values=partition_to_proto(one, schema)) for one in partitions
                )
        job = OpenJob(
            operation,
            statement.branch,
            statement.directory.request_id,
            caller.current()[:OWNER_CHARS_MAX],
            {DOOR_METADATA: statement.kind},
            HEARTBEAT_MS,
            # What the statement may have read: an overwrite must not lose what came since.
            statement.directory.version if statement.kind == "overwrite" else None,
            profile,
        )
        record = self._timeline.open(table.table_id, job).record
        if record.state == timeline_pb2.ROLLED_BACK:
            raise FailedPrecondition(f"the rows of the statement were given up: {record.rolled_back_reason}")
        return record

    def _schema(self, table: LakeTable, statement: Statement) -> Schema:
        """Which the files were written with; another one may have come since."""
        schema_id = statement.directory.schema_id
        if schema_id == table.schema.schema_id:
            return table.schema
        return self._store.read(lambda tx: lake.get_schema(tx, table.table_id, schema_id))

    def _sources(self, table: LakeTable, directory: GivenDirectory) -> list[str]:
        return data_paths(path for path, _ in storage.list_files(storage.join(table.record.location, directory.path)))

    def _draft(self, table: LakeTable, statement: Statement, instant: int) -> CommitDraft:
        """The commit, once its files are checked and in their places. Raises InvalidSchema, InvalidFile …"""
        schema, directory, location = self._schema(table, statement), statement.directory, table.record.location
        # In this order: a file that is moved between the two is in both lists, and never in none.
        here = [slice_of(source, instant, schema) for source in self._sources(table, directory)]
        if len({one.target for one in here}) < len(here):
            raise InvalidFile(f"the statement wrote two files that would be one in {table.name}; it was not committed")
        moved = {f"{instant}/{path}" for path, _ in storage.list_files(storage.join(location, str(instant)))}
        slices = {one.target: one for one in (*here, *_moved(moved, instant, schema))}
        files = list(
            self._footers.map(
                lambda one: self._file(table, schema, directory, one, is_moved=one.target in moved), slices.values()
            )
        )
        empty = {file.path for file in files if not file.row_count}
        contents.move(
            location,
            (
                (f"{directory.path}/{one.source}", one.target)
                for one in here
                if one.target not in moved and one.target not in empty
            ),
        )
        added = [file for file in files if file.path not in empty]
        return CommitDraft(
            instant,
            pb.DataFiles(list=pb.DataFileList(files=added)) if added else None,
            schema_id=directory.schema_id,
            metadata={DOOR_METADATA: statement.kind},
            by=caller.name(),
        )

    def _file(
        self, table: LakeTable, schema: Schema, directory: GivenDirectory, one: StatementFile, *, is_moved: bool
    ) -> pb.DataFile:
        """Raises InvalidSchema, InvalidFile."""
        system, root = open_location(table.record.location)
        places = [storage.join(root, directory.path, one.source), storage.join(root, one.target)]
        try:
            metadata, size = read_footer(places[is_moved], system)
        except InvalidFile:
            if is_moved or system.get_file_info(places[True]).type != fs.FileType.File:
                raise
            metadata, size = read_footer(places[True], system)  # another process has moved it just now
        reasons = check_fits(schema, metadata.schema.to_arrow_schema()) or check_stored(schema, metadata)
        statistics = statistics_of(metadata, schema)
        nulls = {known.column_id for known in statistics if known.null_count}
        reasons += [
            f"column '{field.name}' is NOT NULL, and the statement has nulls in it"
            for field in schema.data_columns
            if not field.nullable and field.id in nulls
        ]
        reasons += [
            f"partition column '{field.name}' is NOT NULL, and the statement has nulls in it"
            for field, value in zip(schema.partition_fields, one.partition, strict=True)
            if not field.nullable and value is None
        ]
        if reasons:
            raise InvalidSchema(f"the rows do not fit {table.name}: {'; '.join(reasons)}", table=table.name)
        return pb.DataFile(
            path=one.target,
            size_bytes=size,
            row_count=metadata.num_rows,
            file_group=one.group,
            kind=pb.BASE,
            format="parquet",
            partition=partition_to_proto(one.partition, schema),
            statistics=[message for known in statistics if (message := _message(known, schema)) is not None],
        )


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


def _message(known: FooterStatistics, schema: Schema) -> pb.ColumnStatistics | None:
    field: Field | None = schema.find_id(known.column_id)
    if field is None:
        return None
    return pb.ColumnStatistics(
        column_id=known.column_id,
        min=None if known.low is None else value_to_proto(known.low, field.type),
        max=None if known.high is None else value_to_proto(known.high, field.type),
        null_count=known.null_count,
        nan_count=known.nan_count,
        min_truncated=known.low_truncated,
        max_truncated=known.high_truncated,
    )
