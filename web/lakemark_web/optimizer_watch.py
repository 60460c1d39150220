"""What of the optimizer needs a person: partitions that were stopped, and work that nobody does.

There is no list of these, and a page cannot read ten thousand tables. So the survey of a catalog reads what the planner
has seen of all tables, page by page, now and then. It is in memory, bounded, and can be lost.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_server.optimization.service import Optimization
from lakemark_web import texts
from lakemark_web.addresses import page_path, table_path

TABLES_A_PAGE: Final = 500
STOPPED_NAMED: Final = 5
AGAIN_S: Final = 5.0
"""Between two rounds at least."""

_CHARS: Final = 300


class OptimizerMatter(NamedTuple):
    """Something that needs a person. ``link``: the page that tells more."""

    text: str
    link: str


class StoppedTable(NamedTuple):
    """A table with partitions that were stopped after failures. ``reason``: "" if another partition's run is
    told of just now."""

    database: str
    table: str
    partitions: int
    reason: str


class OptimizerNeeds(NamedTuple):
    """What one round has found. ``stopped``: the first ones of ``stopped_tables``; ``waiting`` by group: tables that
    wait for a run; ``leader`` "": no process plans."""

    catalog: str
    stopped: Sequence[StoppedTable] = ()
    stopped_tables: int = 0
    waiting: Sequence[tuple[str, int]] = ()
    without_workers: frozenset[str] = frozenset()
    leader: str = ""

    def matters(self) -> list[OptimizerMatter]:
        """In words, the most urgent first."""
        told = [
            OptimizerMatter(
                f"the optimizer has stopped on {texts.counted(one.partitions, 'partition')} of "
                f"{one.database}.{one.table} after failures{': ' + one.reason[:_CHARS] if one.reason else ''}",
                table_path(self.catalog, one.database, one.table, "optimizing"),
            )
            for one in self.stopped
        ]
        more = self.stopped_tables - len(self.stopped)
        if more:
            verb = "has" if more == 1 else "have"
            text = f"{texts.counted(more, 'further table')} {verb} partitions on which the optimizer has stopped"
            told.append(OptimizerMatter(text, page_path("/events", self.catalog, kind="stopped")))
        for group, tables in self.waiting:
            if group in self.without_workers:
                waits = "waits" if tables == 1 else "wait"
                text = f"group {group} of the optimizer has no worker, and {texts.counted(tables, 'table')} {waits}"
                told.append(OptimizerMatter(text, page_path("/optimizer", self.catalog)))
        if self.waiting and not self.leader:
            text = "tables wait for the optimizer, and no process plans"
            told.append(OptimizerMatter(text, page_path("/optimizer", self.catalog)))
        return told


class OptimizerWatch:
    """Of one catalog. For one thread that looks, and any that read."""

    def __init__(self, optimization: Optimization, catalog: str) -> None:
        self._optimization, self._catalog = optimization, catalog
        self._needs = OptimizerNeeds(catalog)
        self._next_s = 0.0

    def matters(self) -> list[OptimizerMatter]:
        """What the last whole round has found, in words."""
        return self._needs.matters()

    def round(self) -> Iterator[float]:
        """Looks at all tables, if it is time to; yields the processor time of each step, in seconds."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + AGAIN_S
        begun = time.thread_time()
        stopped: list[StoppedTable] = []
        stopped_tables, waiting, after = 0, Counter[str](), 0
        while True:
            tables, following, leader = self._optimization.tables(self._catalog, after, TABLES_A_PAGE)
            for one in tables:
                if one.state == pb.PENDING:
                    waiting[one.group] += 1
                # Paused and switched off tables are left alone because somebody wants it.
                if one.stopped_partitions and one.state not in (pb.PAUSED, pb.SWITCHED_OFF):
                    stopped_tables += 1
                    if len(stopped) < STOPPED_NAMED:
                        name = one.table
                        reason = one.reason if one.state == pb.STOPPED else ""
                        stopped.append(StoppedTable(name.database, name.table, one.stopped_partitions, reason))
            if following is None:
                break
            after = following
            yield time.thread_time() - begun
            begun = time.thread_time()
        served = {one.name for one in self._optimization.groups()[0] if one.workers} if waiting else set()
        idle = frozenset(waiting) - served
        self._needs = OptimizerNeeds(self._catalog, stopped, stopped_tables, sorted(waiting.items()), idle, leader)
        yield time.thread_time() - begun
