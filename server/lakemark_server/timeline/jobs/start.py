"""Jobs that start instants which were only requested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.store.keyspace import ALIVE, INSTANTS
from lakemark_server.timeline import records
from lakemark_server.timeline.instants import alive
from lakemark_server.timeline.instants.alive import Alive
from lakemark_server.timeline.instants.states import expired, require_inflight
from lakemark_server.timeline.jobs.early_conflicts import check_start
from lakemark_server.timeline.jobs.job import JOB_BYTES, Batch, Job, Opened


@dataclass(frozen=True, slots=True)
class StartJob(Job):
    """A writer that tells what it is going to do. ``profile`` stays the data message that the writer sent."""

    instant: int
    profile: pb.WorkProfile

    @property
    def size_bytes(self) -> int:
        return JOB_BYTES + self.profile.ByteSize()

    def reads(self, table_id: int) -> Sequence[bytes]:
        return INSTANTS.key(table_id, self.instant), ALIVE.key(table_id, self.instant)

    def run(self, batch: Batch) -> Opened:
        """REQUESTED -> INFLIGHT. Raises CommitConflict, InstantStateError, InstantNotFound, InvalidArgument."""
        state, now_ms = batch.state, batch.mutation.now_ms
        record = records.instant(state.tx, state.table_id, self.instant)
        if record.state != pb.INFLIGHT:  # else it is asked for again
            if record.state != pb.REQUESTED:
                require_inflight(record)
            living = alive.find(state.tx, state.table_id, self.instant)
            if living is None or living.expired(now_ms):
                raise expired(record)
            check_start(batch, state.branch(record.branch), record, self.profile)
            record.state = pb.INFLIGHT
            records.put_instant(state.tx, state.table_id, record)
            timeout = record.heartbeat_timeout_ms
            state.put_writer(Alive(record.instant, now_ms + timeout, timeout, True, record.operation))
        return Opened.before(state, record)
