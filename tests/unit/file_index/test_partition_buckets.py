"""Which files share keys, by column: as the buckets' own tree says it, and within one partition."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from lakemark_core.bucket_tree import NUMBER_MAX, above
from lakemark_server.file_index.partition_buckets import PartitionBuckets

NAMES = ["p=a", "p=b", "p=c"]
Place = tuple[int, int]


def made(places: Sequence[Place]) -> PartitionBuckets:
    buckets = PartitionBuckets()
    for piece in (places[::2], places[1::2]):
        buckets.add(*columns(piece))
    return buckets


def columns(places: Sequence[Place]) -> tuple[np.ndarray, list[str], np.ndarray]:
    return np.array([code for code, _ in places], np.intp), NAMES, np.array([one for _, one in places], np.int32)


def share(one: Place, other: Place) -> bool:
    return one[0] == other[0] and (one[1] in above(other[1]) or other[1] in above(one[1]))


@pytest.mark.parametrize("seed", range(40))
def test_columns_say_what_the_tree_says(seed: int) -> None:
    rng = random.Random(seed)
    greatest = rng.choice((7, 63, NUMBER_MAX))

    def places(count: int) -> list[Place]:
        return [(rng.randrange(3), min(rng.randint(1, greatest), rng.randint(1, greatest))) for _ in range(count)]

    mine, given = places(rng.randrange(12)), places(30)
    assert made(mine).sharing(*columns(given)).tolist() == [any(share(one, mine_) for mine_ in mine) for one in given]

    twice = made(mine).overlapping()
    wrong = {
        (NAMES[one[0]], one[1])
        for at, one in enumerate(mine)
        for other in [*mine[:at], *mine[at + 1 :]]
        if share(one, other)
    }
    assert bool(twice) == bool(wrong)
    assert twice is None or twice in wrong


def test_other_partitions_have_other_names() -> None:
    """Codes are those of one piece of a table, and mean nothing in another one."""
    buckets = PartitionBuckets.of("p=b", 5)
    given = np.array([0, 1]), ["p=b", "p=a"], np.array([5, 5])
    assert buckets.sharing(*given).tolist() == [True, False]
    assert not PartitionBuckets()
    assert buckets
