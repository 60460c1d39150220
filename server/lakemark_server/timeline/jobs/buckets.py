"""Jobs that split and merge buckets of an extendible index, as a version of the main branch.

No file is touched, and nothing is in the way: the directory says where new files go, and each file says itself which
keys it has. A writer that began before commits files of the older buckets, and readers put them together by their keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from lakemark_core.bucket_directory import BucketChanges, described
from lakemark_core.errors import InvalidArgument, LimitExceeded
from lakemark_core.table_kind import INDEX_PROPERTY
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord, VersionRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.context import caller
from lakemark_server.store.keyspace import MAIN
from lakemark_server.store.requests import check_request_id
from lakemark_server.timeline.jobs.alteration import altered_once, shortened
from lakemark_server.timeline.jobs.job import JOB_BYTES, Batch, Job
from lakemark_server.timeline.publication.direct import publish_now

CHANGES_MAX: Final = 65_536


@dataclass(frozen=True, slots=True)
class BucketsJob(Job):
    """Buckets to split, and buckets to make of their halves, by number: all of it, or nothing."""

    split: tuple[int, ...]
    merge: tuple[int, ...]
    request_id: str = ""
    by: caller.Name = field(default_factory=caller.name)

    @property
    def size_bytes(self) -> int:
        return JOB_BYTES

    def check(self) -> None:
        """Raises InvalidArgument, LimitExceeded for what can be seen to be wrong without the store."""
        check_request_id(self.request_id)
        if not self.split and not self.merge:
            raise InvalidArgument("no bucket to split or to merge is given")
        if len(self.split) + len(self.merge) > CHANGES_MAX:
            raise LimitExceeded(f"at most {CHANGES_MAX} buckets are changed by one request")

    def run(self, batch: Batch) -> LakeTable:
        """The table with its new directory; as it was if this is asked for again.

        Raises InvalidArgument, FailedPrecondition (the directory is another one by now, or a limit is reached).
        """
        return altered_once(batch, self.request_id, "AlterBuckets", self._alter)

    def _alter(self, batch: Batch) -> LakeTableRecord:
        state = batch.state
        directory = state.table.kind.directory
        if directory is None:
            raise InvalidArgument(
                f"{state.table.name} has no buckets that are split or merged: it was not created with "
                f"{INDEX_PROPERTY} = 'extendible'",
                table=state.table.name,
            )
        record = LakeTableRecord()
        record.CopyFrom(state.table.record)
        record.bucket_directory = directory.altered(self.split, self.merge).to_bytes()
        words = shortened(described(BucketChanges(self.split, self.merge)))
        version = VersionRecord(metadata={"changes": words})
        publish_now(state, state.branch(MAIN), version, pb.ALTER_BUCKETS, batch.mutation.now_ms, self.by)
        lake.put(state.tx, record)
        state.table = LakeTable(record, state.table.schema)
        return record
