"""What every kind of job offers to the batch that runs it, and what the jobs of a batch share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from lakemark_core.errors import LakemarkError
from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_server.admission.quotas import Quotas
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.store.mutations import Mutation
from lakemark_server.timeline.conflicts.change_log import ChangeLog
from lakemark_server.timeline.jobs.reading import SmallCommits
from lakemark_server.timeline.publication.commits import Commit, Committed
from lakemark_server.timeline.publication.table_state import TableState
from lakemark_server.timeline.refusals import Refusal

if TYPE_CHECKING:
    from lakemark_server.timeline.jobs.opening import OpenJob

TableKey: TypeAlias = tuple[str, str, str]
"""Catalog, database and table, as a request has them."""

JOB_BYTES: Final = 1_500
"""What a job writes beside its files, metadata and profile, conflict ranges included."""


class Retry(Enum):
    """Why a batch did not decide a job: whoever handed it in asks again, with a thread of its own."""

    UNKNOWN_NAME = "the name was not looked up before"
    OTHER_TABLE = "the name means another table now, or none"
    NOT_SMALL = "the commit brings more than a batch reads"


@dataclass(frozen=True, slots=True)
class Opened:
    """What a writer gets: its instant, and the table with the schema that the instant was opened with."""

    record: InstantRecord
    table: LakeTable

    @classmethod
    def before(cls, state: TableState, record: InstantRecord) -> Opened:
        """For an instant that was opened before: its files are checked with its schema, which may not be the latest."""
        table = state.table
        if record.schema_id != table.schema.schema_id:
            table = replace(table, schema=lake.get_schema(state.tx, state.table_id, record.schema_id))
        return cls(record, table)


class CommittedAndOpened(NamedTuple):
    """``opened`` is the next instant of the writer, or why it was refused; the commit stands in either case."""

    committed: Committed
    opened: Opened | LakemarkError


Answer: TypeAlias = Opened | Committed | CommittedAndOpened | LakeTable | Retry


class PendingCommit(NamedTuple):
    """A commit that the batch publishes together with its others, after all of its jobs were run.

    ``following`` is run as soon as the commit is published, and not at all if it is refused.
    """

    commit: Commit
    following: OpenJob | None = None


Decision: TypeAlias = Answer | PendingCommit


@dataclass(slots=True)
class Batch:
    """What the jobs of a batch share in one attempt at its transaction.

    ``meanings``: of each name that a job of the batch has, whether it means this table. ``refused_starts``: writers
    that were refused before they began.
    """

    mutation: Mutation
    state: TableState
    log: ChangeLog
    quotas: Quotas
    commits: SmallCommits = field(default_factory=SmallCommits)
    meanings: dict[TableKey, bool] = field(default_factory=dict)
    refused_starts: list[Refusal] = field(default_factory=list)


class Job(Protocol):
    """What a writer asks of one table. A job never changes: its batch may be run several times."""

    __slots__ = ()

    @property
    def size_bytes(self) -> int:
        """About how many bytes it writes. What an instant was given at its opening is written again with its commit,
        which is seen only in the transaction."""
        ...

    def reads(self, table_id: int) -> Sequence[bytes]:
        """The keys that it is nearly sure to read, as far as they are known; none by default."""
        return ()

    def prepare(self, batch: Batch) -> None:
        """Called for all jobs of a batch before any of them is run. Does nothing by default. An error fails the
        batch."""
        return

    def run(self, batch: Batch) -> Decision:
        """Decides the job, and writes what comes of it. A LakemarkError is the answer to this job alone; it is raised
        before anything is written. But Unavailable, which the store may raise in the middle, fails the batch."""
        ...
