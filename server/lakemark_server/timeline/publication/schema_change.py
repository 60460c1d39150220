"""A change of a table's schema as a version of the main branch: every version is read with the schema it came with.

It conflicts with nothing: a writer that began before commits files of the older schema, which the later one reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lakemark_core.errors import InvalidArgument
from lakemark_core.evolution import SchemaChange
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord, VersionRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.catalog import lake, schemas
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.catalog.schema_changes import describe
from lakemark_server.store.keyspace import MAIN
from lakemark_server.store.requests import once
from lakemark_server.timeline.publication.direct import publish_now
from lakemark_server.timeline.publication.table_state import TableState

WORDS_CHARS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class AlterJob:
    """Changes that are made all or none. ``expected_schema_id`` 0: whatever is the latest."""

    changes: tuple[SchemaChange, ...]
    expected_schema_id: int = 0
    request_id: str = ""


def check_branch(branch: str) -> None:
    """Raises InvalidArgument for another branch than main."""
    if branch not in ("", MAIN):
        raise InvalidArgument(
            f"a schema belongs to the table and not to branch {branch!r}: change it on main; the branch has it from "
            "its next commit on",
            branch=branch,
        )


def altered_once(state: TableState, job: AlterJob, now_ms: int) -> LakeTable:
    """The table with its new schema; as it is if nothing was to change, and as it was if this is asked for again.

    Raises InvalidSchema, FailedPrecondition (another schema than expected), LimitExceeded, InvalidArgument.
    """
    kind = f"AlterSchema of table {state.table_id}"
    record = once(state.tx, job.request_id, kind, now_ms, LakeTableRecord, lambda: _alter(state, job, now_ms))
    return LakeTable(record, lake.get_schema(state.tx, record.table_id, record.schema_id))


def _alter(state: TableState, job: AlterJob, now_ms: int) -> LakeTableRecord:
    table = schemas.changed(state.table, job.changes, job.expected_schema_id)
    if table is state.table:
        return table.record
    words = "; ".join(map(describe, job.changes))
    if len(words) > WORDS_CHARS_MAX:
        words = words[: WORDS_CHARS_MAX - 1] + "…"
    fields = VersionRecord(schema_id=table.schema.schema_id, metadata={"changes": words})
    version = publish_now(state, state.branch(MAIN), fields, pb.ALTER_SCHEMA, now_ms)
    schemas.put(state.tx, table, job.changes, version.version, version.committed_ms)
    state.table = table
    return table.record
