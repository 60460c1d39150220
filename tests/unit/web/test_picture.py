"""Where instants, branches and forks are drawn."""

from __future__ import annotations

from itertools import pairwise

from lakemark_web.picture import LANES_MAX, STEP, TICK_STEP, BranchShown, InstantShown, draw


def shown(instant: int, branch: str = "main", version: int = 0) -> InstantShown:
    return InstantShown(instant, branch, "completed", "commit", version, "")


BRANCHES = {
    "main": BranchShown("main", "main"),
    "dev": BranchShown("dev", "dev", "main", 2),
    "deep": BranchShown("deep", "deep", "dev", 3),
}


def test_each_instant_has_a_column_in_the_order_of_time() -> None:
    picture = draw([shown(30), shown(10), shown(20)], BRANCHES, "main")
    assert [mark.shown.instant for mark in picture.marks] == [10, 20, 30]
    assert {later.x - mark.x for mark, later in pairwise(picture.marks)} == {STEP}
    assert [line.name for line in picture.lanes] == ["main"]


def test_branches_leave_their_parent_at_the_version_where_they_forked() -> None:
    marks = [shown(10, version=1), shown(20, version=2), shown(30, version=3), shown(40, "deep", 4)]
    picture = draw(marks, BRANCHES, "main")
    assert [line.name for line in picture.lanes] == ["main", "dev", "deep"]
    assert picture.lanes[1].fork == (picture.marks[1].x, picture.lanes[0].y)
    assert picture.lanes[2].fork is None  # dev's versions are not in sight
    assert all(line.x1 <= line.x2 <= picture.width for line in picture.lanes)


def test_a_branch_that_was_dropped_is_drawn() -> None:
    picture = draw([shown(10, "gone")], BRANCHES, "main")
    assert [line.name for line in picture.lanes] == ["main", "gone"]


def test_names_that_lead_in_a_circle_end() -> None:
    circle = {"a": BranchShown("a", "a", "b", 1), "b": BranchShown("b", "b", "a", 1)}
    assert [line.name for line in draw([shown(10, "a")], circle, "main").lanes] == ["main", "a", "b"]


def test_there_is_room_for_so_many_branches() -> None:
    marks = [shown(at, f"b{at:02}") for at in range(1, LANES_MAX + 10)]
    picture = draw(marks, {}, "main")
    assert len(picture.lanes) == LANES_MAX
    assert picture.left_out == 10


def test_times_do_not_overlap() -> None:
    picture = draw([shown(at) for at in range(1, 60)], BRANCHES, "main")
    places = [tick.x for tick in picture.ticks]
    assert min(later - x for x, later in pairwise(places)) >= TICK_STEP
