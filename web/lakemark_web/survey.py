"""What the overview knows of all tables of a catalog: sizes, health, what was committed lately and what was refused.

The store has no such list, and a page cannot read ten thousand tables. So once somebody has opened the overview, a
thread looks at one table after the other, follows the log of events from then on, and looks again at what has changed.
There is one thread for all catalogs. It takes at most a quarter of one processor, and ends when nobody has opened a
page for a while. All of it is in memory, bounded, and can be lost.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Final

import structlog

from lakemark_core.errors import LakemarkError, NotFound, UnsupportedOperation
from lakemark_proto.v1 import events_pb2
from lakemark_server.catalog.search import BEGINNING, TablePlace
from lakemark_server.events.consumers import END
from lakemark_server.events.filters import EVERYTHING
from lakemark_server.kv import StoreClosed
from lakemark_server.snapshots.service import SnapshotReference
from lakemark_web.domains import Domains
from lakemark_web.event_texts import EventLine, line_of
from lakemark_web.file_health import NOTHING, FileGoal, FileTotals, goal_of, summarize
from lakemark_web.optimizer_watch import OptimizerWatch

TABLES_MAX: Final = 100_000
"""Of all catalogs together."""

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

CATALOGS_MAX: Final = 16

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
    goal: FileGoal | None = None
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


class CatalogSurvey:
    """Of one catalog. Thread-safe for readers; one other thread takes the steps.

    ``wake`` is called when there is something to look at. ``room``: whether one table more may be kept.
    """

    def __init__(
        self, domains: Domains, catalog: str, wake: Callable[[], None], room: Callable[[], bool] = lambda: True
    ) -> None:
        self.catalog = catalog
        self.optimizer = OptimizerWatch(domains.optimization, catalog)
        self._domains = domains
        self._states: dict[int, SurveyedTable] = {}
        self._pending: OrderedDict[int, TablePlace] = OrderedDict()
        self._known: set[int] = set()
        """Those of ``_states`` and of ``_pending``: a table that is looked at again is in both."""

        self._commits: deque[CommitSeen] = deque(maxlen=RECENT_MAX)
        self._refused: deque[EventLine] = deque(maxlen=RECENT_MAX)
        self._wake, self._room = wake, room
        self._touched_s = time.monotonic()
        self._steps: Generator[float | None] | None = None
        self._retry_s = 0.0
        self._whole = threading.Event()
        self.left_out = False
        """Whether there are more tables than are kept."""

    # -- for readers --------------------------------------------------------------------------------------------------

    @property
    def whole(self) -> bool:
        """Whether all tables have been looked at, and the last hour has been read."""
        return self._whole.is_set()

    @property
    def tables(self) -> int:
        """How many tables are kept, or wait to be looked at."""
        return len(self._known)

    @property
    def is_wanted(self) -> bool:
        """Whether somebody has opened a page lately."""
        return time.monotonic() - self._touched_s <= IDLE_S

    def touch(self) -> None:
        """Somebody has opened a page."""
        self._touched_s = time.monotonic()

    def wait_for_first(self) -> None:
        """A moment, which is enough for a few tables."""
        self._whole.wait(_FIRST_S)

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

    # -- for the thread that takes the steps --------------------------------------------------------------------------

    def step(self) -> float | None:
        """Goes on for a moment. Returns the processor time that it took, in seconds; None: there is nothing to do now.

        Raises StoreClosed.
        """
        if time.monotonic() < self._retry_s:
            return None
        try:
            if self._steps is None:
                self._steps = self._follow()
            return next(self._steps)
        except BaseException as error:
            self._steps = None
            if not isinstance(error, LakemarkError) or isinstance(error, StoreClosed):
                raise
            _log.warning("tables cannot be looked at for the web page; it is tried again", reason=error.message)
            self._retry_s = time.monotonic() + _AGAIN_S
            return None

    def rest(self) -> None:
        """Ends to follow. What was seen stays, and makes the next beginning cheap."""
        if self._steps is not None:
            self._steps.close()
        self._steps = None
        self._whole.clear()

    def forget(self) -> None:
        """Forgets what was seen."""
        self.rest()
        self._states.clear()
        self._pending.clear()
        self._known.clear()

    def _follow(self) -> Generator[float | None]:
        domains = self._domains
        end = domains.events.consumers.locate(self.catalog, END)
        watcher = domains.events.feed.watch(self.catalog, end.offset, end.epoch, EVERYTHING, self._wake)
        self._whole.clear()
        self._commits.clear()
        self._refused.clear()
        self.left_out = False
        try:
            yield from self._first_steps(end.offset)
            while True:
                delivery = watcher.take()
                for event in delivery.decoded():
                    self._learn(event)
                if self._pending:
                    yield self._look()
                elif not delivery.more:
                    yield from self.optimizer.round()
                    self._whole.set()
                    yield None
        finally:
            watcher.close()

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
            self._drop(gone)

    def _want(self, table_id: int, place: TablePlace) -> None:
        if table_id in self._known or self._room():
            self._known.add(table_id)
            self._pending[table_id] = place
        else:
            self.left_out = True

    def _drop(self, table_id: int) -> None:
        self._states.pop(table_id, None)
        if table_id not in self._pending:
            self._known.discard(table_id)

    def _learn(self, event: events_pb2.Event) -> None:
        self._note(event)
        if not event.table_id:
            return
        if event.kind in (events_pb2.TABLE_DROPPED, events_pb2.TABLE_PURGED):
            self._pending.pop(event.table_id, None)
            self._drop(event.table_id)
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
                self._drop(table_id)
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
            before, goal = self._states.get(table_id), goal_of(resolved.table.record.properties)
            if before and before.totals and (before.version, before.goal) == (resolved.version, goal):
                return replace(before, place=place)
            if not resolved.version:
                return SurveyedTable(table_id, place, True, totals=NOTHING, goal=goal)
            loaded = snapshots.again(lambda: snapshots.load(resolved.table, resolved.lineage, resolved.version))
            committed_ms = loaded.record.committed_ms if loaded.record else 0
            totals = summarize(loaded, goal).totals
            return SurveyedTable(table_id, place, True, resolved.version, committed_ms, totals, goal)
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
        """By catalog; the one that was asked for last is the last one."""

        self._forgotten: list[CatalogSurvey] = []
        self._lock = threading.Lock()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def of(self, catalog: str) -> CatalogSurvey:
        """The survey of a catalog, which goes on for another while. If it begins, this waits for a moment."""
        with self._lock:
            survey = self._surveys.get(catalog)
            begins = survey is None
            if survey is None:
                survey = self._surveys[catalog] = CatalogSurvey(self._domains, catalog, self._wake.set, self._has_room)
            survey.touch()
            self._surveys.move_to_end(catalog)
            if len(self._surveys) > CATALOGS_MAX:
                self._forgotten.append(self._surveys.popitem(last=False)[1])
            begins = self._go_on() or begins
            self._wake.set()
        if begins:
            survey.wait_for_first()
        return survey

    def stop(self) -> None:
        """Ends all of them."""
        self._stop.set()
        self._wake.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _go_on(self) -> bool:
        """Begins the thread, unless there is one. Returns whether it did. Under the lock."""
        if self._stop.is_set() or self._thread is not None:
            return False
        # Not of the request that happens to be the first one, nor within its deadline.
        run = contextvars.Context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name="web survey", daemon=True)
        self._thread.start()
        return True

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                wanted = self._wanted()
                if not wanted:
                    return
                # One after the other, so that they take no more together than one.
                worked = [self._stepped(survey) for survey in wanted]
                if all(worked_s is None for worked_s in worked):
                    self._wake.wait(_WAIT_S)
                    self._wake.clear()
        except StoreClosed:
            self._stop.set()
        finally:
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None
                    for survey in (*self._surveys.values(), *self._forgotten):
                        survey.rest()

    def _stepped(self, survey: CatalogSurvey) -> float | None:
        worked_s = survey.step()
        if worked_s:
            self._stop.wait(min(worked_s * REST, _REST_S_MAX))
        return worked_s

    def _wanted(self) -> list[CatalogSurvey]:
        """Those to go on with. If there are none, whoever asks from now on begins another thread."""
        with self._lock:
            wanted = [survey for survey in self._surveys.values() if survey.is_wanted]
            for survey in self._surveys.values():
                if survey not in wanted:
                    survey.rest()
            while self._forgotten:
                self._forgotten.pop().forget()
            if not wanted:
                self._thread = None
            return wanted

    def _has_room(self) -> bool:
        """Whether one table more may be kept; forgets what nobody looks at if there is no room otherwise."""
        with self._lock:
            surveys = list(self._surveys.values())
        if sum(survey.tables for survey in surveys) < TABLES_MAX:
            return True
        for survey in surveys:
            if survey.tables and not survey.is_wanted:
                survey.forget()
                return True
        return False
