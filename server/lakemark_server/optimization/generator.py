"""The plan generator: looks at tables that have changed or whose time has come, and plans runs for the workers that
there are.

What it keeps in memory (the tables that want a run) is found again by whoever takes over: such a table stays due.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import Final

import structlog

from lakemark_core.bucket_tree import group_name
from lakemark_core.errors import (
    CommitConflict,
    ConsumerNotFound,
    EventsLost,
    EventsTrimmed,
    LakemarkError,
    OffsetUnknown,
    TableNotFound,
)
from lakemark_proto.store.v1.optimization_pb2 import OptimizationRecord
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_proto.v1.events_pb2 import COMMITTED, TABLE_ALTERED, TABLE_CREATED, TABLE_UNDROPPED, Event, EventFilter
from lakemark_proto.v1.timeline_pb2 import MERGE_BRANCH, RESTORE_VERSION
from lakemark_server.catalog import lake
from lakemark_server.context import caller
from lakemark_server.context.clock import ClockMs
from lakemark_server.events.consumers import Consumers, EventPosition, Start
from lakemark_server.events.log import EventLog
from lakemark_server.kv import ReadTransaction, Store, keys_below
from lakemark_server.metrics.process import OPTIMIZATION_PLANS
from lakemark_server.optimization import departures, plans, records, schedule
from lakemark_server.optimization.assessments import Assessment, Assessor, candidate_of, group_facts, seen_from
from lakemark_server.optimization.decisions import next_look_ms, still_asked
from lakemark_server.optimization.plans import OWNER, PlanJob, PlanRefused, chosen
from lakemark_server.optimization.schedule import Candidate, GroupFacts
from lakemark_server.store.keyspace import EVENT_ENDS, LAKE_TABLES, MAIN
from lakemark_server.store.mutations import Mutation, Mutations
from lakemark_server.timeline.jobs.buckets import BucketsJob
from lakemark_server.timeline.service import Timeline

CONSUMER: Final = "optimizer:planner"
LOOK_MS_MIN: Final = 2_000
"""Between two looks at a table that changes all the time."""
LOOK_COST: Final = 20
"""A look that took long is followed by another one only after this many times as long."""
AGAIN_MS: Final = 60_000
"""How long a table that wants a run is remembered by the process that planned last, if that dies."""
LOOKS_A_ROUND: Final = 500
ROUND_S_MAX: Final = 4.0
"""For looks, and for plans, in one round: the lease has to be renewed between rounds."""
TABLES_A_PAGE: Final = 200
EXPIRED_A_LOOK: Final = 1_000
"""Partitions that one commit removes because of their age."""
FORGOTTEN_A_LOOK: Final = 500
"""Partitions that have vanished. More of them would not fit into a transaction; the next look forgets the next ones."""

_log = structlog.get_logger(__name__)


class PlanGenerator:
    """For one thread, under the leader's lease: ``store`` is fenced, and ``timeline`` stands on it."""

    def __init__(
        self, store: Store, clock: ClockMs, timeline: Timeline, assessor: Assessor, log: EventLog, consumers: Consumers
    ) -> None:
        self._store, self._clock = store, clock
        self._mutations = Mutations(store, clock)
        self._timeline, self._assessor = timeline, assessor
        self._log, self._consumers = log, consumers
        self.candidates: dict[int, Candidate] = {}
        self._turn = 0

    def round(self) -> int:
        """Follows events, looks at what is due, and plans. Returns how many tasks were planned."""
        self.follow()
        self.look_at_due()
        return self.plan()

    # -- events -------------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Makes the tables due that events tell of. A log that is read for the first time makes all tables due."""
        for (name,), _ in keys_below(self._store, EVENT_ENDS):
            catalog = str(name)
            try:
                place = self._consumers.get(catalog, CONSUMER).position
            except ConsumerNotFound:
                self._begin(catalog)
                continue
            try:
                self._follow(catalog, place)
            except (EventsTrimmed, EventsLost, OffsetUnknown) as error:
                _log.info("the optimizer looks at all tables again", catalog=catalog, reason=error.message)
                self._look_everywhere()
                self._consumers.seek(catalog, CONSUMER, Start(end=True))

    def _begin(self, catalog: str) -> None:
        draft = self._consumers.draft(catalog, CONSUMER, EventFilter(), managed_by="the optimizer")
        position = self._consumers.locate(catalog, Start(end=True))
        self._look_everywhere()  # before: what comes in between is looked at twice, and not never
        self._mutations.run(lambda mutation: self._consumers.create_within(mutation, draft, position))

    def _look_everywhere(self) -> None:
        page: list[int] = []
        for table_id in self._lake_tables():
            page.append(table_id)
            if len(page) == TABLES_A_PAGE:
                self._make_due(page)
                page = []
        self._make_due(page)

    def _lake_tables(self) -> Iterator[int]:
        last = None
        for (table_id, *_), _ in keys_below(self._store, LAKE_TABLES):
            if table_id != last and isinstance(table_id, int):
                last = table_id
                yield table_id

    def _make_due(self, tables: Iterable[int]) -> None:
        tables = list(tables)

        def body(mutation: Mutation) -> None:
            for table_id in tables:
                records.make_due(mutation.tx, table_id, mutation.now_ms)
                record = records.table(mutation.tx, table_id)
                if record.ttl:  # nobody knows what the events would have told
                    record.brought_back_ms = mutation.now_ms
                    records.put_table(mutation.tx, table_id, record)

        if tables:
            self._mutations.run(body)

    def _follow(self, catalog: str, place: EventPosition) -> None:
        position = self._log.begin(catalog, place.offset, place.epoch)
        epoch = self._log.extent(catalog).epoch
        while True:
            page = self._log.page(catalog, position)
            changed: dict[int, bool] = {}
            for event in page.events:
                brought = _brings_back(event)
                if brought or _concerns(event):
                    changed[event.table_id] = changed.get(event.table_id, False) or brought
            if page.position.after != place.offset and page.events:
                done = EventPosition(page.position.after, epoch)
                self._mutations.run(partial(self._note, catalog, changed, done))
            position = page.position
            if page.whole:
                return

    def _note(self, catalog: str, changed: Mapping[int, bool], done: EventPosition, mutation: Mutation) -> None:
        """``changed``: by table id, whether older files were brought back."""
        for table_id, brought in changed.items():
            record = records.table(mutation.tx, table_id)
            # One that waits for its turn is looked at when that has come.
            soon = record.seen.looked_ms + (AGAIN_MS if record.pending_since_ms else LOOK_MS_MIN)
            soon = max(mutation.now_ms, soon)
            sooner = not record.due_ms or record.due_ms > soon
            if (sooner or brought) and records.exists(mutation.tx, table_id):
                record.due_ms = soon if sooner else record.due_ms
                if brought:
                    record.brought_back_ms = mutation.now_ms
                records.put_table(mutation.tx, table_id, record)
        self._consumers.move_within(mutation, catalog, CONSUMER, done)

    # -- looks --------------------------------------------------------------------------------------------------------

    def look_at_due(self) -> int:
        """Looks at tables whose time has come. Returns how many these were."""
        due = self._store.read(lambda tx: records.due(tx, self._clock(), LOOKS_A_ROUND))
        until_s = time.monotonic() + ROUND_S_MAX
        for ms, table_id in due:
            if time.monotonic() > until_s:
                break
            try:
                look = self.look(table_id)
                try:
                    self.expire(look)
                finally:
                    self.split(look)
            except TableNotFound:
                self.candidates.pop(table_id, None)
                self._mutations.run(partial(_dismiss, ms, table_id))
            except LakemarkError as error:
                _log.warning(
                    "a table could not be looked at; it is tried again", table_id=table_id, reason=error.message
                )
                self._mutations.run(partial(_put_off, table_id))
            except Exception:
                # One table that nobody has foreseen must not keep the planner from all others.
                _log.exception("a table could not be looked at; it is tried again", table_id=table_id)
                self._mutations.run(partial(_put_off, table_id))
        return len(due)

    def look(self, table_id: int) -> Assessment:
        """Looks at a table, and notes what was seen. Raises TableNotFound."""
        look = self._assessor.look(table_id)
        wanted = any(decision.wanted for decision in look.decisions)
        asked = still_asked(look.decisions, look.facts)
        gone = _gone(look)

        def note(mutation: Mutation) -> OptimizationRecord:
            tx, now = mutation.tx, mutation.now_ms
            lake.get_record(tx, table_id)
            record = records.table(tx, table_id)
            if record.due_ms == look.facts.record.due_ms:  # nothing has happened meanwhile
                following = min(filter(None, (next_look_ms(look.decisions), look.next_expiry_ms)), default=0)
                if len(gone) > FORGOTTEN_A_LOOK:
                    following = now
                if wanted:
                    record.due_ms = now + AGAIN_MS
                else:
                    record.due_ms = max(following, now + LOOK_MS_MIN) if following else 0
            record.due_ms = record.due_ms and max(record.due_ms, now + LOOK_COST * look.took_ms)
            kept = [one for one in record.asked if one not in look.facts.record.asked or one in asked]
            del record.asked[:]
            record.asked.extend(kept)
            ttl = "" if look.ttl is None else str(look.ttl)
            if record.ttl != ttl:
                record.ttl, record.ttl_since_ms = ttl, now if ttl else 0
            record.pending_since_ms = (record.pending_since_ms or now) if wanted else 0
            record.seen.CopyFrom(seen_from(look))
            record.seen.pending_since_ms = record.pending_since_ms
            record.seen.next_look_ms = record.due_ms
            records.put_table(tx, table_id, record)
            for partition in gone[:FORGOTTEN_A_LOOK]:
                records.clear_history(tx, table_id, partition)
            return record

        record = self._mutations.run(note)
        look = replace(look, facts=replace(look.facts, record=record))
        if wanted:
            self.candidates[table_id] = candidate_of(look)
        else:
            self.candidates.pop(table_id, None)
        return look

    def expire(self, look: Assessment) -> int:
        """Removes partitions that are too old, by one commit under the rules of the table. Returns how many it did.

        Nothing is written but metadata, so no worker is needed. Raises LakemarkError.
        """
        due = departures.fitting(one for one in look.expiries if one.due)[:EXPIRED_A_LOOK]
        if due:
            self.follow()  # so that no restore or merge that the look has seen is unknown
            began_ms = self._clock()
            try:
                made = departures.remove(self._timeline, look, due)
            except (CommitConflict, PlanRefused) as refusal:
                _log.info("old partitions stay for now", table=look.table.name, reason=refusal.message)
                self._mutations.run(partial(_put_off, look.table.table_id))
                return 0
            run = departures.run_of(look, due, made, began_ms, self._clock())
            self._mutations.run(partial(_note_run, run))
            _log.info("partitions were too old", table=look.table.name, partitions=len(due), version=made.version)
        return len(due)

    def split(self, look: Assessment) -> int:
        """Splits buckets that have grown too large. Returns how many it did. No file is touched, nobody is in the way.

        Raises LakemarkError.
        """
        if look.splits:
            with caller.named(lambda: OWNER):
                job = BucketsJob(look.splits, (), request_id=f"split/{token_hex(8)}")
                self._timeline.alter_buckets(look.table.table_id, job)
            names = ", ".join(map(group_name, look.splits[:10]))
            _log.info("split buckets", table=look.table.name, buckets=len(look.splits), first=names)
        return len(look.splits)

    # -- plans --------------------------------------------------------------------------------------------------------

    def plan(self) -> int:
        """Plans for the workers that there are, in the order of each group. Returns how many tasks were planned."""
        planned = 0
        until_s = time.monotonic() + ROUND_S_MAX
        groups = deque(sorted(schedule.by_group(self.candidates).items()))
        self._turn += 1
        groups.rotate(self._turn)  # so that no group is always the one that time does not suffice for
        for name, candidates in groups:
            now = self._clock()
            group = self._store.read(partial(_group, name, now))
            for candidate in schedule.in_order(candidates, group, now):
                if schedule.group_obstacle(group) is not None:
                    break
                if schedule.obstacle(candidate, group) is not None:
                    continue
                if time.monotonic() > until_s:
                    break
                tasks = self._plan(candidate.table_id, group)
                planned += tasks
                group = replace(group, open_tasks=group.open_tasks + tasks)
        return planned

    def _plan(self, table_id: int, group: GroupFacts) -> int:
        """Looks once more, and plans what is wanted then. Returns how many tasks were planned."""
        try:
            look = self.look(table_id)
        except LakemarkError as error:
            self.candidates.pop(table_id, None)
            _log.info("a table is not planned", table_id=table_id, reason=error.message)
            return 0
        except Exception:
            self.candidates.pop(table_id, None)
            _log.exception("a table is not planned", table_id=table_id)
            self._mutations.run(partial(_put_off, table_id))
            return 0
        current = candidate_of(look)
        able = [one for one in look.decisions if group.has_spark or not plans.needs_spark(one, look.table)]
        taken = chosen(able, look.policy, group.room)
        if not taken or look.policy.group != group.name or schedule.obstacle(current, group) is not None:
            return 0
        job = PlanJob.of(taken, look.policy)
        try:
            self._timeline.open_by(table_id, job)
        except LakemarkError as error:
            # Of an unknown outcome, too: the next look sees the tasks, if there are any.
            _log.info("a plan was not made", table=look.table.name, reason=error.message)
            self._mutations.run(partial(_put_off, table_id))
            self.candidates.pop(table_id, None)
            return 0
        for decision in taken:
            kind = pb.OptimizationKind.Name(decision.kind).lower()
            OPTIMIZATION_PLANS.add(kind)
            _log.info(
                "planned an optimization",
                table=look.table.name,
                partition=decision.measure.name,
                kind=kind,
                reason=decision.reason,
                bytes=decision.cost_bytes,
            )
        if len(taken) == sum(decision.wanted for decision in look.decisions):
            self.candidates.pop(table_id, None)
        return len(taken)


