"""A table as one transaction sees it: what every job of a batch asks for is read once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from functools import cached_property

from lakemark_proto.store.v1.store_pb2 import HeadRecord
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.store.keyspace import BRANCH_KEYS, MAIN
from lakemark_server.store.mutations import Mutation
from lakemark_server.timeline import records
from lakemark_server.timeline.branches import forks
from lakemark_server.timeline.conflicts.changes import Change, Operation
from lakemark_server.timeline.instants import alive
from lakemark_server.timeline.instants.alive import Alive
from lakemark_server.timeline.lineage import Lineage


class BranchState:
    """A branch in a transaction: ``head`` moves as versions are published, ``fresh`` are their changes."""

    def __init__(self, lineage: Lineage, head: HeadRecord) -> None:
        self.lineage = lineage
        self.head = head
        self.fresh: list[Change] = []


class TableState:
    """Lives as long as its mutation, which makes all changes of the table's writers through it."""

    def __init__(self, mutation: Mutation, table_id: int) -> None:
        self.mutation = mutation
        self.tx = mutation.tx
        self.table_id = table_id
        self.branches: dict[str, BranchState] = {}
        self._writers: dict[int, Alive] | None = None
        self._operations: Counter[Operation] = Counter()
        self._starts_guarded = False

    @cached_property
    def table(self) -> LakeTable:
        """Raises TableNotFound: the table was dropped."""
        return lake.load(self.tx, self.table_id)

    def branch(self, key: str) -> BranchState:
        """By key. Raises BranchNotFound: it was dropped."""
        branch = self.branches.get(key)
        if branch is None:
            if key != MAIN:
                self._guard_branch(key)
            lineage = forks.lineage(self.tx, self.table_id, key)
            branch = self.branches[key] = BranchState(lineage, records.head(self.tx, self.table_id, key))
        return branch

    def branch_named(self, name: str) -> BranchState:
        """Raises BranchNotFound."""
        return self.branch(forks.resolve(self.tx, self.table_id, name).key)

    def _guard_branch(self, key: str) -> None:
        """Whoever drops the branch writes its record: of the two transactions one fails."""
        forks.require_kept(self.tx, self.table_id, key)
        record = BRANCH_KEYS.key(self.table_id, key)
        self.tx.add_read_conflict(record, record + b"\x00")

    @property
    def writers(self) -> Mapping[int, Alive]:
        """By instant, those that are requested or in flight; a snapshot read, so that heartbeats disturb nobody."""
        if self._writers is None:
            self._writers = {one.instant: one for one in alive.of_table(self.tx, self.table_id)}
            self._operations = Counter(one.operation for one in self._writers.values())
        return self._writers

    @property
    def operations(self) -> Collection[Operation]:
        """Of ``writers``: few, however many they are."""
        return self._operations.keys() if self.writers else ()

    def put_writer(self, writer: Alive) -> None:
        alive.put(self.tx, self.table_id, writer)
        self._forget_writer(writer.instant)
        if self._writers is not None:
            self._writers[writer.instant] = writer
            self._operations[writer.operation] += 1

    def clear_writer(self, instant: int) -> None:
        alive.clear(self.tx, self.table_id, instant)
        self._forget_writer(instant)

    def _forget_writer(self, instant: int) -> None:
        known = self._writers.pop(instant, None) if self._writers is not None else None
        if known is not None:
            self._operations[known.operation] -= 1
            if not self._operations[known.operation]:
                del self._operations[known.operation]

    def guard_starts(self) -> None:
        """Of two writers that start at the same moment, one sees the other (``records.guard_starts``)."""
        if not self._starts_guarded:
            self._starts_guarded = True
            records.guard_starts(self.tx, self.table_id)
