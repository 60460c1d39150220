"""Jobs of writers that name their table: they queue before anything is read from the store.

Which table a name means is decided where it matters, in the transaction of the batch, with one read for all jobs of the
batch. What the name meant the last time only tells in which queue to wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from lakemark_core.errors import LakemarkError, NotFound, UnsupportedOperation
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.kv import ReadMemo
from lakemark_server.timeline.batching.jobs import MOVED, Moved, OpenJob
from lakemark_server.timeline.batching.reading import read_commits
from lakemark_server.timeline.publication.publish import CommitJob
from lakemark_server.timeline.publication.table_state import TableState

NAMES_MAX: Final = 10_000
TableKey: TypeAlias = tuple[str, str, str]
"""Catalog, database and table, as a request has them."""


@dataclass(frozen=True, slots=True)
class NamedJob:
    """``work``: an instant that is wanted, or a commit (``reading.is_small``) whose files have not been read yet."""

    name: TableKey
    work: OpenJob | pb.CommitRequest


class TableNames:
    """Thread-safe."""

    def __init__(self) -> None:
        self._ids: dict[TableKey, int] = {}
        self._tables: ReadMemo[TableKey, LakeTable] = ReadMemo(
            lambda tx, name: lake.get(tx, *name), entries_max=NAMES_MAX
        )

    def last_id(self, name: TableKey) -> int | None:
        """The table that the name meant when it was last looked up."""
        return self._ids.get(name)

    def learn(self, name: TableKey, table_id: int) -> None:
        if len(self._ids) >= NAMES_MAX:
            self._ids.clear()
        self._ids[name] = table_id

    def reads(self, jobs: Sequence[NamedJob]) -> list[bytes]:
        """The keys that ``understood`` is going to read, as far as they are known."""
        return [key for name in {job.name for job in jobs} for key in self._tables.reads(name)]

    def understood(
        self, state: TableState, jobs: Sequence[NamedJob]
    ) -> list[OpenJob | CommitJob | Moved | LakemarkError]:
        """What each job wants of the table, its files read and checked, or why it cannot be had."""
        meant = {name: self._means(state, name) for name in {job.name for job in jobs}}
        commits = [job.work for job in jobs if isinstance(job.work, pb.CommitRequest) and meant[job.name]]
        read = iter(read_commits(state.tx, state.table, commits) if commits else ())
        found: list[OpenJob | CommitJob | Moved | LakemarkError] = []
        for job in jobs:
            if not meant[job.name]:
                found.append(MOVED)
            else:
                found.append(job.work if isinstance(job.work, OpenJob) else next(read))
        return found

    def _means(self, state: TableState, name: TableKey) -> bool:
        """Whether the name means this table."""
        try:
            table = self._tables.get(state.tx, name)
        except (NotFound, UnsupportedOperation):
            table = None
        if table is None or table.table_id != state.table_id:
            self._ids.pop(name, None)
            return False
        state.table = table
        return True
