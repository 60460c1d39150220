"""What people and programs ask of tables that look after themselves: why, what ran, and run, pause, hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from lakemark_core.errors import InvalidArgument, LakemarkError, LimitExceeded, NotFound
from lakemark_core.optimization import check_group, described
from lakemark_core.types import name_of_partition, values_of_partition
from lakemark_proto.store.v1.optimization_pb2 import OptimizationRecord, PartitionHistory
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_proto.v1.types_pb2 import TableName
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.context import caller
from lakemark_server.context.clock import ClockMs
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.optimization import records, schedule
from lakemark_server.optimization.assessments import Assessment, Assessor, candidate_of, group_facts, seen_from
from lakemark_server.optimization.decisions import Decision
from lakemark_server.optimization.leader import LEASE
from lakemark_server.optimization.schedule import GroupFacts
from lakemark_server.optimization.tasks import Tasks
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.store import leases
from lakemark_server.store.keyspace import OPTIMIZATIONS
from lakemark_server.store.mutations import Mutation, Mutations

PARTITIONS_TOLD: Final = 1_000
ASKED_MAX: Final = 20
HOLDS_MAX: Final = 1_000
HOLD_MS_MAX: Final = 30 * 86_400_000
TEXT_CHARS_MAX: Final = 500


_Change = Callable[[Mutation, OptimizationRecord], None]


class RunPage(NamedTuple):
    """Ended tasks, the last one first, and where to read on; None: these were the last."""

    runs: list[pb.OptimizationTask]
    following: tuple[int, ...] | None


class Optimization:
    """Thread-safe. Every process answers, whether it plans or not. Catalogs are named in lower case."""

    def __init__(self, store: Store, snapshots: Snapshots, clock: ClockMs) -> None:
        self._store, self._clock = store, clock
        self._mutations = Mutations(store, clock)
        self.assessor = Assessor(store, snapshots, clock)
        self.tasks = Tasks(store, clock)

    # -- why ----------------------------------------------------------------------------------------------------------

    def explain(
        self,
        table: LakeTable,
        partition: str | None = None,
        limit: int = 0,
        *,
        properties: Mapping[str, str] | None = None,
        by_expiry: bool = False,
    ) -> pb.TableOptimization:
        """The table now, with the reason for each partition. ``partition`` None: all, up to ``limit``.

        ``properties``: as if the table had these, too. ``by_expiry``: partitions in the order in which they will be too
        old. Raises TableNotFound, NotFound (partition), InvalidArgument (partition, properties).
        """
        look = self.assessor.look(table.table_id, properties)
        group, leader = self._store.read(lambda tx: (self._group(tx, look.policy.group), self._leader(tx)))
        answer = seen_from(look, group)
        obstacle = schedule.obstacle(candidate_of(look), group)
        shown: Sequence[Decision] = look.decisions
        old = {one.measure.name: one for one in look.expiries}
        if by_expiry and old:
            places = {name: place for place, name in enumerate(old)}
            shown = sorted(shown, key=lambda decision: places[decision.measure.name])
        if partition is not None:
            partition = _canonical(table, partition)
            shown = [decision for decision in look.decisions if decision.measure.name == partition]
            if not shown:
                raise NotFound(f"{table.name} has no files in a partition {partition!r}")
        for decision in shown[: limit or PARTITIONS_TOLD]:
            told = _told(decision, look, obstacle)
            expiry = old.get(decision.measure.name)
            if expiry is not None:
                told.expires_ms, told.expiry = expiry.expires_ms, expiry.reason
            answer.partition_states.append(told)
        answer.tasks.extend(look.facts.tasks.values())
        answer.holds.extend(hold for hold in look.facts.holds.values() if hold.until_ms > look.facts.now_ms)
        answer.policy.update(described(look.policy))
        answer.leader = leader
        if not leader and answer.state in (pb.PENDING, pb.PLANNED):
            answer.reason += "; but no process plans"
            answer.change = "lakemark serve --optimizer"
        return answer

    def tables(
        self, catalog: str, after: int, limit: int, group: str = "", states: Sequence[int] = ()
    ) -> tuple[list[pb.TableOptimization], int | None, str]:
        """Tables as the planner has seen them last, in order of their ids, where to read on (None: nowhere), and the
        leader. ``after``: the last id that was read."""

        def body(tx: ReadTransaction) -> tuple[list[pb.TableOptimization], int | None, str]:
            begin, end = OPTIMIZATIONS.range()
            pairs = tx.get_range(OPTIMIZATIONS.key(after + 1) if after else begin, end, limit=limit)
            tables = []
            groups: dict[str, GroupFacts] = {}
            for _, value in pairs:
                record = OptimizationRecord.FromString(value)
                seen = record.seen
                if not seen.table_id or seen.table.catalog != catalog or (group and seen.group != group):
                    continue
                if record.paused_ms:
                    seen.state, seen.reason, seen.change = pb.PAUSED, _paused(record), "lakemark optimize resume"
                if states and seen.state not in states:
                    continue
                seen.next_look_ms = record.due_ms
                if seen.state == pb.PENDING:
                    facts = groups[seen.group] = groups.get(seen.group) or self._group(tx, seen.group)
                    why, seen.change = schedule.group_obstacle(facts) or ("waits for its turn", "its turn")
                    seen.reason += f"; {why}"
                tables.append(seen)
            following = int(str(OPTIMIZATIONS.unpack(pairs[-1][0])[0])) if len(pairs) == limit else None
            return tables, following, self._leader(tx)

        return self._store.read(body)

    def open_tasks(self) -> list[pb.OptimizationTask]:
        """Tasks of all tables that wait or run; they are few."""
        return self._store.read(records.open_tasks)

    def runs(self, table: LakeTable | None, before: tuple[int, ...] | None, limit: int) -> RunPage:
        """Ended tasks of a table, or of all. ``before``: ``following`` of the page before."""
        if table is not None:
            table_id = table.table_id
            last = None if before is None else (before[0], before[1])
            ended = self._store.read(lambda tx: records.runs(tx, table_id, last, limit))
            following = (ended[-1].ended_ms, ended[-1].instant) if len(ended) == limit else None
            return RunPage(ended, following)
        place = None if before is None else (before[0], before[1], before[2])
        return RunPage(*self._store.read(lambda tx: records.all_runs(tx, place, limit)))

    # -- steering -----------------------------------------------------------------------------------------------------

    def request(
        self, table: LakeTable, partition: str, kind: pb.OptimizationKind.ValueType, request_id: str = ""
    ) -> pb.TableOptimization:
        """A run is wanted now, whatever the thresholds say. ``partition`` "": all. Raises InvalidArgument."""
        partition = _canonical(table, partition)
        if kind not in pb.OptimizationKind.values() or kind == pb.EXPIRE:
            raise InvalidArgument(f"kind {kind} of a run is not known")
        kind = kind or pb.MINOR
        if kind == pb.FULL and table.kind.buckets:
            raise InvalidArgument(
                f"{table.name} has buckets: the key of a row says which file it is in, and no full run can put rows in "
                "another order"
            )

        def change(mutation: Mutation, record: OptimizationRecord) -> None:
            if len(record.asked) >= ASKED_MAX:
                raise LimitExceeded(f"{table.name} has {ASKED_MAX} runs that were asked for and did not begin yet")
            record.asked.add(partition=partition, kind=kind, by=caller.current(), asked_ms=mutation.now_ms)

        return self._change(table, f"RequestOptimization of {table.table_id}", request_id, change)

    def pause(self, table: LakeTable, reason: str, request_id: str = "") -> pb.TableOptimization:
        """Plans nothing more. What runs goes on to its end."""
        _check_text(reason)

        def change(mutation: Mutation, record: OptimizationRecord) -> None:
            record.paused_ms = record.paused_ms or mutation.now_ms
            record.paused_by, record.paused_reason = caller.current(), reason

        return self._change(table, f"PauseOptimization of {table.table_id}", request_id, change)

    def resume(self, table: LakeTable, request_id: str = "") -> pb.TableOptimization:
        """Plans again, and tries partitions again that were stopped."""

        def change(mutation: Mutation, record: OptimizationRecord) -> None:
            record.ClearField("paused_ms")
            record.ClearField("paused_by")
            record.ClearField("paused_reason")
            for partition, history in records.histories(mutation.tx, table.table_id).items():
                if history.failures:
                    kept = PartitionHistory(
                        last_run_ms=history.last_run_ms,
                        last_full_ms=history.last_full_ms,
                        last_done_ms=history.last_done_ms,
                    )
                    records.put_history(mutation.tx, table.table_id, partition, kept)

        return self._change(table, f"ResumeOptimization of {table.table_id}", request_id, change)

    def hold(
        self, table: LakeTable, partition: str, duration_ms: int, reason: str, request_id: str = ""
    ) -> pb.OptimizationHold:
        """Keeps the planner away for a while. What runs goes on. Raises InvalidArgument, LimitExceeded."""
        partition = _canonical(table, partition)
        _check_text(reason)
        if not 0 < duration_ms <= HOLD_MS_MAX:
            raise InvalidArgument(f"a hold lasts from 1 ms to {HOLD_MS_MAX // 86_400_000} days, not {duration_ms} ms")

        def body(mutation: Mutation) -> pb.OptimizationHold:
            lake.get_record(mutation.tx, table.table_id)
            held = [one for one in records.holds(mutation.tx, table.table_id) if one.partition != partition]
            for one in held:
                if one.until_ms <= mutation.now_ms:
                    records.clear_hold(mutation.tx, table.table_id, one.partition)
            if sum(one.until_ms > mutation.now_ms for one in held) >= HOLDS_MAX:
                raise LimitExceeded(f"{table.name} has {HOLDS_MAX} holds: hold the table instead")
            hold = pb.OptimizationHold(
                table=_name(table),
                partition=partition,
                until_ms=mutation.now_ms + duration_ms,
                reason=reason,
                by=caller.current(),
                made_ms=mutation.now_ms,
            )
            records.put_hold(mutation.tx, table.table_id, hold)
            return hold

        kind = f"HoldOptimization of {table.table_id}"
        return self._mutations.once(request_id, kind, pb.OptimizationHold, body).answer

    def release(self, table: LakeTable, partition: str, request_id: str = "") -> bool:
        """Ends a hold. False: there was none. Raises InvalidArgument."""
        names = {_canonical(table, partition), partition}  # an earlier release stored holds as they were spelled

        def body(mutation: Mutation) -> pb.ReleaseOptimizationResponse:
            released = sum(records.clear_hold(mutation.tx, table.table_id, name) for name in names) > 0
            records.make_due(mutation.tx, table.table_id, mutation.now_ms)
            return pb.ReleaseOptimizationResponse(released=released)

        kind = f"ReleaseOptimization of {table.table_id}"
        return self._mutations.once(request_id, kind, pb.ReleaseOptimizationResponse, body).answer.released

    def _change(
        self,
        table: LakeTable,
        kind: str,
        request_id: str,
        change: _Change,
    ) -> pb.TableOptimization:
        def body(mutation: Mutation) -> OptimizationRecord:
            lake.get_record(mutation.tx, table.table_id)
            record = records.table(mutation.tx, table.table_id)
            change(mutation, record)
            record.due_ms = mutation.now_ms
            records.put_table(mutation.tx, table.table_id, record)
            return record

        self._mutations.once(request_id, kind, OptimizationRecord, body)
        return self.explain(table)

    # -- groups -------------------------------------------------------------------------------------------------------

    def groups(self) -> tuple[list[pb.OptimizerGroup], str]:
        """All groups that are configured, or have workers or tasks, with their figures; and the leader."""

        def body(tx: ReadTransaction) -> tuple[list[pb.OptimizerGroup], str]:
            tasks = records.open_tasks(tx)
            names = {one.name for one in records.groups(tx)}
            names |= {one.group for one in records.workers(tx)} | {task.group for task in tasks}
            return [self._shown(tx, name, tasks) for name in sorted(names)], self._leader(tx)

        return self._store.read(body)

    def set_group(
        self,
        name: str,
        order: pb.GroupOrder.ValueType = pb.GROUP_ORDER_UNSPECIFIED,
        quota_ms: int | None = None,
        paused: bool | None = None,
        request_id: str = "",
    ) -> pb.OptimizerGroup:
        """Changes what is given. Raises InvalidArgument."""
        check_group(name)
        if quota_ms is not None and quota_ms < 0:
            raise InvalidArgument("the quota of a group is not negative; 0 is no limit")
        if order not in pb.GroupOrder.values():
            raise InvalidArgument(f"order {order} of a group is not known")

        def body(mutation: Mutation) -> pb.OptimizerGroup:
            record = records.group(mutation.tx, name)
            record.order = order or record.order
            record.quota_ms = record.quota_ms if quota_ms is None else quota_ms
            record.paused = record.paused if paused is None else paused
            records.put_group(mutation.tx, record)
            return record

        self._mutations.once(request_id, f"SetOptimizerGroup {name}", pb.OptimizerGroup, body)
        return self._store.read(lambda tx: self._shown(tx, name, records.open_tasks(tx)))

    def _shown(self, tx: ReadTransaction, name: str, tasks: Sequence[pb.OptimizationTask]) -> pb.OptimizerGroup:
        facts = group_facts(tx, name, tasks, self._clock())
        shown = pb.OptimizerGroup()
        shown.CopyFrom(facts.settings)
        shown.order = shown.order or pb.FAIR
        shown.used_ms, shown.slots = facts.used_ms, facts.slots
        shown.running, shown.waiting = facts.running, facts.open_tasks - facts.running
        shown.workers.extend(facts.workers)
        return shown

    def _group(self, tx: ReadTransaction, name: str) -> GroupFacts:
        return group_facts(tx, name, records.open_tasks(tx), self._clock())

    def _leader(self, tx: ReadTransaction) -> str:
        lease = leases.find(tx, LEASE)
        return lease.holder if lease is not None and lease.expires_ms >= self._clock() else ""


def _told(decision: Decision, look: Assessment, obstacle: tuple[str, str] | None) -> pb.PartitionOptimization:
    measure, history = decision.measure, look.facts.histories.get(decision.measure.name) or PartitionHistory()
    if decision.wanted:
        why, change = obstacle or ("waits for its turn", "its turn")
        decision = replace(decision, reason=f"{decision.reason}; {why}", change=change)
    return pb.PartitionOptimization(
        partition=measure.name,
        state=decision.state,
        reason=decision.reason,
        change=decision.change,
        next_ms=decision.next_ms,
        kind=decision.kind,
        benefit=decision.benefit,
        cost_bytes=decision.cost_bytes,
        files=measure.files,
        bytes=measure.bytes,
        rows=measure.rows,
        fragments=measure.fragments,
        fragment_bytes=measure.fragment_bytes,
        segments=measure.segments,
        deltas=measure.deltas,
        delta_commits=measure.delta_commits,
        delta_bytes=measure.delta_bytes,
        delta_rows=measure.delta_rows,
        last_change_ms=measure.last_change_ms,
        last_run_ms=history.last_run_ms,
        failures=history.failures,
        last_error=history.last_error,
    )


def _paused(record: OptimizationRecord) -> str:
    by = f" by {record.paused_by}" if record.paused_by else ""
    return f"paused{by}" + (f": {record.paused_reason}" if record.paused_reason else "")


def _name(table: LakeTable) -> TableName:
    return TableName(catalog=table.record.catalog, database=table.record.database, table=table.record.name)


def _canonical(table: LakeTable, partition: str) -> str:
    """The name that the partition has everywhere, however it is spelled; "", which stands for all of the table, as it
    is. Raises InvalidArgument for what cannot be a partition of the table."""
    if not partition:
        return partition
    try:
        return name_of_partition(values_of_partition(partition, table.schema), table.schema)
    except LakemarkError as error:
        raise InvalidArgument(f"{table.name}: {error.message}") from error


def _check_text(text: str) -> None:
    if len(text) > TEXT_CHARS_MAX:
        raise InvalidArgument(f"a reason has at most {TEXT_CHARS_MAX} characters")
