"""The zones that a base stores for all of its parts equal those of each part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lakemark_server.file_index.base.build as building
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.file_index.pruning import zones as zoning
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.store.keyspace import MAIN
from lakemark_server.timeline.lineage import OF_MAIN
from tests.unit.snapshots.world import World


def test_at_once_as_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "PART_FILES_MAX", 4)
    world = World.open(tmp_path)
    for number in range(12):
        if number in (4, 8):
            world.alter(MAIN)
        world.commit(MAIN, t.APPEND, [number % 3] * 5)
        if number in (2, 6, 9):
            world.fold(MAIN)
    snapshots = Snapshots(world.store)
    snapshot = snapshots.load(world.table, OF_MAIN, world.branches[MAIN].head)
    kept_in_base = [part.entries.zone_table is not None for part in snapshot.parts]
    assert 1 < sum(kept_in_base) < len(kept_in_base), "some parts of a base, some newer ones"
    found = zoning._Zones(snapshot.parts, snapshot.schema)
    for column in snapshot.schema.columns:
        each = [zoning._zone(part, column, snapshot.schema) for part in snapshot.parts]
        at_once = found[column.id]
        for at, values in enumerate((at_once.min, at_once.max, at_once.null_count, at_once.nan_count)):
            assert values is not None
            assert values.to_pylist() == [zone[at] for zone in each], (column.name, at)
    assert np.unique([part.schema.schema_id for part in snapshot.parts]).size > 1
