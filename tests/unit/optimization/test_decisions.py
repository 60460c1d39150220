"""What should be done to a partition, and if nothing, why not: by figures alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.optimization import OptimizationPolicy, policy_of
from lakemark_proto.store.v1.optimization_pb2 import AskedOptimization, OptimizationRecord, PartitionHistory
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_server.context.clock import TIME_MS_MAX
from lakemark_server.optimization.decisions import (
    Decision,
    TableFacts,
    decide,
    next_look_ms,
    retry_pause_ms,
    still_asked,
    summary,
)
from lakemark_server.optimization.measures import PartitionMeasure

MB = 1 << 20
NOW = 1_800_000_000_000
PLAIN = policy_of({})
KEYED = policy_of({"lakemark.primary-key": "id", "lakemark.bucket.count": "4", "lakemark.write.mode": "merge-on-read"})
SORTED = policy_of({"lakemark.clustering.columns": "x", "lakemark.optimize.full.interval-ms": "86400000"})
DAY = 86_400_000


def fragments(count: int, name: str = "") -> PartitionMeasure:
    size = count * MB
    return PartitionMeasure(
        name, count, size, count * 10, NOW - 1_000, fragments=count, fragment_bytes=size, mergeable=count,
        merge_bytes=size, merged=1, large_mergeable=count, large_merge_bytes=size, large_merged=1,
    )  # fmt: skip


def deltas(count: int, *, delta_rows: int = 1) -> PartitionMeasure:
    return PartitionMeasure(
        "", 4 + count, 40 * MB, 1_000, NOW - 1_000, deltas=count, delta_commits=count, delta_bytes=count * 1_000,
        delta_rows=delta_rows, fold_groups=1, fold_bytes=10 * MB, fold_rows=1_000,
    )  # fmt: skip


def one(measure: PartitionMeasure, policy: OptimizationPolicy = PLAIN, **facts: object) -> Decision:
    (decision,) = decide([measure], policy, TableFacts(NOW, **facts))  # type: ignore[arg-type]
    return decision


def test_enough_fragments_are_merged() -> None:
    decision = one(fragments(16))
    assert (decision.state, decision.kind, decision.cost_bytes) == (pb.PENDING, pb.MINOR, 16 * MB)
    assert decision.reason == "16 fragments of 16 needed"


def test_too_few_are_not_and_the_figures_are_told() -> None:
    decision = one(fragments(12))
    assert decision.state == pb.IDLE
    assert decision.reason == "12 fragments of 16 needed, 0 segments of 8 needed"
    assert "smaller lakemark.optimize.minor.fragments" in decision.change
    assert decision.next_ms == NOW - 1_000 + PLAIN.minor_interval_ms


def test_after_the_interval_even_two_fragments_are_merged() -> None:
    measure = replace(fragments(2), last_change_ms=NOW - 3_600_001)
    decision = one(measure)
    assert (decision.state, decision.kind) == (pb.PENDING, pb.MINOR)
    assert decision.reason.startswith("2 fragments, and no run for 60 min")
    assert one(measure, replace(PLAIN, minor_interval_ms=0)).state == pb.IDLE


def test_segments_are_brought_to_the_target() -> None:
    measure = PartitionMeasure("", 9, 900 * MB, 9, NOW, segments=9, large_mergeable=8, large_merge_bytes=400 * MB)
    decision = one(measure)
    assert (decision.state, decision.kind, decision.reason) == (pb.PENDING, pb.MAJOR, "9 segments of 8 needed")


@pytest.mark.parametrize(
    ("measure", "kind", "reason"),
    [
        (deltas(8), pb.MINOR, "8 delta commits of 8 needed"),
        (replace(deltas(2), delta_bytes=65 * MB), pb.MINOR, "65.0 MiB of deltas of 64.0 MiB needed"),
        (deltas(2, delta_rows=200), pb.MAJOR, "200 rows, 20 % of the 1000 rows under them"),
    ],
)
def test_deltas_are_folded(measure: PartitionMeasure, kind: int, reason: str) -> None:
    decision = one(measure, KEYED)
    assert (decision.state, decision.kind) == (pb.PENDING, kind)
    assert reason in decision.reason


def test_few_deltas_wait_and_no_deltas_need_nothing() -> None:
    assert one(deltas(2), KEYED).reason.startswith("2 delta commits of 8 needed")
    assert one(deltas(0), KEYED).reason == "it has no deltas to compact"


def test_a_partition_is_put_in_order_once_in_its_interval_and_only_if_it_changed() -> None:
    measure = PartitionMeasure("", 4, 400 * MB, 4, NOW - DAY)
    assert one(measure, SORTED).kind == pb.FULL
    ordered = {"": PartitionHistory(last_full_ms=NOW - DAY + 1)}
    assert "in order since its last change" in one(measure, SORTED, histories=ordered).reason
    early = {"": PartitionHistory(last_full_ms=NOW - DAY - 1)}
    assert one(measure, SORTED, histories=early).kind == pb.FULL
    soon = one(replace(measure, last_change_ms=NOW - 1_000), SORTED)
    assert (soon.state, soon.next_ms) == (pb.IDLE, NOW - 1_000 + DAY)
    large = one(replace(measure, bytes=600 * MB), SORTED)
    assert "too large for a full run: 600.0 MiB, and lakemark.optimize.run-bytes-max is 500.0 MiB" in large.reason


def test_what_keeps_a_wanted_run() -> None:
    hold = pb.OptimizationHold(until_ms=NOW + 60_000, by="ann", reason="audit")
    held = one(fragments(16), holds={"": hold})
    assert (held.state, held.next_ms) == (pb.HELD, NOW + 60_000)
    assert held.reason == "16 fragments of 16 needed; but the table is held by ann for another 60 s: audit"
    resting = one(fragments(16), histories={"": PartitionHistory(last_run_ms=NOW - 20_000)})
    assert (resting.state, resting.next_ms) == (pb.RESTING, NOW + 40_000)
    failed = PartitionHistory(failures=2, retry_ms=NOW + 5_000, last_error="no disk")
    waiting = one(fragments(16), histories={"": failed})
    assert (waiting.state, waiting.next_ms) == (pb.BACKING_OFF, NOW + 5_000)
    assert "failed 2 times of 5, and is tried again in 5 s; the last failure: no disk" in waiting.reason
    stopped = PartitionHistory(failures=5, stopped_ms=NOW, last_error="no disk")
    assert one(fragments(16), histories={"": stopped}).state == pb.STOPPED
    paused = OptimizationRecord(paused_ms=NOW, paused_by="ann")
    assert one(fragments(16), record=paused).state == pb.PAUSED
    assert one(fragments(16), replace(PLAIN, enabled=False)).state == pb.SWITCHED_OFF


def test_a_hold_that_is_over_holds_nothing() -> None:
    assert one(fragments(16), holds={"": pb.OptimizationHold(until_ms=NOW)}).wanted


def test_a_partition_with_a_task_has_no_other_one() -> None:
    task = pb.OptimizationTask(state=pb.TASK_WAITING, kind=pb.MINOR, group="etl", planned_ms=NOW)
    assert one(fragments(99), tasks={"": task}).state == pb.PLANNED
    task.state, task.worker = pb.TASK_RUNNING, "w-1"
    running = one(fragments(99), tasks={"": task})
    assert running.state == pb.RUNNING
    assert "on w-1" in running.reason


def test_a_run_that_was_asked_for_needs_no_threshold_and_no_rest() -> None:
    record = OptimizationRecord(asked=[AskedOptimization(kind=pb.MINOR, by="ann", asked_ms=NOW)])
    history = PartitionHistory(last_run_ms=NOW, failures=5, stopped_ms=NOW)
    decision = one(fragments(3), record=record, histories={"": history})
    assert (decision.state, decision.kind) == (pb.PENDING, pb.MINOR)
    assert decision.reason == "a minor run was asked for by ann: 3 fragments"
    served = {"": PartitionHistory(last_done_ms=NOW + 1)}
    assert one(fragments(3), record=record, histories=served).state == pb.IDLE
    failed = {"": PartitionHistory(failures=1, failed_ms=NOW + 1, retry_ms=NOW + 9_000)}
    assert one(fragments(3), record=record, histories=failed).state == pb.BACKING_OFF, "no hot loop of failures"
    lost = {"": PartitionHistory(last_run_ms=NOW + 1)}
    assert one(fragments(3), record=record, histories=lost).state == pb.RESTING, "nor of conflicts"
    off = replace(PLAIN, enabled=False)
    assert one(fragments(3), off, record=record).wanted
    assert one(fragments(99), off, record=record, histories=served).state == pb.SWITCHED_OFF
    nothing = one(PartitionMeasure("", 1, MB, 1, NOW), record=record)
    assert (nothing.state, "nothing to compact or merge" in nothing.reason) == (pb.IDLE, True)


def test_a_run_on_all_partitions_is_asked_for_until_each_has_had_it() -> None:
    record = OptimizationRecord(asked=[AskedOptimization(kind=pb.MINOR, asked_ms=NOW)])
    measures = [fragments(3, "d=1"), fragments(3, "d=2")]
    facts = TableFacts(NOW + 9, record, histories={"d=1": PartitionHistory(last_done_ms=NOW + 5)})
    decisions = decide(measures, PLAIN, facts)
    assert [(one.measure.name, one.wanted) for one in decisions] == [("d=2", True), ("d=1", False)]
    assert still_asked(decisions, facts) == list(record.asked)
    both = {name: PartitionHistory(last_done_ms=NOW + 5) for name in ("d=1", "d=2")}
    done = TableFacts(NOW + 9, record, histories=both)
    assert still_asked(decide(measures, PLAIN, done), done) == []


def test_hot_and_bad_partitions_come_first() -> None:
    decisions = decide([fragments(16, "d=1"), fragments(40, "d=2"), fragments(2, "d=3")], PLAIN, TableFacts(NOW))
    assert [decision.measure.name for decision in decisions] == ["d=2", "d=1", "d=3"]
    state, reason, _ = summary(decisions, PLAIN, TableFacts(NOW))
    assert (state, reason) == (
        pb.PENDING,
        "partition d=2: 40 fragments of 16 needed (2 of 3 partitions are in this state)",
    )
    cold, hot = one(fragments(16)), one(fragments(16), reads=50)
    assert hot.score > 100 * cold.score > 0


def test_pauses_double_up_to_an_hour() -> None:
    assert [retry_pause_ms(failures) for failures in (1, 2, 3, 60)] == [30_000, 60_000, 120_000, 3_600_000]


MEASURES = st.builds(
    PartitionMeasure,
    name=st.sampled_from(["", "d=1", "d=2"]),
    files=st.integers(1, 100),
    bytes=st.integers(1, 1 << 40),
    rows=st.integers(0, 1 << 30),
    last_change_ms=st.integers(NOW - 10 * DAY, NOW),
    **{
        name: st.integers(0, 1_000)
        for name in ("fragments", "segments", "mergeable", "merged", "large_mergeable", "deltas", "delta_commits",
                     "delta_rows", "fold_groups", "fold_rows", "delta_bytes", "fold_bytes")
    },
)  # fmt: skip
HISTORIES: st.SearchStrategy[Mapping[str, PartitionHistory]] = st.dictionaries(
    st.sampled_from(["", "d=1", "d=2"]),
    st.builds(
        PartitionHistory,
        last_run_ms=st.integers(0, NOW),
        last_full_ms=st.integers(0, NOW),
        failures=st.integers(0, 9),
        retry_ms=st.sampled_from([0, NOW - 1, NOW + 9_000]),
        stopped_ms=st.sampled_from([0, NOW - 1]),
    ),
)


@given(MEASURES, st.sampled_from([PLAIN, KEYED, SORTED]), HISTORIES)
def test_there_is_always_a_reason_and_a_way_out(
    measure: PartitionMeasure, policy: OptimizationPolicy, histories: Mapping[str, PartitionHistory]
) -> None:
    decision = one(measure, policy, histories=histories)
    assert decision.reason
    assert decision.wanted or decision.change
    if not decision.wanted and decision.next_ms:
        # When it is said that time changes it, then it does.
        assert next_look_ms([decision]) > NOW
        later = decide([measure], policy, TableFacts(decision.next_ms + 1, histories=histories))[0]
        assert (later.state, later.reason) != (decision.state, decision.reason)


def test_an_interval_beyond_all_calendars_is_never() -> None:
    huge = 2**63 - 1
    assert one(fragments(2), replace(PLAIN, minor_interval_ms=huge)).next_ms == TIME_MS_MAX
    assert one(fragments(2), replace(SORTED, minor_interval_ms=0, full_interval_ms=huge)).next_ms == TIME_MS_MAX
    rests = {"": PartitionHistory(last_run_ms=NOW - 1)}
    assert one(fragments(16), replace(PLAIN, interval_min_ms=huge), histories=rests).next_ms == TIME_MS_MAX
