"""The live writers of a table: one small entry each, with the time at which its heartbeat runs out."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, cast

from lakemark_proto.v1 import timeline_pb2
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.store.keyspace import ALIVE
from lakemark_server.timeline.conflicts.changes import Operation

_LAYOUT: Final = struct.Struct("<qqBB")  # deadline ms, timeout ms, state, operation


FIRST: Final = ALIVE.range()[0]
PAGE_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Alive:
    """``inflight``: its work profile is known and protected; else it is only requested."""

    instant: int
    deadline_ms: int
    timeout_ms: int
    inflight: bool
    operation: Operation

    def expired(self, now_ms: int) -> bool:
        return self.deadline_ms < now_ms

    def pack(self) -> bytes:
        state = timeline_pb2.INFLIGHT if self.inflight else timeline_pb2.REQUESTED
        return _LAYOUT.pack(self.deadline_ms, self.timeout_ms, state, self.operation)

    @classmethod
    def unpack(cls, instant: int, value: bytes) -> Alive:
        deadline, timeout, state, operation = _LAYOUT.unpack(value)
        return cls(
            instant, deadline, timeout, state == timeline_pb2.INFLIGHT, timeline_pb2.Operation.ValueType(operation)
        )


def put(tx: Transaction, table_id: int, alive: Alive) -> None:
    tx.set(ALIVE.key(table_id, alive.instant), alive.pack())


def find(tx: ReadTransaction, table_id: int, instant: int) -> Alive | None:
    value = tx.get(ALIVE.key(table_id, instant))
    return None if value is None else Alive.unpack(instant, value)


def clear(tx: Transaction, table_id: int, instant: int) -> None:
    tx.clear(ALIVE.key(table_id, instant))


def of_table(tx: ReadTransaction, table_id: int) -> list[Alive]:
    """All of them, oldest first; a snapshot read, so that heartbeats disturb nobody."""
    begin, end = ALIVE.range(table_id)
    return [
        Alive.unpack(cast(int, ALIVE.unpack(key)[-1]), value) for key, value in tx.get_range(begin, end, snapshot=True)
    ]


def everywhere(tx: ReadTransaction, begin: bytes = FIRST) -> tuple[list[tuple[int, Alive]], bytes]:
    """A page of (table id, writer) of all tables from this key on, and the key where the next begins; b"": it was the
    last."""
    pairs = tx.get_range(begin, ALIVE.range()[1], limit=PAGE_MAX, snapshot=True)
    writers = []
    for key, value in pairs:
        table_id, instant = cast(tuple[int, int], ALIVE.unpack(key))
        writers.append((table_id, Alive.unpack(instant, value)))
    return writers, pairs[-1][0] + b"\x00" if len(pairs) == PAGE_MAX else b""
