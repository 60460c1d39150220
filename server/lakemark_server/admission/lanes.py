"""Lanes: whose threads a request may use, and whether there is room for it. Pure.

Both protocols run requests in three lanes, each with threads and a bounded queue of its own. The main lane takes
requests of any rank. While all of its threads are busy, reads go to a lane of their own, so that they are answered
while writes wait. Vital requests always use theirs, which no flood can take. How requests wait and run is up to each
protocol: gRPC has an event loop, the Metastore protocol has threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from lakemark_server.admission.ranks import Rank, share_of


class LaneLoad(Protocol):
    """How many threads a lane has, and how many requests use or await them."""

    @property
    def threads(self) -> int: ...

    @property
    def pending(self) -> int:
        """Requests that wait or run."""

    @property
    def pending_max(self) -> int: ...


class LaneUse(NamedTuple):
    """How a lane is used, for those who watch: ``pending`` wait or run, ``begun`` is how many there have been."""

    name: str
    threads: int
    pending: int
    begun: int


L_co = TypeVar("L_co", bound=LaneLoad, covariant=True)


class LaneSet(Protocol[L_co]):
    """The three lanes of a protocol."""

    @property
    def main(self) -> L_co: ...

    @property
    def reads(self) -> L_co: ...

    @property
    def vital(self) -> L_co: ...


@dataclass(frozen=True, slots=True)
class LanePolicy:
    """``writes_leave_room``: whether writes leave the last eighth of a queue to other requests."""

    writes_leave_room: bool

    def lane_for(self, rank: Rank, lanes: LaneSet[L_co]) -> L_co:
        """The lane of a request that comes now. Whether the lane has room is another question."""
        if rank is Rank.VITAL:
            return lanes.vital
        if rank is Rank.READ and lanes.main.pending >= lanes.main.threads:
            return lanes.reads
        return lanes.main

    def pending_max(self, rank: Rank, lane: LaneLoad) -> int:
        """With so many pending requests in the lane, a further one of this rank is refused."""
        return share_of(lane.pending_max, rank) if self.writes_leave_room else lane.pending_max

    def has_room(self, rank: Rank, lane: LaneLoad) -> bool:
        return lane.pending < self.pending_max(rank, lane)
