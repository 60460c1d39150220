"""Jobs of writers that name their table: they wait for a batch before anything is read from the store.

Which table a name means is decided where it matters, in the transaction of the batch, with one read for all jobs of the
batch that have the name. What the name meant the last time only tells in which queue to wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lakemark_core.errors import NotFound, UnsupportedOperation
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.kv import ReadMemo
from lakemark_server.timeline.jobs.job import Batch, Decision, Job, Retry, TableKey
from lakemark_server.timeline.publication.table_state import TableState

NAMES_MAX: Final = 10_000


class TableNames:
    """Which tables names mean, as far as it is known. Thread-safe."""

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

    def reads(self, name: TableKey) -> Sequence[bytes]:
        """The keys that ``means`` is going to read, as far as they are known."""
        return self._tables.reads(name)

    def means(self, state: TableState, name: TableKey) -> bool:
        """Whether the name means the table of ``state``, which is given the table then; else the name is forgotten."""
        try:
            table = self._tables.get(state.tx, name)
        except (NotFound, UnsupportedOperation):
            table = None
        if table is None or table.table_id != state.table_id:
            self._ids.pop(name, None)
            return False
        state.table = table
        return True


@dataclass(slots=True)
class NamedJob(Job):
    """Another job that waited in the queue of the table which its name meant last.

    Not frozen, for the reason that ``SmallCommitJob`` gives; nobody changes it.
    """

    name: TableKey
    job: Job
    names: TableNames

    @property
    def size_bytes(self) -> int:
        return self.job.size_bytes

    def reads(self, table_id: int) -> Sequence[bytes]:
        return *self.names.reads(self.name), *self.job.reads(table_id)

    def prepare(self, batch: Batch) -> None:
        means = batch.meanings.get(self.name)
        if means is None:
            means = batch.meanings[self.name] = self.names.means(batch.state, self.name)
        if means:
            self.job.prepare(batch)

    def run(self, batch: Batch) -> Decision:
        return self.job.run(batch) if batch.meanings[self.name] else Retry.OTHER_TABLE
