"""A writer: one instant of a table, from its beginning to its commit or rollback."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Annotated, Final, Self
from uuid import uuid4

import pyarrow as pa

from lakemark.arguments import SHALLOW, checked
from lakemark.client.calls import Calls
from lakemark.client.heartbeat import Beat, Heartbeats
from lakemark.client.model import Commit, InstantState, Operation, commit_from, state_word
from lakemark.client.partitions import Partition, work_profile
from lakemark.files import DataFile, files_message
from lakemark.files.columns import arrow_stream
from lakemark.parquet import Rows, WrittenFiles, write_table
from lakemark_core.errors import CommitConflict, InstantStateError, InvalidArgument, LakemarkError, UncommittedWarning
from lakemark_core.messages.types import schema_from_proto
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_proto.v1 import types_pb2
from lakemark_proto.v1.timeline_pb2_grpc import TimelineServiceStub

STAGE_FILES_MAX: Final = 20_000
"""Files in one request. More files are staged in several requests."""

REASON_CHARS_MAX: Final = 900
CONFLICT_REASON: Final = "another writer was first"
"""How the reason of a rollback begins that a conflict was the cause of."""

Files = pa.Table | Sequence[Annotated[DataFile, SHALLOW]]


@checked
class Writer:
    """An open instant. Use it in a ``with`` block: leaving the block without a commit rolls the instant back.

    If an error ends the block, it propagates. Otherwise UncommittedWarning says that staged files are lost.

    Write files below ``location`` in the layout of ``DataFile.path``, ``stage`` them in as many calls as you like, then
    ``commit``. A heartbeat runs in the background. Made by ``Client.begin``; not thread-safe.
    """

    def __init__(
        self,
        calls: Calls,
        heartbeats: Heartbeats,
        table: types_pb2.TableName,
        opened: pb.Instant,
        operation: Operation,
        opening: pb.OpenInstantRequest | None = None,
    ) -> None:
        self._call = calls
        self._stub = TimelineServiceStub(calls.channel)
        self._heartbeats = heartbeats
        self._table = table
        self.instant = opened.instant
        self.location = opened.staging_location
        self.read_version = opened.read_version
        self.operation: Final = operation
        self.schema = schema_from_proto(opened.schema)
        self.state: InstantState = state_word(opened.state)
        self._opening = opening
        self._next: pb.Instant | None = None
        self._sequence = 0
        self._staged_files = self._removed_files = 0
        self._commit: Commit | None = None
        self._beat: Beat | None = None
        if self.state in ("requested", "inflight"):
            self._beat = heartbeats.add(table, opened.instant, opened.heartbeat_timeout_ms)

    @property
    def table(self) -> str:
        """``database.table``."""
        return f"{self._table.database}.{self._table.table}"

    @property
    def alive(self) -> bool:
        """False once the service has given the instant up, or it was committed or rolled back."""
        return self._beat is not None and not self._beat.lost

    @property
    def committed(self) -> bool:
        """Whether it is committed. True from the start if the request id of ``begin`` was committed before."""
        return self.state == "completed"

    def start(
        self,
        partitions: Iterable[Partition] | None = None,
        *,
        whole_table: bool = False,
        file_groups: Iterable[str] = (),
        columns: Iterable[str] = (),
    ) -> None:
        """Moves from requested to inflight, and tells the service what this writer is going to change.

        ``partitions`` are those that will be written or, by an overwrite, replaced. ``whole_table`` means any
        partition, including new ones, because the result depends on all of them. ``file_groups`` are those that get
        deltas or whose files are replaced. ``columns`` are those that an upsert writes (none: whole rows). Raises
        CommitConflict at once if the work would collide with a commit since ``read_version`` or with another open
        writer.
        """
        profile = work_profile(
            partitions, self.schema, whole_table=whole_table, file_groups=file_groups, columns=columns
        )
        request = pb.StartInstantRequest(table=self._table, instant=self.instant, profile=profile)
        self._call(self._stub.StartInstant, request, mutation=True)
        self.state = "inflight"

    def remove(self, paths: Sequence[str]) -> int:
        """Removes files of the version that was read, with the commit. Returns how many are staged in all.

        For upserts, deletes, overwrites by predicate, compactions and clusterings that replace files. Raises
        InvalidFile for a path that the version does not have, or that was removed before.
        """
        removed = 0
        for start in range(0, len(paths), STAGE_FILES_MAX):
            request = pb.StageFilesRequest(
                table=self._table,
                instant=self.instant,
                removed=pb.RemovedFiles(paths=paths[start : start + STAGE_FILES_MAX]),
                sequence=self._sequence + 1,
            )
            removed = self._call(self._stub.StageFiles, request, mutation=True).removed_files
            self._removed_files = removed
            self._sequence += 1
        return removed

    def stage(self, files: Files, *, file_schema: pa.Schema | None = None) -> int:
        """Adds files to what will be committed. Returns how many are staged in all.

        ``files`` are DataFile objects or an Arrow table with the columns of docs/files.md. ``file_schema``, the Arrow
        schema of the data files, is checked against the table's, and for types that plain Spark cannot read. Raises
        InvalidFile, InvalidSchema, InstantStateError.
        """
        staged = 0
        for start in range(0, max(len(files), 1), STAGE_FILES_MAX):
            page = files[start : start + STAGE_FILES_MAX]
            # Count after success only: a failed request may be repeated with other files.
            request = pb.StageFilesRequest(
                table=self._table,
                instant=self.instant,
                added=self._message(page),
                sequence=self._sequence + 1,
                file_schema=_schema_bytes(file_schema),
            )
            staged = self._call(self._stub.StageFiles, request, mutation=True).staged_files
            self._staged_files = staged
            self._sequence += 1
        return staged

    def write(self, rows: Rows) -> WrittenFiles:
        """Writes rows as parquet, one file for each partition, and stages the files.

        ``rows``: a DataFrame of pandas or Polars, a relation of DuckDB, a pyarrow Table or RecordBatch, or anything
        else that exports Arrow data by ``__arrow_c_stream__`` or ``__arrow_c_array__``. It has the table's columns by
        name, partition columns included; nullable ones may be missing. Raises InvalidSchema with every column that does
        not fit, InvalidArgument for what cannot be read as rows, and what ``stage`` raises: InvalidFile, too, if the
        table has buckets, which ``lakemark_spark`` writes.
        """
        written = write_table(rows, self)
        self.stage(written.files, file_schema=written.schema)
        return written

    def commit(
        self,
        files: Files = (),
        *,
        removed: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
        file_schema: pa.Schema | None = None,
        begin_next: bool = False,
    ) -> Commit:
        """Publishes what was staged, and ``files``, as one version. Repeated calls return the same commit.

        ``removed``: paths of files to remove (see ``remove``). ``metadata`` is kept with the version. ``begin_next``:
        the same request opens the instant of ``next``, which saves every second request in a loop of commits. Raises
        CommitConflict if another commit or writer was first (the instant is rolled back then: open a new one),
        InstantStateError, InvalidFile, InvalidSchema.
        """
        if self._commit is not None:
            return self._commit
        if len(files) > STAGE_FILES_MAX:
            self.stage(files, file_schema=file_schema)
            files = ()
        if len(removed) > STAGE_FILES_MAX:
            self.remove(removed)
            removed = ()
        request = pb.CommitRequest(
            table=self._table,
            instant=self.instant,
            added=self._message(files) if files else None,
            removed=pb.RemovedFiles(paths=removed) if removed else None,
            metadata=metadata,
            schema_id=self.schema.schema_id,
            file_schema=_schema_bytes(file_schema) if files else b"",
        )
        if begin_next:
            request.next.CopyFrom(self._again())
        answer = self._call(self._stub.Commit, request, mutation=True)
        self._next = answer.next if answer.HasField("next") else None
        self._end("completed")
        self._commit = commit_from(answer)
        return self._commit

    def as_request(self, metadata: Mapping[str, str] | None = None) -> pb.CommitRequest:
        """The commit of what was staged, as part of a transaction (``Client.commit_together``)."""
        return pb.CommitRequest(
            table=self._table, instant=self.instant, metadata=metadata, schema_id=self.schema.schema_id
        )

    def published(self, answer: pb.CommitResponse) -> Commit:
        """The commit that a transaction made of this writer."""
        self._end("completed")
        self._commit = commit_from(answer)
        return self._commit

    def next(self) -> Writer:
        """The writer of the next commit, with the same arguments: opened with this commit (``begin_next``), or now.

        Raises InvalidArgument for a writer that named partitions, file groups or columns, or that was not started when
        it began: only its user knows what the next one will change. Raises also what ``Client.begin`` raises.
        """
        opened, self._next = self._next, None
        again = self._again()
        if opened is None:
            opened = self._call(self._stub.OpenInstant, again, mutation=True)
        return Writer(self._call, self._heartbeats, self._table, opened, self.operation, self._opening)

    def _again(self) -> pb.OpenInstantRequest:
        if self._opening is None:
            raise InvalidArgument(
                "this writer began with a work profile, or was not started: begin again with Client.begin"
            )
        again = pb.OpenInstantRequest()
        again.CopyFrom(self._opening)
        again.read_version, again.request_id = 0, str(uuid4())
        return again

    def rollback(self, reason: str = "") -> None:
        """Gives the instant up: nobody ever sees what it wrote. Raises InstantStateError if it is committed."""
        request = pb.RollbackInstantRequest(table=self._table, instant=self.instant, reason=reason)
        self._call(self._stub.RollbackInstant, request, mutation=True)
        self._end("rolled_back")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._next is not None:  # opened, but never used
            unused = pb.RollbackInstantRequest(table=self._table, instant=self._next.instant, reason="it was not used")
            with contextlib.suppress(LakemarkError):
                self._call(self._stub.RollbackInstant, unused, mutation=True)
        if self.state in ("completed", "rolled_back"):
            return
        reason = "the writer ended without a commit"
        if error is not None:
            what = (
                CONFLICT_REASON if isinstance(error, CommitConflict) else f"the writer failed: {type(error).__name__}"
            )
            reason = f"{what}: {error}"[:REASON_CHARS_MAX]
        if error is None:
            self.rollback(reason)
            self._warn()
            return
        # The error that ended the block must stay visible.
        with contextlib.suppress(LakemarkError):
            self.rollback(reason)
        self._end("rolled_back")

    @contextlib.contextmanager
    def rolled_back_on_error(self) -> Iterator[None]:
        """Rolls the instant back if the block fails, and leaves it open otherwise."""
        try:
            yield
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def _warn(self) -> None:
        """Warns of files that the end of a ``with`` block rolled back. Called last, because a warning may be an
        error."""
        if self._staged_files or self._removed_files:
            added = f"the rows of {_files(self._staged_files, 'staged ')}" if self._staged_files else ""
            removed = f"the removal of {_files(self._removed_files)}" if self._removed_files else ""
            warnings.warn(
                f"the 'with' block of a writer of {self.table} ended without a commit: instant {self.instant} is "
                f"rolled back, and {' and '.join(filter(None, (added, removed)))} with it. End the block with "
                "writer.commit(), or with writer.rollback() if nothing is to be kept",
                UncommittedWarning,
                stacklevel=3,
            )

    def _end(self, state: InstantState) -> None:
        self.state = state
        if self._beat is not None:
            self._heartbeats.remove(self._beat)
            self._beat = None

    def _message(self, files: Files) -> types_pb2.DataFiles:
        if self._beat is not None and self._beat.lost:
            raise InstantStateError(
                f"instant {self.instant} of {self.table} is lost: the service heard nothing of this writer in time and "
                "gave it up; begin again",
                instant=str(self.instant),
            )
        if isinstance(files, pa.Table):
            return types_pb2.DataFiles(arrow=arrow_stream(files))
        return files_message(files, self.schema)


def _files(count: int, which: str = "") -> str:
    return f"{count} {which}file{'s' if count != 1 else ''}"


def _schema_bytes(schema: pa.Schema | None) -> bytes:
    return b"" if schema is None else schema.serialize().to_pybytes()
