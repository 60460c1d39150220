"""Jobs that change a table's schema, as a version of the main branch: every version is read with the schema it has.

Such a change conflicts with nothing. A writer that began before it commits files of the older schema, and the later
schema reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from lakemark_core.errors import InvalidArgument
from lakemark_core.evolution import SchemaChange
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord, VersionRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_proto.v1.events_pb2 import SCHEMA_CHANGED
from lakemark_server.catalog import definitions, lake, schemas
from lakemark_server.catalog.events import of_lake_table
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.catalog.schema_changes import describe
from lakemark_server.context import caller
from lakemark_server.store.keyspace import MAIN
from lakemark_server.store.requests import check_request_id
from lakemark_server.timeline.jobs.job import JOB_BYTES, Batch, Job
from lakemark_server.timeline.publication.direct import publish_now

WORDS_CHARS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class AlterJob(Job):
    """Changes of which all are made or none. ``expected_schema_id`` 0: whatever is the latest."""

    changes: tuple[SchemaChange, ...]
    expected_schema_id: int = 0
    request_id: str = ""
    by: caller.Name = field(default_factory=caller.name)

    @property
    def size_bytes(self) -> int:
        return JOB_BYTES

    def check(self) -> None:
        """Raises InvalidArgument for what can be seen to be wrong without the store."""
        check_request_id(self.request_id)

    def run(self, batch: Batch) -> LakeTable:
        """The table with its new schema; as it is if nothing was to change, and as it was if this is asked for again.

        Raises InvalidSchema, FailedPrecondition (another schema than expected), LimitExceeded, InvalidArgument.
        """
        return altered_once(batch, self.request_id, "AlterSchema", self._alter)

    def _alter(self, batch: Batch) -> LakeTableRecord:
        state = batch.state
        table = schemas.changed(state.table, self.changes, self.expected_schema_id)
        if table is state.table:
            return table.record
        words = shortened("; ".join(map(describe, self.changes)))
        fields = VersionRecord(schema_id=table.schema.schema_id, metadata={"changes": words})
        version = publish_now(state, state.branch(MAIN), fields, pb.ALTER_SCHEMA, batch.mutation.now_ms, self.by)
        schemas.put(state.tx, table, self.changes, version.version, version.committed_ms)
        before, after = (definitions.lake_table(one, version.version) for one in (state.table, table))
        event = of_lake_table(SCHEMA_CHANGED, before, after, request_id=self.request_id)
        event.by = caller.text_of(self.by)
        batch.mutation.tell(event)
        state.table = table
        return table.record


def altered_once(batch: Batch, request_id: str, what: str, alter: Callable[[Batch], LakeTableRecord]) -> LakeTable:
    """The table that ``alter`` makes; as it was then if this request was answered before."""
    kind = f"{what} of table {batch.state.table_id}"
    record = batch.mutation.once(request_id, kind, LakeTableRecord, lambda _: alter(batch)).answer
    return LakeTable(record, lake.get_schema(batch.state.tx, record.table_id, record.schema_id))


def shortened(words: str) -> str:
    """What a version's metadata keeps of the words that say what it changes."""
    return words if len(words) <= WORDS_CHARS_MAX else words[: WORDS_CHARS_MAX - 1] + "…"


def check_branch(branch: str) -> None:
    """Raises InvalidArgument for another branch than main."""
    if branch not in ("", MAIN):
        raise InvalidArgument(
            f"a schema belongs to the table and not to branch {branch!r}: change it on main; the branch has it from "
            "its next commit on",
            branch=branch,
        )
