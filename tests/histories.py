"""Histories of concurrent clients, and whether they are strictly serializable.

A history is what clients asked and were told, with times of one clock, and at its end the versions that the service
names. Since every change of a branch has a number, the order of changes is known and need not be searched for: the
history is strictly serializable if and only if no cycle is in the graph of who must come before whom (Adya's
dependencies with the order of real time; Elle finds anomalies in the same way). ``check`` is pure.

Edges: who made version v comes before who made v + 1 and before who read v, who read v before who made v + 1, and who
had ended before whoever began later. What is of unknown outcome has happened at some time after it began, or never.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Literal, TypeAlias

Place: TypeAlias = tuple[str, str]  # table, branch
Outcome: TypeAlias = Literal["ok", "refused", "unknown"]
MAIN = "main"


@dataclass(frozen=True)
class Write:
    """What an operation does to one place; ``version``: as it was told, 0 if it was not.

    ``restores``: a version; ``merges``: a branch. ``instant`` 0: the service chose one and has not told it.
    """

    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    everything: bool = False
    restores: int = 0
    merges: str = ""
    instant: int = 0
    version: int = 0


@dataclass(frozen=True)
class Operation:
    """``reads``: the latest versions that it saw, of all places at one moment; ``contents``: the files of those.
    Where it reads and writes, it makes the next version.

    ``creates``: a branch, from the latest version. Without an answer ``ended_ns`` says nothing.
    """

    what: str
    began_ns: int
    ended_ns: int
    outcome: Outcome = "ok"
    writes: Mapping[Place, Write] = field(default_factory=dict)
    reads: Mapping[Place, int] = field(default_factory=dict)
    contents: Mapping[Place, frozenset[str]] = field(default_factory=dict)
    creates: Place | None = None


@dataclass(frozen=True)
class Version:
    """As the service lists it in the end; ``merged``: branch, after and up to which of its versions."""

    version: int
    instant: int
    restores: int = 0
    merged: tuple[str, int, int] | None = None


@dataclass(frozen=True)
class History:
    """``versions`` of each place, of a branch those above its fork; ``forks``: the parent and the version of each;
    ``kept``: the files of versions, old ones too, as they are in the end."""

    operations: Sequence[Operation]
    versions: Mapping[Place, Sequence[Version]]
    forks: Mapping[Place, tuple[Place, int]] = field(default_factory=dict)
    kept: Mapping[tuple[Place, int], frozenset[str]] = field(default_factory=dict)

    def fork(self, place: Place) -> int:
        return self.forks[place][1] if place in self.forks else 0


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


def check(history: History) -> list[str]:
    """What is wrong, in sentences; nothing: the history is strictly serializable."""
    ledger = Ledger(history)
    if ledger.problems:
        return ledger.problems  # what a version holds is not known then
    return [*_wrong_contents(history, ledger), *_cycle(history, ledger)]


class Ledger:
    """Who made which version: each acknowledged one is there once, no other, and none by half."""

    def __init__(self, history: History) -> None:
        self.problems: list[str] = []
        self.made: dict[tuple[Place, int], Operation] = {}
        self.listed = {(place, one.version): one for place, listed in history.versions.items() for one in listed}
        self._history = history
        self._by_instant: dict[tuple[str, int], tuple[Place, int]] = {}
        self._check_numbers()
        for operation in history.operations:
            self._settle(operation)
        self._settle_unknown()
        self._check_merges()
        self.problems += [f"nobody made version {version} of {_name(place)}" for place, version in self._unclaimed()]

    def write(self, place: Place, version: int) -> Write:
        return self.made[place, version].writes[place]

    def _check_numbers(self) -> None:
        for place, listed in self._history.versions.items():
            numbers, first = [one.version for one in listed], self._history.fork(place) + 1
            if numbers != list(range(first, first + len(numbers))):
                self.problems.append(f"the versions of {_name(place)} have a gap or are there twice: {numbers}")
            for one in listed:
                before = self._by_instant.setdefault((place[0], one.instant), (place, one.version))
                if before != (place, one.version):
                    self.problems.append(
                        f"instant {one.instant} is version {one.version} of {_name(place)} and version {before[1]} of "
                        f"{_name(before[0])}: a duplicate"
                    )

    def _settle(self, operation: Operation) -> None:
        found = {}
        for place, write in operation.writes.items():
            version = write.version
            if not version and write.instant:
                version = self._by_instant.get((place[0], write.instant), (place, 0))[1]
            listed = self.listed.get((place, version))
            if listed is not None and write.instant in (0, listed.instant):
                found[place] = version
            elif operation.outcome == "ok":
                self.problems.append(f"{operation.what} was told version {version} of {_name(place)}: it is lost")
        if operation.outcome == "refused" and found:
            self.problems.append(f"{operation.what} was refused and has happened: {_versions(found)}")
        elif found and len(found) < len(operation.writes):
            self.problems.append(f"half of {operation.what} has happened: {_versions(found)}")
        self._claim(operation, found)

    def _claim(self, operation: Operation, found: Mapping[Place, int]) -> None:
        for place, version in found.items():
            other = self.made.setdefault((place, version), operation)
            if other is not operation:
                self.problems.append(f"{other.what} and {operation.what} both are version {version} of {_name(place)}")

    def _settle_unknown(self) -> None:
        """Restores and merges do not know their instants. Who began first takes the first version that fits."""
        unknown = sorted((one for one in self._history.operations if one.outcome == "unknown"), key=_began)
        done: set[int] = set()
        for place, version in self._unclaimed():
            listed = self.listed[place, version]
            for operation in unknown:
                write = operation.writes.get(place)
                if write is None or write.instant or id(operation) in done:
                    continue
                if (write.restores, write.merges) == (listed.restores, listed.merged[0] if listed.merged else ""):
                    self._claim(operation, {place: version})
                    done.add(id(operation))
                    break

    def _unclaimed(self) -> list[tuple[Place, int]]:
        return [key for key in self.listed if key not in self.made]

    def _check_merges(self) -> None:
        """Each version of a branch is replayed once."""
        upto: dict[Place, int] = {}
        for (place, version), listed in self.listed.items():
            if listed.merged:
                branch = (place[0], listed.merged[0])
                after = upto.get(branch, self._history.fork(branch))
                if listed.merged[1] != after:
                    self.problems.append(
                        f"version {version} of {_name(place)} replays {_name(branch)} after version "
                        f"{listed.merged[1]}, not {after}"
                    )
                upto[branch] = listed.merged[2]


class _Contents:
    """The files of each version: those of the one before, and what its maker said that it would do."""

    def __init__(self, history: History, ledger: Ledger) -> None:
        self._history, self._ledger = history, ledger
        self._folded: dict[Place, list[frozenset[str]]] = {}
        self.problems: list[str] = []

    def of(self, place: Place, version: int) -> frozenset[str]:
        fork = self._history.forks.get(place)
        if fork and version <= fork[1]:
            return self.of(fork[0], version)
        start = fork[1] if fork else 0
        folded = self._folded.setdefault(place, [self.of(*fork) if fork else frozenset()])
        while len(folded) <= version - start:
            folded.append(self._after(folded[-1], place, start + len(folded)))
        return folded[version - start]

    def _after(self, before: frozenset[str], place: Place, version: int) -> frozenset[str]:
        write = self._ledger.write(place, version)
        if write.restores:
            return self.of(place, write.restores)
        if write.merges:
            merged, branch = self._ledger.listed[place, version].merged, (place[0], write.merges)
            assert merged is not None
            for replayed in range(merged[1] + 1, merged[2] + 1):
                before = self._after(before, branch, replayed)
            return before
        if not write.removed <= before:
            self.problems.append(
                f"{self._ledger.made[place, version].what} takes {_some(write.removed - before)} out of version "
                f"{version - 1} of {_name(place)}, which does not have it"
            )
        return (frozenset() if write.everything else before - write.removed) | write.added


def _wrong_contents(history: History, ledger: Ledger) -> Iterator[str]:
    contents = _Contents(history, ledger)
    for operation in history.operations:
        for place, version in operation.reads.items():
            if version > history.fork(place) and (place, version) not in ledger.listed:
                yield f"{operation.what} saw version {version} of {_name(place)}, which never was"
            elif place in operation.contents:
                right, seen = contents.of(place, version), operation.contents[place]
                if seen != right:
                    yield f"{operation.what} saw version {version} of {_name(place)} {_difference(right, seen)}"
    for (place, version), found in history.kept.items():
        if found != contents.of(place, version):
            yield f"in the end version {version} of {_name(place)} is {_difference(contents.of(place, version), found)}"
    for place, listed in history.versions.items():
        if listed:
            contents.of(place, listed[-1].version)
    yield from contents.problems


# -- who comes before whom ---------------------------------------------------------------------------------------------


class _Graph:
    """Operations are nodes from 0 on; behind them is a node for the end of each, in the order of time, so that a time
    before another takes one edge and not one for each pair."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations
        self._number = {id(operation): number for number, operation in enumerate(operations)}
        self.why: dict[tuple[int, int], str] = {}
        self.after: dict[int, set[int]] = {}

    def put(self, one: Operation | int | None, other: Operation | int | None, why: str) -> None:
        if one is None or other is None or one is other:
            return
        first, second = (end if isinstance(end, int) else self._number[id(end)] for end in (one, other))
        self.why.setdefault((first, second), why)
        self.after.setdefault(first, set()).add(second)

    def put_times(self) -> None:
        count = len(self.operations)
        ended = sorted((one for one in self.operations if one.outcome == "ok"), key=lambda one: one.ended_ns)
        for place, operation in enumerate(ended, count):
            self.put(operation, place, "")
            if place > count:
                self.put(place - 1, place, "")
        last = -1
        for operation in sorted(self.operations, key=_began):
            while last + 1 < len(ended) and ended[last + 1].ended_ns < operation.began_ns:
                last += 1
            if last >= 0:
                self.put(count + last, operation, "")

    def cycle(self) -> list[int]:
        """The shortest through an operation of some cycle; none: []."""
        before: dict[int, set[int]] = {}
        for first, seconds in self.after.items():
            for second in seconds:
                before.setdefault(second, set()).add(first)
        try:
            TopologicalSorter(before).prepare()
        except CycleError as error:
            on_it = [node for node in error.args[1] if node < len(self.operations)]
            return min((self._shortest(node) for node in on_it), key=len)
        return []

    def _shortest(self, start: int) -> list[int]:
        came: dict[int, int] = {}
        todo = deque([start])
        while start not in came:
            node = todo.popleft()
            for following in self.after.get(node, ()):
                if following not in came:
                    came[following] = node
                    todo.append(following)
        path = [start]
        while len(path) == 1 or path[-1] != start:
            path.append(came[path[-1]])
        return path[::-1]


