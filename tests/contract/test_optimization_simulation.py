"""Optimization in a simulated world: no plan lost, no task committed twice, no row lost, nobody starves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lakes import open_lake
from tests.lengths import long
from tests.optimization_world import World


@pytest.mark.parametrize("seed", range(4))
def test_small_worlds(tmp_path: Path, seed: int) -> None:
    with open_lake(tmp_path) as lake:
        world = World(lake, seed, tables=4, workers=4)
        for step in range(600):
            world.step()
            if step % 20 == 0:
                world.check()
        world.check()
        world.finish()
        assert world.counts["committed"] > 0
        assert world.counts["departed"] > 0
        assert world.counts["splits"] > 0
        assert world.faults.hits


@pytest.mark.slow
@pytest.mark.timeout(long(1_800))
@pytest.mark.parametrize("seed", range(100, 100 + long(1)))
def test_large_worlds(tmp_path: Path, seed: int) -> None:
    with open_lake(tmp_path) as lake:
        world = World(lake, seed, tables=1_000, workers=16, aging=8, growing=4)
        for step in range(10_000):
            world.step()
            if step % 2_000 == 0:
                world.check()
        world.finish()
        assert world.counts["committed"] > 100
