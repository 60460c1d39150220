"""The picture of a timeline: where instants, branches and forks are drawn. Pure; the template makes SVG of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

STEP: Final = 24
LANE: Final = 44
LEFT: Final = 150
TOP: Final = 34
RIGHT: Final = 30
LANES_MAX: Final = 20
TICK_STEP: Final = 100
"""Between two times below the picture at least."""

_NAME_CHARS: Final = 18


@dataclass(frozen=True, slots=True)
class InstantShown:
    """An instant to draw. ``branch``: the key of its branch. ``state``: "completed", "open", "lost" or "rolled back".

    ``shape``: "commit", "service", "restore", "schema" or "other". ``version``: 0 if it made none.
    """

    instant: int
    branch: str
    state: str
    shape: str
    version: int
    title: str


@dataclass(frozen=True, slots=True)
class BranchShown:
    """A branch that may be drawn. ``parent`` "": it has none."""

    key: str
    name: str
    parent: str = ""
    fork_version: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """An instant at its place."""

    x: int
    y: int
    shown: InstantShown


@dataclass(frozen=True, slots=True)
class BranchLine:
    """A branch: a horizontal line from ``x1`` to ``x2``. ``fork``: where it leaves its parent; None: not in sight."""

    name: str
    y: int
    x1: int
    x2: int
    fork: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Tick:
    """A time below the picture."""

    x: int
    ms: int


@dataclass(frozen=True, slots=True)
class Picture:
    """All of it, in pixels. ``left_out``: instants on branches for which there was no room."""

    width: int
    height: int
    lanes: tuple[BranchLine, ...]
    marks: tuple[Mark, ...]
    ticks: tuple[Tick, ...]
    left_out: int


def draw(instants: Sequence[InstantShown], branches: Mapping[str, BranchShown], main: str) -> Picture:
    """Instants in any order, with the branches that they are on by key. Each instant has a column of its own."""
    ordered = sorted(instants, key=lambda one: one.instant)
    columns = {one.instant: LEFT + STEP * at for at, one in enumerate(ordered)}
    keys = _lanes(ordered, branches, main)
    rows = {key: TOP + LANE * at for at, key in enumerate(keys)}
    marks = tuple(Mark(columns[one.instant], rows[one.branch], one) for one in ordered if one.branch in rows)
    width = LEFT + STEP * max(len(ordered) - 1, 0) + RIGHT
    lanes = tuple(_lane(key, rows, branches, marks, width) for key in keys)
    every = -(-TICK_STEP // STEP)
    ticks = tuple(Tick(columns[one.instant], one.instant) for one in ordered[::every])
    height = TOP + LANE * (len(keys) - 1) + LANE + 16
    return Picture(width, height, lanes, marks, ticks, len(ordered) - len(marks))


def _lanes(ordered: Sequence[InstantShown], branches: Mapping[str, BranchShown], main: str) -> list[str]:
    """Main first, then each branch below its parent, as far as there is room."""
    parents: dict[str, str] = {}
    for instant in ordered:
        key = instant.branch
        while key != main and key not in parents:  # with the branches that it came from
            parents[key] = _parent(key, branches, main)
            key = parents[key]
    children: dict[str, list[str]] = {}
    for key in sorted(parents):
        children.setdefault(parents[key] if _reaches(key, parents, main) else main, []).append(key)
    keys: list[str] = []
    waiting = [main]
    while waiting and len(keys) < LANES_MAX:
        key = waiting.pop()
        keys.append(key)
        waiting += reversed(children.pop(key, ()))
    return keys


def _reaches(key: str, parents: Mapping[str, str], main: str) -> bool:
    """Whether a branch came from main. Names lead in a circle where one was dropped and given to another branch."""
    for _ in parents:
        key = parents[key]
        if key == main:
            return True
    return False


def _parent(key: str, branches: Mapping[str, BranchShown], main: str) -> str:
    """Of a branch that was dropped nothing is known: it is drawn as one of main."""
    branch = branches.get(key)
    return branch.parent if branch is not None and branch.parent in (main, *branches) else main


def _lane(
    key: str, rows: Mapping[str, int], branches: Mapping[str, BranchShown], marks: Sequence[Mark], width: int
) -> BranchLine:
    branch = branches.get(key, BranchShown(key, key))
    name = branch.name if len(branch.name) <= _NAME_CHARS else branch.name[: _NAME_CHARS - 1] + "…"
    end = width - RIGHT + 10
    fork: tuple[int, int] | None = None
    begin = LEFT - 14
    if branch.parent in rows:
        at = [
            mark
            for mark in marks
            if mark.shown.branch == branch.parent and 0 < mark.shown.version <= branch.fork_version
        ]
        own = [mark.x for mark in marks if mark.shown.branch == key]
        if at:
            fork = (at[-1].x, rows[branch.parent])
            begin = at[-1].x + STEP // 2
        elif own and not branch.fork_version:
            begin = min(own) - STEP // 2
    return BranchLine(name, rows[key], begin, max(end, begin), fork)
