"""Histories of concurrent clients: what they asked and were told, with times of one clock, and what is there at last.

``tests/history_checker.py`` says whether a history is right.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Place: TypeAlias = tuple[str, str]  # table, branch
At: TypeAlias = tuple[Place, int]  # a version
Outcome: TypeAlias = Literal["ok", "refused", "unknown"]
MAIN = "main"
DELTA_NAME = "/delta.parquet"


@dataclass(frozen=True)
class Write:
    """What an operation does to one place; ``version``: as it was told, 0 if it was not.

    ``clears``: all files behind these beginnings, without the instant ("": everything). ``read``: the version whose
    files behind the beginnings ``saw`` decided what it does. ``restores``: a version; ``merges``: a branch, and as it
    was told how many versions it ``replayed``, and ``fast_forward``; ``column``: adds one to the schema, with a name of
    its own. ``instant`` 0: the service chose one and has not told it.
    """

    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    clears: frozenset[str] = frozenset()
    read: int = 0
    saw: frozenset[str] = frozenset()
    restores: int = 0
    merges: str = ""
    replayed: int | None = None
    fast_forward: bool = False
    column: str = ""
    service: bool = False  # changes where rows lie, and none of them
    instant: int = 0
    version: int = 0


@dataclass(frozen=True)
class Clean:
    """``retains``: so many of the newest versions; ``earliest``: as it was told, all before it but ``spared`` ended."""

    place: Place
    retains: int
    earliest: int = 0
    spared: frozenset[int] = frozenset()


@dataclass(frozen=True)
class DryMerge:
    """What a merge would do, as it was told; "": it would not be refused."""

    replayed: int
    fast_forward: bool
    refused: str


@dataclass(frozen=True)
class Alone:
    """How many versions and files one place has that another does not, and how many files it has not any more."""

    versions: int
    added: int
    removed: int


@dataclass(frozen=True)
class Comparison:
    """Two places beside each other, as they were told. ``merges``: of each into the other one."""

    sides: Mapping[Place, Alone]
    merges: Mapping[Place, DryMerge]


@dataclass(frozen=True)
class Operation:
    """``reads``: the latest versions that it saw, of all places at one moment; ``contents``: the files of those, and
    ``columns``: those that were added to their schemas.

    ``looks``: a version, maybe an old one, and its files in ``contents``; "refused" if it has ended. ``creates``: a
    branch, from the latest version of ``creates_from``. ``keeps``: a version, by a tag or savepoint that stays. Without
    an answer ``ended_ns`` says nothing.
    """

    what: str
    began_ns: int
    ended_ns: int
    outcome: Outcome = "ok"
    writes: Mapping[Place, Write] = field(default_factory=dict)
    reads: Mapping[Place, int] = field(default_factory=dict)
    contents: Mapping[Place, frozenset[str]] = field(default_factory=dict)
    columns: Mapping[Place, frozenset[str]] = field(default_factory=dict)
    creates: Place | None = None
    creates_from: Place | None = None
    compares: Comparison | None = None
    looks: At | None = None
    keeps: At | None = None
    cleans: Clean | None = None


@dataclass(frozen=True)
class Version:
    """As the service lists it in the end; ``merged``: branch, after and up to which of its versions; ``columns``: those
    that were added to the schema that it is read with."""

    version: int
    instant: int
    restores: int = 0
    merged: tuple[str, int, int] | None = None
    columns: frozenset[str] = frozenset()


@dataclass(frozen=True)
class History:
    """``versions`` of each place, of a branch those above its fork; ``forks``: the parent and the version of each;
    ``kept``: the files of versions, old ones too, as they are in the end, and ``lost`` those of them that are not on
    disk; ``gone``: those that have ended."""

    operations: Sequence[Operation]
    versions: Mapping[Place, Sequence[Version]]
    forks: Mapping[Place, At] = field(default_factory=dict)
    kept: Mapping[At, frozenset[str]] = field(default_factory=dict)
    lost: Mapping[At, frozenset[str]] = field(default_factory=dict)
    gone: frozenset[At] = frozenset()

    def fork(self, place: Place) -> int:
        return self.forks[place][1] if place in self.forks else 0

    def owner(self, place: Place, version: int) -> Place:
        """The branch that has made a version, which is an ancestor's up to the fork."""
        while version <= self.fork(place) and place in self.forks:
            place = self.forks[place][0]
        return place


class Recorder:
    """Takes operations down from many threads."""

    def __init__(self) -> None:
        self._operations: list[Operation] = []
        self._lock = threading.Lock()

    @staticmethod
    def now_ns() -> int:
        return time.monotonic_ns()

    def add(self, operation: Operation) -> None:
        with self._lock:
            self._operations.append(operation)

    def operations(self) -> list[Operation]:
        with self._lock:
            return sorted(self._operations, key=lambda one: one.began_ns)


def name_of(place: Place) -> str:
    return f"{place[0]}@{place[1]}"
