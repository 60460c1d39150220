"""A request that falls back from the event loop to a thread is one request: its tenant is counted once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_proto.v1 import snapshot_pb2 as s
from lakemark_server.admission.pressure import InflightBytes
from lakemark_server.admission.ranks import Rank
from lakemark_server.rpc import methods
from lakemark_server.rpc.lanes import Lanes
from lakemark_server.rpc.plans import Encoded
from lakemark_server.rpc.quick import Quick

METHOD = s.DESCRIPTOR.services_by_name["SnapshotService"].methods_by_name["PlanFiles"]
CONTEXT: Any = SimpleNamespace(time_remaining=lambda: None, invocation_metadata=lambda: (), peer=lambda: "")
BY_THREAD = s.PlanFilesResponse(version=1)


class Counted:
    """An admission that records which requests enter and leave."""

    rank = Rank.READ

    def __init__(self) -> None:
        self.entered = self.inside = 0

    def enter(self, data: bytes) -> int:
        self.entered += 1
        self.inside += 1
        return self.entered

    def leave(self, entered: int) -> None:
        self.inside -= 1


@pytest.mark.parametrize("answer", [b"at once", None, InvalidArgument("no")])
def test_it_enters_and_leaves_once(answer: bytes | InvalidArgument | None) -> None:
    async def at_once(request: s.PlanFilesRequest) -> Encoded | None:
        if isinstance(answer, InvalidArgument):
            raise answer
        return None if answer is None else Encoded(answer)

    async def ask() -> bytes:
        inflight = InflightBytes(1 << 20)
        lanes = Lanes(1, 1, 1, inflight)
        admission: Any = Counted()
        call = methods._served(
            METHOD, lambda request, context: BY_THREAD, Quick(lambda _: True, at_once), lanes, admission, 10.0
        )
        try:
            return await call(s.PlanFilesRequest(limit=1).SerializeToString(), CONTEXT)
        finally:
            lanes.stop()
            assert (admission.entered, admission.inside) == (1, 0)

    if isinstance(answer, InvalidArgument):
        with pytest.raises(InvalidArgument):
            asyncio.run(ask())
    else:
        assert asyncio.run(ask()) == (BY_THREAD.SerializeToString() if answer is None else answer)
