"""Writers that were refused before they began are remembered; refused commits are in the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark_core.errors import CommitConflict
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.timeline import refusals
from lakemark_server.timeline.refusals import Refusal, Refusals
from tests.lakes import open_lake, profile


def test_what_is_refused_at_the_opening_and_at_the_start(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        table, other = lake.table(), lake.table("other")
        lake.open(table, t.OVERWRITE_PARTITIONS, profile(1), owner="first")
        with pytest.raises(CommitConflict) as refused:
            lake.open(table, t.OVERWRITE_PARTITIONS, profile(1), owner="second")
        requested = lake.open(table, t.OVERWRITE_PARTITIONS, start=False, owner="third")
        lake.clock.advance(5)
        with pytest.raises(CommitConflict):
            lake.timeline.start(table.table_id, requested, profile(1))
        late, early = lake.timeline.refusals.newest(table.table_id)
        assert (early.owner, early.table, early.branch, early.reason) == (
            "second", "default.t", "main", refused.value.message,
        )  # fmt: skip
        assert (late.owner, late.time_ms - early.time_ms) == ("third", 5)
        assert lake.timeline.refusals.newest(since_ms=late.time_ms) == [late]
        assert lake.timeline.refusals.newest(other.table_id) == []


def test_only_so_many_are_kept() -> None:
    kept = Refusals()
    kept.add(Refusal(at, 1, "t", "main", t.APPEND, "", "") for at in range(refusals.REFUSALS_KEPT + 5))
    newest = kept.newest()
    assert len(newest) == refusals.REFUSALS_KEPT
    assert newest[0].time_ms == refusals.REFUSALS_KEPT + 4
