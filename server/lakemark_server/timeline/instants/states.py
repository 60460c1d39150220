"""Which state of an instant allows what, and what is said when it does not."""

from __future__ import annotations

from typing import Final

from lakemark_core.errors import CommitConflict, InstantStateError
from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_proto.v1 import timeline_pb2 as pb

ADVICE: Final = "open a new instant, read the latest version and try again"


def require_inflight(record: InstantRecord) -> None:
    """Raises InstantStateError that says what the instant is instead, and why.

    An instant whose commit was refused answers with that refusal, a CommitConflict, however often it is asked.
    """
    if record.state == pb.INFLIGHT:
        return
    if record.HasField("conflict"):
        raise CommitConflict(record.conflict.message, **record.conflict.details)
    state = pb.InstantState.Name(record.state)
    why = {
        pb.REQUESTED: "it was not started: tell what it is going to write (StartInstant) first",
        pb.COMPLETED: f"it was committed as version {record.version}",
        pb.ROLLED_BACK: f"it was rolled back: {record.rolled_back_reason or 'no reason was given'}",
    }.get(record.state, "")
    raise InstantStateError(
        f"instant {record.instant} is {state}, not INFLIGHT; {why}", instant=str(record.instant), state=state
    )


def expired(record: InstantRecord) -> InstantStateError:
    return InstantStateError(
        f"the heartbeat of instant {record.instant} ran out after {record.heartbeat_timeout_ms} ms; it holds nothing "
        f"any more and its files are given up: {ADVICE}",
        instant=str(record.instant),
        state="EXPIRED",
    )