def _cycle(history: History, ledger: Ledger) -> Iterator[str]:
    happened = {id(operation) for operation in ledger.made.values()}
    graph = _Graph([one for one in history.operations if id(one) in happened or _is_told(one)])
    made = dict(ledger.made)
    for operation in graph.operations:
        if operation.creates and operation.creates in history.forks:
            made[operation.creates, history.forks[operation.creates][1]] = operation
    for (place, version), operation in made.items():
        graph.put(
            operation, made.get((place, version + 1)), f"version {version} of {_name(place)} comes before the next"
        )
    for operation in graph.operations:
        for place, version in _seen(operation, history, ledger):
            why = f"version {version} of {_name(place)} was seen"
            graph.put(made.get((place, version)), operation, why)
            graph.put(operation, made.get((place, version + 1)), f"{why}, and not the next one")
    graph.put_times()
    path = graph.cycle()
    if path:
        yield "no order is possible: " + "; ".join(_told(graph, path))


def _is_told(operation: Operation) -> bool:
    return operation.outcome == "ok" and not operation.writes


def _seen(operation: Operation, history: History, ledger: Ledger) -> Iterator[tuple[Place, int]]:
    """The heads that an operation has read, be it a reader or not."""
    yield from operation.reads.items()
    if operation.creates and operation.creates in history.forks:
        yield history.forks[operation.creates]
    for place, write in operation.writes.items():
        if write.merges:
            version = next(number for (at, number), one in ledger.made.items() if at == place and one is operation)
            merged = ledger.listed[place, version].merged
            assert merged is not None
            yield (place[0], write.merges), merged[2]


def _told(graph: _Graph, path: Sequence[int]) -> Iterator[str]:
    count = len(graph.operations)
    last = path[0]
    for node, following in pairwise(path):
        if node < count:
            last = node
        if following < count:
            why = graph.why[node, following] or "it had ended when the other began"
            yield f"[{graph.operations[last].what}] before [{graph.operations[following].what}] ({why})"


def _began(operation: Operation) -> int:
    return operation.began_ns


def _name(place: Place) -> str:
    return f"{place[0]}@{place[1]}"


def _versions(found: Mapping[Place, int]) -> str:
    return ", ".join(f"version {version} of {_name(place)}" for place, version in found.items())


def _difference(right: frozenset[str], seen: frozenset[str]) -> str:
    return f"without {_some(right - seen)} and with {_some(seen - right)} too many"


def _some(paths: Iterable[str]) -> str:
    listed = sorted(paths)
    return ", ".join(listed[:2]) + (f" and {len(listed) - 2} more" if len(listed) > 2 else "") or "nothing"
