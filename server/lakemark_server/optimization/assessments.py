"""Looks at tables: everything that decisions go by, at one moment. For the plan generator, and for whoever asks why."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lakemark_core.bucket_tree import group_name
from lakemark_core.optimization import OptimizationPolicy, policy_of
from lakemark_core.partition_ttl import PartitionTtl, ttl_of
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_proto.v1.types_pb2 import TableName
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.context.clock import ClockMs
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.optimization import decisions as reasons
from lakemark_server.optimization import plans, records, schedule
from lakemark_server.optimization.decisions import Decision, TableFacts, decide, hold_on
from lakemark_server.optimization.expiries import Expiry, expiries, next_expiry_ms
from lakemark_server.optimization.kept_measures import KeptMeasures
from lakemark_server.optimization.measures import PartitionMeasure
from lakemark_server.optimization.schedule import Candidate, GroupFacts
from lakemark_server.optimization.splits import splits
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.timeline import records as timeline_records
from lakemark_server.timeline.lineage import OF_MAIN


@dataclass(frozen=True, slots=True)
class Assessment:
    """A table as it was seen at one moment. ``took_ms``: by measuring and deciding."""

    table: LakeTable
    policy: OptimizationPolicy
    version: int
    facts: TableFacts
    decisions: tuple[Decision, ...]
    used_ms: int
    took_ms: int = 0
    ttl: PartitionTtl | None = None
    expiries: tuple[Expiry, ...] = ()
    large_buckets: tuple[int, ...] = ()

    @property
    def splits(self) -> tuple[int, ...]:
        """The buckets to split now: those that are too large, unless something holds the table."""
        facts = self.facts
        held = facts.record.paused_ms or facts.tasks or hold_on(facts, "") is not None
        return () if held or not self.policy.enabled or not self.policy.bucket_splits else self.large_buckets

    @property
    def next_expiry_ms(self) -> int:
        """When time alone lets the next partition go; 0: never."""
        return next_expiry_ms(self.expiries, self.facts.now_ms)


class Assessor:
    """Looks at one table: for the planner, and for whoever asks why. Thread-safe, and changes nothing."""

    def __init__(self, store: Store, snapshots: Snapshots, clock: ClockMs) -> None:
        self._store, self._snapshots, self._clock = store, snapshots, clock
        self._measures = KeptMeasures()

    def look(self, table_id: int, properties: Mapping[str, str] | None = None) -> Assessment:
        """``properties``: as if the table had these, too. Raises TableNotFound, and InvalidArgument for illegal ones,
        and for a policy that an earlier release accepted."""
        now = self._clock()

        def facts(tx: ReadTransaction) -> tuple[LakeTable, int, TableFacts, int]:
            table = lake.load(tx, table_id)
            tasks = records.tasks_of_table(tx, table_id)
            running = sum(records.worked_ms(task, now) for task in tasks)
            return (
                table,
                timeline_records.head(tx, table_id, OF_MAIN.key).version,
                TableFacts(
                    now,
                    records.table(tx, table_id),
                    {hold.partition: hold for hold in records.holds(tx, table_id)},
                    {task.partition: task for task in tasks},
                    records.histories(tx, table_id),
                    records.reads(tx, table_id, now),
                ),
                records.table_time(tx, table_id, now) + running,
            )

        table, version, seen, used_ms = self._store.read(facts)
        if properties:
            table = _with(table, properties)
        policy, ttl = policy_of(table.record.properties), ttl_of(table.record.properties)
        began = time.monotonic()
        measures, large = self._measured(table, version, policy, own=not properties)
        decisions = tuple(decide(measures, policy, seen))
        old: list[Expiry] = []
        if ttl is not None:
            in_force_ms = seen.record.ttl_since_ms if seen.record.ttl == str(ttl) else now
            old = expiries(measures, ttl, table.schema, seen, in_force_ms)
        took_ms = int((time.monotonic() - began) * 1_000)
        return Assessment(table, policy, version, seen, decisions, used_ms, took_ms, ttl, tuple(old), large)

    def _measured(
        self, table: LakeTable, version: int, policy: OptimizationPolicy, *, own: bool
    ) -> tuple[list[PartitionMeasure], tuple[int, ...]]:
        if not version:
            return [], ()
        snapshots = self._snapshots

        def measured() -> tuple[list[PartitionMeasure], tuple[int, ...]]:
            parts = snapshots.load(table, OF_MAIN, version).parts
            return self._measures.measure(table.table_id, parts, policy, keep=own), splits(parts, table.kind)

        return snapshots.again(measured)


def _with(table: LakeTable, properties: Mapping[str, str]) -> LakeTable:
    """The table as if it had these properties, too. Raises InvalidArgument."""
    record = LakeTableRecord()
    record.CopyFrom(table.record)
    record.properties.update(properties)
    lake.check_properties(record.properties)
    lake.check_columns(record.properties, table.schema)
    return replace(table, record=record)


def group_facts(tx: ReadTransaction, name: str, tasks: Iterable[pb.OptimizationTask], now_ms: int) -> GroupFacts:
    """A group as it is now, with the workers that live. ``tasks``: all open ones."""
    own = [task for task in tasks if task.group == name]
    running = sum(records.worked_ms(task, now_ms) for task in own)
    return GroupFacts(
        name,
        records.group(tx, name),
        tuple(one for one in records.workers(tx, name) if one.heartbeat_ms + records.HEARTBEAT_MS >= now_ms),
        records.group_time(tx, name, now_ms) + running,
        len(own),
        sum(task.state != pb.TASK_WAITING for task in own),
    )


def seen_from(look: Assessment, group: GroupFacts | None = None) -> pb.TableOptimization:
    """The table as it is shown, without partitions. ``group``: tells why a wanted run waits."""
    state, reason, change = reasons.summary(look.decisions, look.policy, look.facts)
    if state == pb.PENDING and group is not None:
        told = schedule.obstacle(candidate_of(look), group)
        if told is None:
            change = "its turn"
        else:
            reason, change = f"{reason}; {told[0]}", told[1]
    measures = [decision.measure for decision in look.decisions]
    record, facts = look.table.record, look.facts
    return pb.TableOptimization(
        table=TableName(catalog=record.catalog, database=record.database, table=record.name),
        table_id=look.table.table_id,
        group=look.policy.group,
        state=state,
        reason=reason,
        change=change,
        next_look_ms=facts.record.due_ms,
        version=look.version,
        looked_ms=facts.now_ms,
        files=sum(one.files for one in measures),
        bytes=sum(one.bytes for one in measures),
        partitions=len(measures),
        fragments=sum(one.fragments for one in measures),
        deltas=sum(one.deltas for one in measures),
        used_ms=look.used_ms,
        allowed_ms=group.allowed_ms(look.policy) if group is not None else 0,
        reads=facts.reads,
        priority=look.policy.priority,
        pending_since_ms=facts.record.pending_since_ms,
        stopped_partitions=sum(one.state == pb.STOPPED for one in look.decisions),
        expired_partitions=sum(one.due for one in look.expiries),
        next_expiry_ms=look.next_expiry_ms,
        large_buckets=map(group_name, look.large_buckets),
    )


def candidate_of(look: Assessment) -> Candidate:
    """The table as one that wants a run."""
    best = max((one.score for one in look.decisions if one.wanted), default=0.0)
    wanted = [one for one in look.decisions if one.wanted]
    return Candidate(
        look.table.table_id,
        look.policy,
        look.facts.record.pending_since_ms or look.facts.now_ms,
        best,
        look.used_ms,
        bool(wanted) and all(plans.needs_spark(one, look.table) for one in wanted),
    )
