"""Whose turn it is, and what keeps a table from it: by figures alone."""

from __future__ import annotations

import pytest

from lakemark_core.optimization import policy_of
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_server.optimization.schedule import AGING_MS, Candidate, GroupFacts, in_order, obstacle

NOW = 1_800_000_000_000
WORKER = pb.OptimizerWorker(worker_id="w", slots=2, executors=["arrow"])


def candidate(table_id: int, *, since: int = NOW, score: float = 1.0, used: int = 0, **properties: str) -> Candidate:
    given = {f"lakemark.optimize.{name.replace('_', '-')}": value for name, value in properties.items()}
    return Candidate(table_id, policy_of(given), since, score, used)


def group(order: pb.GroupOrder.ValueType = pb.FAIR, **facts: object) -> GroupFacts:
    return GroupFacts("etl", pb.OptimizerGroup(order=order), **{"workers": (WORKER,), **facts})  # type: ignore[arg-type]


def ids(candidates: list[Candidate], facts: GroupFacts) -> list[int]:
    return [one.table_id for one in in_order(candidates, facts, NOW)]


def test_fifo_goes_by_waiting_alone() -> None:
    waiting = [candidate(1, since=NOW - 5, score=9), candidate(2, since=NOW - 9, score=0)]
    assert ids(waiting, group(pb.FIFO)) == [2, 1]


def test_priority_goes_first_and_who_waits_rises() -> None:
    waiting = [candidate(1, priority="9"), candidate(2, priority="1"), candidate(3, priority="1", score=2)]
    assert ids(waiting, group(pb.PRIORITY)) == [1, 3, 2]
    long = candidate(2, priority="1", since=NOW - 9 * AGING_MS)
    assert ids([waiting[0], long, waiting[2]], group(pb.PRIORITY)) == [2, 1, 3]


def test_fair_goes_by_what_was_used_of_ones_share() -> None:
    hour = 3_600_000
    greedy, modest = candidate(1, used=hour, score=9), candidate(2, used=0)
    assert ids([greedy, modest], group()) == [2, 1]
    small = candidate(3, used=hour // 4, quota_percent="20")
    assert ids([greedy, small], group()) == [1, 3], "a fifth of the time is its share, and more than half of it is used"
    assert ids([candidate(4, score=1), candidate(5, score=3)], group()) == [5, 4]


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"workers": ()}, "group 'etl' has no worker"),
        ({"open_tasks": 4, "running": 2}, "all 2 slots of group 'etl' are busy: 2 tasks run and 2 wait"),
    ],
)
def test_what_keeps_a_table_from_its_turn(facts: dict[str, object], told: str) -> None:
    found = obstacle(candidate(1), group(**facts))
    assert found is not None
    assert found[0] == told
    assert found[1]


def test_quotas_of_groups_and_tables() -> None:
    limited = GroupFacts("etl", pb.OptimizerGroup(quota_ms=60_000), (WORKER,), used_ms=61_000)
    assert obstacle(candidate(1), limited) == (
        "group 'etl' has used its quota: 61 s of 60 s in the last hour",
        "time, or a larger quota of the group",
    )
    assert obstacle(candidate(1), GroupFacts("etl", pb.OptimizerGroup(quota_ms=60_000), (WORKER,), used_ms=1)) is None
    used = obstacle(candidate(1, used=720_000, quota_percent="10"), group())
    assert used is not None
    assert used[0].startswith("the table has used its share of group 'etl': 720 s of 720 s")
    paused = GroupFacts("etl", pb.OptimizerGroup(paused=True), (WORKER,))
    assert obstacle(candidate(1), paused) == ("group 'etl' is paused", "lakemark optimize group etl --resume")


def test_what_needs_spark_waits_for_a_worker_that_has_it() -> None:
    needy = Candidate(1, policy_of({}), NOW, 1.0, needs_spark=True)
    found = obstacle(needy, group())
    assert found is not None
    assert "needs Spark" in found[0]
    able = pb.OptimizerWorker(worker_id="s", slots=1, executors=["spark"])
    assert obstacle(needy, group(workers=(WORKER, able))) is None
