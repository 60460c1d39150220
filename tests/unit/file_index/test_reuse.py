"""The cache keeps what is reused soonest: a scan larger than it hits for a share, and entries in use stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.expressions import parse_predicate
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.file_index.pages import reuse, source
from lakemark_server.file_index.pages.blocks import page_of
from lakemark_server.file_index.pages.page import Page
from lakemark_server.file_index.pages.reuse import ReuseCache
from lakemark_server.file_index.planning.planner import Planner
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.snapshots.versions import history
from lakemark_server.store.keyspace import MAIN
from lakemark_server.timeline.lineage import OF_MAIN
from tests.unit.snapshots.world import World

MIB = 1 << 20
ROOM = 100  # entries of a MiB that surely fit
PARTS = 24


def cache(bytes_max: int = 128 * MIB) -> ReuseCache[object, int]:
    """A cache of values that are their own size in bytes."""
    return ReuseCache(bytes_max, lambda size: size)


def use(of: ReuseCache[object, int], keys: range, name: str = "") -> int:
    """Asks for all of them and puts the missing ones, each of 1 MiB. Returns how many were in the cache."""
    found = 0
    for number in keys:
        if of.get((name, number)) is not None:
            found += 1
        else:
            of.put((name, number), MIB)
    return found


@given(
    st.sampled_from([0, 1, 1_000, 100_000, 10 * MIB]),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3 * MIB), st.booleans(), st.booleans()), max_size=60),
)
def test_the_bound_holds_and_values_are_those_put_last(
    bytes_max: int, steps: list[tuple[int, int, bool, bool]]
) -> None:
    of, last = cache(bytes_max), dict[object, int]()
    for key, size, spare, get in steps:
        if get:
            assert of.get(key) in (None, last.get(key))
        else:
            of.put(key, size, spare=spare)
            last[key] = size
        kept = of.keys()
        assert len(kept) == len(set(kept))
        assert sum(last[one] for one in kept) <= of.bytes <= bytes_max
    of.clear()
    assert (of.bytes, of.keys()) == (0, [])


def test_a_scan_larger_than_the_cache_finds_a_share_of_it_each_time() -> None:
    of = cache()
    assert use(of, range(300)) == 0
    for _ in range(5):
        assert use(of, range(300)) >= ROOM


def test_all_is_found_where_all_fits() -> None:
    of = cache()
    use(of, range(ROOM))
    assert use(of, range(ROOM)) == ROOM


def test_what_is_in_use_stays_while_others_are_used_once() -> None:
    of = cache()
    use(of, range(60), "in use")
    for start in range(0, 3_000, 100):
        use(of, range(start, start + 100), "once")
        assert use(of, range(60), "in use") == 60


def test_what_is_no_longer_used_makes_room_for_what_is_used_again() -> None:
    of = cache()
    for _ in range(3):
        use(of, range(300), "before")
    use(of, range(ROOM), "now")
    use(of, range(ROOM), "now")
    assert use(of, range(ROOM), "now") == ROOM


def test_spare_entries_use_room_and_leave_it_to_others() -> None:
    of = cache()
    for number in range(300):
        of.put(number, MIB, spare=True)
    assert len(of.keys()) >= ROOM
    use(of, range(ROOM), "others")
    for number in range(300, 600):
        of.put(number, MIB, spare=True)
    assert use(of, range(ROOM), "others") >= ROOM - 8, "a few were in the window as others passed it"


def test_what_nobody_asks_for_makes_room_for_more_than_the_cache_remembers() -> None:
    of = cache(32 * MIB)
    use(of, range(100), "before")
    many = range(6_000)  # their names take more than a thirty-second of it
    for _ in range(12):
        use(of, many, "now")
    assert not {("before", number) for number in range(100)}.intersection(of.keys())


def test_a_plan_of_more_than_the_cache_holds_finds_a_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "STORED_FILES_MIN", 100)
    monkeypatch.setattr(reuse, "_WINDOW_BYTES_MIN", 10_000)
    reads = list[int]()

    def counted(stored: bytes) -> Page | None:
        reads.append(1)
        return page_of(stored)

    monkeypatch.setattr(source, "page_of", counted)
    world = World.open(tmp_path)
    for _ in range(PARTS):
        world.commit(MAIN, t.APPEND, [number % 5 for number in range(120)], staged=True)
    snapshots = Snapshots(world.store, 100_000)
    snapshot = snapshots.load(world.table, OF_MAIN, PARTS)
    planner, predicate = Planner(snapshots.cache), parse_predicate("id = 50")
    planner.plan(snapshot, predicate)  # the snapshot itself keeps what this finds out
    snapshots.forget()
    found = []
    for _ in range(4):
        reads.clear()
        assert planner.plan(snapshot, predicate).files == 4 * PARTS
        found.append(len(reads))
    assert 0 < found[3] < 2 * found[0] / 3, found