def _gone(look: Assessment) -> list[str]:
    """Partitions of which something is remembered, and which have no files any more."""
    if not look.version:  # nothing was looked at
        return []
    return list(look.facts.histories.keys() - {decision.measure.name for decision in look.decisions})


def _group(name: str, now_ms: int, tx: ReadTransaction) -> GroupFacts:
    return group_facts(tx, name, records.open_tasks(tx), now_ms)


def _dismiss(ms: int, table_id: int, mutation: Mutation) -> None:
    records.dismiss(mutation.tx, ms, table_id)


def _note_run(run: pb.OptimizationTask, mutation: Mutation) -> None:
    if records.exists(mutation.tx, run.table_id):
        records.end_task(mutation.tx, run)
        records.make_due(mutation.tx, run.table_id, mutation.now_ms)  # there may be more


def _put_off(table_id: int, mutation: Mutation) -> None:
    if records.exists(mutation.tx, table_id):
        record = records.table(mutation.tx, table_id)
        record.due_ms = mutation.now_ms + AGAIN_MS
        records.put_table(mutation.tx, table_id, record)


def _brings_back(event: Event) -> bool:
    """Whether a table has files again, or for the first time, that are older than the event."""
    if event.kind == COMMITTED:
        return event.commit.branch == MAIN and event.commit.operation in (RESTORE_VERSION, MERGE_BRANCH)
    return event.kind == TABLE_UNDROPPED and bool(event.table_id)


def _concerns(event: Event) -> bool:
    """Whether an event may change what is to be done to a table."""
    if event.kind == COMMITTED:
        return event.commit.owner != OWNER
    return event.kind in (TABLE_ALTERED, TABLE_CREATED, TABLE_UNDROPPED) and bool(event.table_id)
