"""Which lane takes a request, and when it is refused."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from lakemark_server.admission.lanes import LanePolicy
from lakemark_server.admission.ranks import Rank


@dataclass
class Lane:
    threads: int = 4
    pending_max: int = 16
    pending: int = 0


@dataclass
class Lanes:
    main: Lane = field(default_factory=Lane)
    reads: Lane = field(default_factory=Lane)
    vital: Lane = field(default_factory=Lane)


POLICIES = [LanePolicy(writes_leave_room=True), LanePolicy(writes_leave_room=False)]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("busy", [0, 3, 4, 16])
def test_reads_leave_the_main_lane_when_its_threads_are_busy(policy: LanePolicy, busy: int) -> None:
    lanes = Lanes(main=Lane(pending=busy))
    assert policy.lane_for(Rank.READ, lanes) is (lanes.main if busy < 4 else lanes.reads)
    assert policy.lane_for(Rank.WRITE, lanes) is lanes.main
    assert policy.lane_for(Rank.VITAL, lanes) is lanes.vital


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("rank", Rank)
def test_a_lane_takes_as_many_as_may_wait_and_run(policy: LanePolicy, rank: Rank) -> None:
    most = 14 if rank is Rank.WRITE and policy.writes_leave_room else 16
    assert policy.pending_max(rank, Lane()) == most
    assert policy.has_room(rank, Lane(pending=most - 1))
    assert not policy.has_room(rank, Lane(pending=most))
