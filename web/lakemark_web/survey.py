"""What the overview knows of all tables of a catalog: sizes, health, what was committed lately and what was refused.

The store has no such list, and a page cannot read ten thousand tables. So once somebody has opened the overview, a
thread looks at one table after the other, follows the log of events from then on, and looks again at what has changed.
It takes at most a quarter of one processor, and ends when nobody has opened a page for a while. All of it is in memory,
bounded, and can be lost.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import structlog

from lakemark_core.errors import InvalidArgument, LakemarkError, NotFound, UnsupportedOperation
from lakemark_core.file_layout import FILE_BYTES, layout_of
from lakemark_proto.v1 import events_pb2
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.catalog.search import BEGINNING, TablePlace
from lakemark_server.events.consumers import END
from lakemark_server.events.filters import EVERYTHING
from lakemark_server.kv import StoreClosed
from lakemark_server.snapshots.service import SnapshotReference
from lakemark_web.domains import Domains
from lakemark_web.event_texts import EventLine, line_of
from lakemark_web.file_health import NOTHING, FileTotals, summarize
from lakemark_web.optimizer_watch import OptimizerWatch

TABLES_MAX: Final = 100_000
RECENT_MS: Final = 3_600_000
RECENT_MAX: Final = 20_000
"""Commits, and refusals, of the last hour that are kept; and events that are read to find them."""

IDLE_S: Final = 600.0
"""How long the thread goes on when nobody opens a page."""

REST: Final = 3.0
"""For each second of processor time the thread rests so many."""

_LISTED: Final = 1_000
_WAIT_S: Final = 5.0
_FIRST_S: Final = 0.3
_AGAIN_S: Final = 5.0
_REST_S_MAX: Final = 30.0
_WORK_S: Final = 0.01
"""Of processor time, before a rest."""

_CATALOGS_MAX: Final = 16

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SurveyedTable:
    """A table when it was last looked at. ``totals`` None: a warehouse table, or ``problem`` says what is wrong."""

    table_id: int
    place: TablePlace
    is_lake: bool
    version: int = 0
    committed_ms: int = 0
    totals: FileTotals | None = None
    target_bytes: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class CommitSeen:
    """A commit of the last hour. ``by``: who asked for it, as far as known."""

    time_ms: int
    table_id: int
    place: TablePlace
    by: str
    operation: int
    files: int
    rows: int


def target_bytes(table: LakeTable) -> int:
    """How large files of the table should be."""
    try:
        return layout_of(table.record.properties).target_bytes
    except InvalidArgument:  # of an earlier build
        return FILE_BYTES


class CatalogSurvey:
    """Of one catalog. Thread-safe for readers. ``touch`` keeps it going."""

    def __init__(self, domains: Domains, catalog: str) -> None:
        self.catalog = catalog
        self.optimizer = OptimizerWatch(domains.optimization, catalog)
        self._domains = domains
        self._states: dict[int, SurveyedTable] = {}
        self._pending: OrderedDict[int, TablePlace] = OrderedDict()
        self._commits: deque[CommitSeen] = deque(maxlen=RECENT_MAX)
        self._refused: deque[EventLine] = deque(maxlen=RECENT_MAX)
        self._wake, self._stop = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._touched_s = 0.0
        self._whole = threading.Event()
        self.left_out = False
        """Whether there are more than ``TABLES_MAX`` tables."""

    # -- for readers --------------------------------------------------------------------------------------------------

    @property
    def whole(self) -> bool:
        """Whether all tables have been looked at, and the last hour has been read."""
        return self._whole.is_set()

    def touch(self) -> None:
        """Begins, or goes on for another while. If it begins, it waits a moment, which is enough for a few tables."""
        if self._begin():
            self._whole.wait(_FIRST_S)

    def _begin(self) -> bool:
        with self._lock:
            self._touched_s = time.monotonic()
            if not self._stop.is_set() and (self._thread is None or not self._thread.is_alive()):
                # Not of the request that happens to be the first one, nor within its deadline.
                self._thread = threading.Thread(
                    target=contextvars.Context().run, args=(self._run,), name="web survey", daemon=True
                )
                self._thread.start()
                return True
            return False

    def stop(self) -> None:
        """Ends it for good."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def find(self, table_id: int) -> SurveyedTable | None:
        """The table when it was last looked at; None: not yet."""
        return self._states.get(table_id)

    def states(self) -> list[SurveyedTable]:
        """All tables that were looked at, in no order."""
        return list(self._states.copy().values())

    def commits(self) -> list[CommitSeen]:
        """Those of the last hour, oldest first, as far as they are kept."""
        since = self._domains.clock() - RECENT_MS
        return [commit for commit in self._commits.copy() if commit.time_ms >= since]

    def refused(self) -> list[EventLine]:
        """Instants that were given up in the last hour, newest first."""
        since = self._domains.clock() - RECENT_MS
        return [line for line in reversed(self._refused.copy()) if line.time_ms >= since]

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except StoreClosed:
                return
            except LakemarkError as error:
                _log.warning("tables cannot be looked at for the web page; it is tried again", reason=error.message)
                self._stop.wait(_AGAIN_S)
            else:
                return

    def _follow(self) -> None:
        """Until it is stopped, or nobody is interested any more."""
        domains = self._domains
        end = domains.events.consumers.locate(self.catalog, END)
        watcher = domains.events.feed.watch(self.catalog, end.offset, end.epoch, EVERYTHING, self._wake.set)
        self._whole.clear()
        self._commits.clear()
        self._refused.clear()
        try:
            for step in self._first_steps(end.offset):
                if self._over():
                    return
                self._rest(step)
            while not self._over():
                self._wake.clear()
                delivery = watcher.take()
                for event in delivery.decoded():
                    self._learn(event)
                if self._pending:
                    self._rest(self._look())
                elif not delivery.more:
                    for step in self.optimizer.round():
                        if self._over():
                            return
                        self._rest(step)
                    self._whole.set()
                    self._wake.wait(_WAIT_S)
        finally:
            watcher.close()

    def _over(self) -> bool:
        """Whether it ends. What ``touch`` sees after that is a thread that has ended, or is about to: then the next
        page begins another one."""
        return self._stop.is_set() or time.monotonic() - self._touched_s > IDLE_S

    def _rest(self, worked_s: float) -> None:
        self._stop.wait(min(worked_s * REST, _REST_S_MAX))

    def _first_steps(self, end: int) -> Iterator[float]:
        """The last hour, then the names of all tables; yields the processor time of each step, in seconds."""
        log, since = self._domains.events.log, self._domains.clock() - RECENT_MS
        begun = time.thread_time()
        first = log.extent(self.catalog).first
        position = log.begin(self.catalog, max(first - 1, end - RECENT_MAX))
        while True:
            page = log.page(self.catalog, position)
            for event in page.events:
                if event.offset <= end and event.time_ms >= since:
                    self._note(event)
            yield time.thread_time() - begun
            begun = time.thread_time()
            position = page.position
            if page.whole or position.offset >= end:
                break
        after, seen = BEGINNING, set[int]()
        while True:
            listed = self._domains.catalog.find_tables(self.catalog, after=after, limit=_LISTED)
            for place, entry in listed.tables:
                seen.add(entry.table_id)
                self._want(entry.table_id, place)
            yield time.thread_time() - begun
            begun = time.thread_time()
            if listed.behind is None or self.left_out:
                break
            after = listed.behind
        for gone in set() if self.left_out else self._states.keys() - seen:
            del self._states[gone]

    def _want(self, table_id: int, place: TablePlace) -> None:
        if table_id not in self._states and len(self._states) + len(self._pending) >= TABLES_MAX:
            self.left_out = True
        else:
            self._pending[table_id] = place

    def _learn(self, event: events_pb2.Event) -> None:
        self._note(event)
        if not event.table_id:
            return
        if event.kind in (events_pb2.TABLE_DROPPED, events_pb2.TABLE_PURGED):
            self._pending.pop(event.table_id, None)
            self._states.pop(event.table_id, None)
        else:
            self._want(event.table_id, TablePlace(event.database, event.table))

    def _note(self, event: events_pb2.Event) -> None:
        if event.kind == events_pb2.COMMITTED:
            commit = event.commit
            place = TablePlace(event.database, event.table)
            by = commit.owner or event.by  # what a writer calls itself says more than its address
            self._commits.append(
                CommitSeen(
                    event.time_ms, event.table_id, place, by, commit.operation, commit.added_files, commit.added_rows
                )
            )
        elif event.kind == events_pb2.INSTANT_ROLLED_BACK:
            self._refused.append(line_of(event))

    def _look(self) -> float:
        """At some of the tables that have waited longest. Returns the processor time that it took, in seconds."""
        begun = worked_s = time.thread_time()
        while self._pending and worked_s - begun < _WORK_S:
            table_id, place = self._pending.popitem(last=False)
            state = self._state(table_id, place)
            if state is None:
                self._states.pop(table_id, None)
            else:
                self._states[table_id] = state
            worked_s = time.thread_time()
        return worked_s - begun

    def _state(self, table_id: int, place: TablePlace) -> SurveyedTable | None:
        snapshots = self._domains.survey_snapshots
        try:
            resolved = snapshots.resolve(self.catalog, *place, SnapshotReference())
            if resolved.table.table_id != table_id:
                return None  # another table has the name by now, and an event of its own
            before, target = self._states.get(table_id), target_bytes(resolved.table)
            if before and before.totals and (before.version, before.target_bytes) == (resolved.version, target):
                return replace(before, place=place)
            if not resolved.version:
                return SurveyedTable(table_id, place, True, totals=NOTHING, target_bytes=target)
            loaded = snapshots.again(lambda: snapshots.load(resolved.table, resolved.lineage, resolved.version))
            committed_ms = loaded.record.committed_ms if loaded.record else 0
            totals = summarize(loaded, target).totals
            return SurveyedTable(table_id, place, True, resolved.version, committed_ms, totals, target)
        except UnsupportedOperation:
            return SurveyedTable(table_id, place, False)
        except StoreClosed:
            raise
        except NotFound:
            return None
        except LakemarkError as error:
            return SurveyedTable(table_id, place, True, problem=error.message)


class Surveys:
    """Those of the catalogs that somebody looks at. Thread-safe."""

    def __init__(self, domains: Domains) -> None:
        self._domains = domains
        self._surveys: OrderedDict[str, CatalogSurvey] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, catalog: str) -> CatalogSurvey:
        """The survey of a catalog, which goes on for another while."""
        with self._lock:
            survey = self._surveys.get(catalog)
            if survey is None:
                survey = self._surveys[catalog] = CatalogSurvey(self._domains, catalog)
            self._surveys.move_to_end(catalog)
            gone = self._surveys.popitem(last=False)[1] if len(self._surveys) > _CATALOGS_MAX else None
        if gone is not None:
            gone.stop()
        survey.touch()
        return survey

    def stop(self) -> None:
        """Ends all of them."""
        with self._lock:
            surveys = list(self._surveys.values())
        for survey in surveys:
            survey.stop()
