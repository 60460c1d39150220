"""Rolling back: an instant's files and entries are given up, inside a transaction, and deleted after it."""

from __future__ import annotations

import structlog

from lakemark_core import storage
from lakemark_core.errors import CommitConflict, LakemarkError
from lakemark_proto.store.v1.store_pb2 import InstantRecord, LakeTableRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.admission import usage
from lakemark_server.context import caller
from lakemark_server.store.mutations import Mutation
from lakemark_server.timeline import events, records
from lakemark_server.timeline.instants import alive, staging
from lakemark_server.timeline.publication.commits import Commit
from lakemark_server.timeline.publication.table_state import TableState

_log = structlog.get_logger(__name__)


def refuse(state: TableState, commit: Commit, conflict: CommitConflict) -> bool:
    """Rolls back an instant whose commit is refused; False if it was before.

    The versions that it lost to stay: it could never succeed, and must not hold off others until it expires.
    """
    record = records.instant(state.tx, state.table_id, commit.instant)
    if record.state != pb.INFLIGHT:
        return False
    keep_conflict(record, conflict)
    roll_back(state.mutation, state.table.record, record, conflict.message, commit.by)
    state.clear_writer(commit.instant)
    return True


def keep_conflict(record: InstantRecord, conflict: CommitConflict) -> None:
    """As the answer to a commit that is asked for again."""
    record.conflict.code, record.conflict.message = conflict.code, conflict.message
    record.conflict.details.update({key: value[:1_000] for key, value in conflict.details.items()})


def roll_back(
    mutation: Mutation, table: LakeTableRecord, record: InstantRecord, reason: str, by: caller.Name = caller.nobody
) -> None:
    """``by`` is told if it is not the current caller. Raises what the store raises."""
    tx, table_id = mutation.tx, table.table_id
    record.state = pb.ROLLED_BACK
    record.completed_ms = mutation.now_ms
    record.rolled_back_reason = reason[:1_000]
    records.put_instant(tx, table_id, record)
    alive.clear(tx, table_id, record.instant)
    staging.discard(tx, table_id, record.instant)
    usage.close_writer(tx, table.catalog, record.staged.files, record.staged.bytes)
    mutation.tell(events.of_rollback(table, record, caller.text_of(by)))


def delete_files(location: str, instant: int) -> None:
    """The writer may be alive against all odds and write on: nobody will ever look into its directory."""
    try:
        storage.delete_directory(storage.join(location, str(instant)))
    except LakemarkError as error:
        _log.warning("files of a rolled back instant were left behind", instant=instant, reason=error.message)
