"""The partitions an instant touches, by name, as long as they fit a record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lakemark_core.errors import LimitExceeded
from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_server.timeline.conflicts.changes import Operation
from lakemark_server.timeline.conflicts.rules import OVERWRITE_PARTITIONS

NAMES_MAX: Final = 1_000
BYTES_MAX: Final = 40_000


class PartitionList:
    """Becomes "all partitions" when there are too many to list, which is safe for conflicts: it only collides more.

    An overwrite of partitions must know exactly what it replaces, so there it is a limit: LimitExceeded.
    """

    def __init__(self, operation: Operation, names: Iterable[str], all_partitions: bool) -> None:
        self._operation = operation
        self._names = set(names)
        self.all_partitions = all_partitions
        self._bound()

    @classmethod
    def of(cls, record: InstantRecord) -> PartitionList:
        return cls(record.operation, record.partitions, record.all_partitions)

    @property
    def names(self) -> list[str]:
        return sorted(self._names)

    def add(self, names: Iterable[str]) -> None:
        self._names.update(names)
        self._bound()

    def write_to(self, record: InstantRecord) -> None:
        record.partitions[:] = self.names
        record.all_partitions = self.all_partitions

    def _bound(self) -> None:
        if self.all_partitions:
            self._names.clear()
        elif len(self._names) > NAMES_MAX or _bytes(self._names) > BYTES_MAX:
            if self._operation == OVERWRITE_PARTITIONS:
                raise LimitExceeded(
                    f"one commit overwrites at most {NAMES_MAX} partitions by name ({BYTES_MAX} bytes of names); "
                    f"this one names {len(self._names)}. Cut it into several, or overwrite the whole table"
                )
            self._names.clear()
            self.all_partitions = True


def _bytes(names: Iterable[str]) -> int:
    return len("".join(names).encode())
