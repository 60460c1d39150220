"""Lists of a table's instants: never more work in one request than a page of them takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.kv import ReadTransaction
from lakemark_server.store.keyspace import INSTANTS
from lakemark_server.timeline.instants import alive

PAGE_MAX: Final = 1_000
LOOKED_AT_MAX: Final = 5_000
_OPEN: Final = frozenset({pb.REQUESTED, pb.INFLIGHT})


def instants(
    tx: ReadTransaction,
    table_id: int,
    *,
    after: int,
    before: int,
    states: frozenset[int],
    limit: int,
    newest_first: bool,
) -> tuple[list[InstantRecord], int]:
    """Those with ``after < instant < before`` (0: no bound), and the one behind which to go on; 0: that was all.

    Those that are open have an index. For another state at most ``LOOKED_AT_MAX`` are looked at, and there may be fewer
    than ``limit`` though there are more.
    """
    open_only = bool(states) and states <= _OPEN
    records = _open(tx, table_id, after, before) if open_only else _all(tx, table_id, after, before, newest_first)
    if open_only and newest_first:
        records = reversed(list(records))
    chosen: list[InstantRecord] = []
    last = 0
    for looked_at, record in enumerate(records):
        if len(chosen) == limit or (looked_at == LOOKED_AT_MAX and not open_only):
            return chosen, last
        last = record.instant
        if not states or record.state in states:
            chosen.append(record)
    return chosen, 0


def _open(tx: ReadTransaction, table_id: int, after: int, before: int) -> Iterator[InstantRecord]:
    numbers = [one.instant for one in alive.of_table(tx, table_id) if after < one.instant < (before or one.instant + 1)]
    for at in range(0, len(numbers), PAGE_MAX):
        page = tx.get_many([INSTANTS.key(table_id, number) for number in numbers[at : at + PAGE_MAX]])
        yield from (InstantRecord.FromString(value) for value in page if value is not None)


def _all(tx: ReadTransaction, table_id: int, after: int, before: int, newest_first: bool) -> Iterator[InstantRecord]:
    begin = INSTANTS.key(table_id, after + 1)
    end = INSTANTS.key(table_id, before) if before else INSTANTS.range(table_id)[1]
    while begin < end:
        page = tx.get_range(begin, end, limit=PAGE_MAX, reverse=newest_first)
        yield from (InstantRecord.FromString(value) for _, value in page)
        if len(page) < PAGE_MAX:
            return
        begin, end = (begin, page[-1][0]) if newest_first else (page[-1][0] + b"\x00", end)
