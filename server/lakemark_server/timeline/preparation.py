"""Preparing commits: what has to happen outside of the transaction that publishes them.

The files that a request brings are read and checked, the files that it takes out are looked up, and what does not fit
into a version's own record is staged.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from lakemark_core.errors import InvalidArgument
from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_proto.v1.types_pb2 import DataFiles
from lakemark_server.admission.quotas import Quotas
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.pages.blocks import LIST_FILES_MAX
from lakemark_server.file_index.partition_buckets import PartitionBuckets
from lakemark_server.store.mutations import Mutations
from lakemark_server.timeline import records
from lakemark_server.timeline.branches import forks
from lakemark_server.timeline.instants import staging
from lakemark_server.timeline.key_overlaps import BaseFile, check_overlaps
from lakemark_server.timeline.lineage import Lineage
from lakemark_server.timeline.publication.commits import Commit, CommitDraft


class VersionFiles(Protocol):
    """The files of versions, which commits that take some out have to look up."""

    def find_files(self, table: LakeTable, lineage: Lineage, version: int, paths: Sequence[str]) -> pa.RecordBatch:
        """The fixed columns of these live files, in the order of the paths. Raises InvalidFile."""
        ...

    def sharing_keys(
        self, table: LakeTable, lineage: Lineage, version: int, buckets: PartitionBuckets
    ) -> Iterator[BaseFile]:
        """The live base files that share keys with one of the buckets."""
        ...


class Preparation:
    """Thread-safe; holds no state that another process would need."""

    def __init__(self, mutations: Mutations, files: VersionFiles, quotas: Quotas) -> None:
        self._mutations = mutations
        self._store = mutations.store
        self._files = files
        self._quotas = quotas
        self._reading = threading.Lock()

    def stage(
        self,
        table: LakeTable,
        instant: int,
        sequence: int,
        added: DataFiles | None,
        removed: Sequence[str],
        file_schema: bytes,
    ) -> InstantRecord:
        """See ``Timeline.stage``."""
        if not 1 <= sequence < staging.COMMIT_SEQUENCE:
            raise InvalidArgument("sequence must be 1 for the first request that stages files, then 2, 3 …")
        table = self._as_written(table, instant)
        if file_schema:
            staging.check_file_schema(file_schema, table)
        entries = staging.NO_ENTRIES if added is None else staging.read_entries(added, table, instant)
        if removed:
            entries = self._with_removed(entries, table, self._instant(table, instant), removed)
        return staging.stage(self._mutations, table, instant, entries, sequence, self._quotas)

    def commit(self, table: LakeTable, draft: CommitDraft) -> Commit | InstantRecord:
        """What is left to publish once everything is staged that does not fit into the version's own record; the
        instant itself if it was committed before.

        Raises InvalidArgument, InvalidFile, InvalidSchema, InstantStateError, InstantNotFound, LimitExceeded.
        """
        draft.check()
        instant, entries = draft.instant, staging.NO_ENTRIES
        table = self._as_written(table, instant, draft.schema_id)
        if draft.file_schema:
            staging.check_file_schema(draft.file_schema, table)
        if draft.added is not None:
            entries = self._read_entries(draft.added, table, instant)
        extendible = table.kind.directory is not None
        if draft.removed or not entries.inline or extendible:
            record = self._instant(table, instant)
            if record.state == pb.COMPLETED:
                return record
            entries = self._with_removed(entries, table, record, draft.removed)
            if extendible:
                check_overlaps(self._store, self._files, table, record, entries)
            if not entries.inline:
                staging.stage(self._mutations, table, instant, entries, staging.COMMIT_SEQUENCE, self._quotas)
                entries = staging.NO_ENTRIES
        return Commit(instant, draft.schema_id, draft.metadata, entries, draft.by)

    def _instant(self, table: LakeTable, instant: int) -> InstantRecord:
        return self._store.read(lambda tx: records.instant(tx, table.table_id, instant))

    def _with_removed(
        self, entries: staging.Entries, table: LakeTable, record: InstantRecord, paths: Sequence[str]
    ) -> staging.Entries:
        """Looks the files up in the version that the writer has read. Raises InvalidFile for those it does not have."""
        if not paths:
            return entries
        lineage = self._store.read(lambda tx: forks.lineage(tx, table.table_id, record.branch))
        return staging.with_removed(entries, self._files.find_files(table, lineage, record.read_version, paths))

    def _as_written(self, table: LakeTable, instant: int, schema_id: int = 0) -> LakeTable:
        """With the schema that the instant's files were written with, which need not be the latest."""
        if table.schema.schema_id == 1:  # there never was another one
            return table
        return self._store.read(lambda tx: staging.written_with(tx, table, instant, schema_id))

    def _read_entries(self, files: DataFiles, table: LakeTable, instant: int) -> staging.Entries:
        """Few files are read by one request at a time. Each of the many calls into Arrow gives up the interpreter's
        lock, and threads that do so at once spend more time on getting it back than on their work."""
        if files.WhichOneof("form") == "list" and len(files.list.files) <= LIST_FILES_MAX:
            with self._reading:
                return staging.read_entries(files, table, instant)
        return staging.read_entries(files, table, instant)
