"""Histories of concurrent clients: their requests and responses with times of one clock, and the final state.

``tests/history_checker.py`` decides whether a history is correct.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Place: TypeAlias = tuple[str, str]  # table, branch
PlaceVersion: TypeAlias = tuple[Place, int]  # a version
Outcome: TypeAlias = Literal["ok", "refused", "unknown"]
MAIN = "main"
DELTA_NAME = "/delta.parquet"


@dataclass(frozen=True)
class Write:
    """What an operation does to one place. ``version``: as the service reported it; 0 if it did not.

    ``clears``: removes all files whose paths, without the instant, begin with one of these ("": all files). ``read``:
    the version whose files with the prefixes ``saw`` decided what the operation does. ``restores``: a version.
    ``merges``: a branch; ``replayed`` and ``fast_forward`` are as the service reported them. ``column``: adds a column
    with a unique name to the schema. ``instant`` 0: the service chose one and did not report it.
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
    service: bool = False  # rewrites files without changing rows
    instant: int = 0
    version: int = 0


@dataclass(frozen=True)
class Clean:
    """A clean. ``retains``: at least so many of the newest versions.

    ``earliest``: as the service reported it; all versions before it have ended, except ``spared``.
    """

    place: Place
    retains: int
    earliest: int = 0
    spared: frozenset[int] = frozenset()


@dataclass(frozen=True)
class DryMerge:
    """What a merge would do, as the service reported it. ``refused`` "": it would not be refused."""

    replayed: int
    fast_forward: bool
    refused: str


@dataclass(frozen=True)
class Alone:
    """How many versions and added files only one of two places has, and how many files only it has removed."""

    versions: int
    added: int
    removed: int


@dataclass(frozen=True)
class Comparison:
    """A comparison of two places, as the service reported it. ``merges``: of each place into the other."""

    sides: Mapping[Place, Alone]
    merges: Mapping[Place, DryMerge]


@dataclass(frozen=True)
class Operation:
    """One operation of a client.

    ``reads``: the latest versions of several places at one moment; ``contents`` has their files and ``columns`` the
    columns that were added to their schemas. ``looks``: any version, whose files are in ``contents``; "refused" if it
    has ended. ``creates``: a branch, forked from the latest version of ``creates_from``. ``keeps``: a version that a
    tag or savepoint keeps for good. Without a response ``ended_ns`` means nothing.
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
    looks: PlaceVersion | None = None
    keeps: PlaceVersion | None = None
    cleans: Clean | None = None


@dataclass(frozen=True)
class Version:
    """A version as the service finally lists it.

    ``merged``: branch, and the versions of it after and up to which were replayed. ``columns``: those added to the
    schema that the version is read with.
    """

    version: int
    instant: int
    restores: int = 0
    merged: tuple[str, int, int] | None = None
    columns: frozenset[str] = frozenset()


@dataclass(frozen=True)
class History:
    """A history with its final state.

    ``versions`` of each place: of a branch only those after its fork. ``forks``: parent and version of each branch.
    ``kept``: the final files of versions, old ones too; ``lost``: those of them that are not on disk. ``gone``:
    versions that have ended.
    """

    operations: Sequence[Operation]
    versions: Mapping[Place, Sequence[Version]]
    forks: Mapping[Place, PlaceVersion] = field(default_factory=dict)
    kept: Mapping[PlaceVersion, frozenset[str]] = field(default_factory=dict)
    lost: Mapping[PlaceVersion, frozenset[str]] = field(default_factory=dict)
    gone: frozenset[PlaceVersion] = frozenset()

    def fork(self, place: Place) -> int:
        return self.forks[place][1] if place in self.forks else 0

    def owner(self, place: Place, version: int) -> Place:
        """The place that made a version: up to the fork, an ancestor of the branch."""
        while version <= self.fork(place) and place in self.forks:
            place = self.forks[place][0]
        return place


class Recorder:
    """Records operations of many threads."""

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
