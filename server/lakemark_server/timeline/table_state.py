"""A table as one transaction sees it: what every job of a batch asks for is read once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from lakemark_proto.store.v1.store_pb2 import HeadRecord
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.kv import Transaction
from lakemark_server.timeline import alive, records
from lakemark_server.timeline.alive import Alive


class TableState:
    """Lives as long as its transaction, which makes all changes of the table's writers through it."""

    def __init__(self, tx: Transaction, table_id: int, branch: str) -> None:
        self.tx = tx
        self.table_id = table_id
        self.branch = branch
        self._writers: dict[int, Alive] | None = None

    @cached_property
    def table(self) -> LakeTable:
        """Raises TableNotFound: the table was dropped."""
        return lake.load(self.tx, self.table_id)

    @cached_property
    def head(self) -> HeadRecord:
        return records.head(self.tx, self.table_id, self.branch)

    @property
    def writers(self) -> Mapping[int, Alive]:
        """By instant, those that are requested or in flight; a snapshot read, so that heartbeats disturb nobody."""
        if self._writers is None:
            self._writers = {one.instant: one for one in alive.of_table(self.tx, self.table_id)}
        return self._writers

    def put_writer(self, writer: Alive) -> None:
        alive.put(self.tx, self.table_id, writer)
        if self._writers is not None:
            self._writers[writer.instant] = writer

    def clear_writer(self, instant: int) -> None:
        alive.clear(self.tx, self.table_id, instant)
        if self._writers is not None:
            self._writers.pop(instant, None)
