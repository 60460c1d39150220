"""Decides whether a history of concurrent clients is strictly serializable.

Every change of a branch has a number, so the order of changes is known and need not be searched for. A history is
strictly serializable if and only if the graph of which operation must precede which has no cycle (Adya's dependencies
with real-time order; Elle finds anomalies in the same way). ``check`` is pure.

Edges: the operation that made version v precedes the one that made v + 1 and those that read v; those that read v
precede the one that made v + 1; an operation that ended precedes those that began later. An operation of unknown
outcome happened at some time after it began, or never.

Further checks: what a version does fits the version before it, on its own branch and wherever it is merged
(``tests/history_steps.py``); a version is read with the columns that its table had then; old versions end as
``tests/history_cleans.py`` requires.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from tests.histories import MAIN, History, Operation, Place, PlaceVersion, Write, name_of
from tests.history_cleans import wrong_ends
from tests.history_steps import Steps, difference, some


def check(history: History) -> list[str]:
    """Violations, in sentences. None: the history is strictly serializable."""
    ledger = Ledger(history)
    if ledger.problems:
        return ledger.problems  # without the ledger the content of versions is not known
    return [
        *_wrong_contents(history, ledger),
        *_wrong_columns(history, ledger),
        *wrong_ends(history, ledger.made),
        *_cycle(history, ledger),
    ]


class Ledger:
    """Which operation made which version. Every acknowledged version exists once and whole, and no other exists."""

    def __init__(self, history: History) -> None:
        self.problems: list[str] = []
        self.made: dict[PlaceVersion, Operation] = {}
        self.listed = {(place, one.version): one for place, listed in history.versions.items() for one in listed}
        self._history = history
        self._by_instant: dict[tuple[str, int], tuple[Place, int]] = {}
        self.altered: dict[str, list[tuple[str, int]]] = {}  # by table: each added column with its version
        self._check_numbers()
        self._find_columns()
        for operation in history.operations:
            self._settle(operation)
        self._settle_unknown()
        self.problems += [f"nobody made version {version} of {name_of(place)}" for place, version in self._unclaimed()]

    def write(self, place: Place, version: int) -> Write:
        return self.made[place, version].writes[place]

    def _check_numbers(self) -> None:
        for place, listed in self._history.versions.items():
            numbers, first = [one.version for one in listed], self._history.fork(place) + 1
            if numbers != list(range(first, first + len(numbers))):
                self.problems.append(f"the versions of {name_of(place)} have a gap or are there twice: {numbers}")
            for one in listed:
                before = self._by_instant.setdefault((place[0], one.instant), (place, one.version))
                if before != (place, one.version):
                    self.problems.append(
                        f"instant {one.instant} is version {one.version} of {name_of(place)} and version {before[1]} "
                        f"of {name_of(before[0])}: a duplicate"
                    )

    def _find_columns(self) -> None:
        for (table, branch), listed in self._history.versions.items():
            before: frozenset[str] = frozenset()
            for one in listed if branch == MAIN else ():
                self.altered.setdefault(table, []).extend((name, one.version) for name in sorted(one.columns - before))
                before = one.columns

    def _settle(self, operation: Operation) -> None:
        found = {}
        for place, write in operation.writes.items():
            version = write.version
            if not version and write.instant:
                version = self._by_instant.get((place[0], write.instant), (place, 0))[1]
            if not version and write.column:
                version = dict(self.altered.get(place[0], ())).get(write.column, 0)
            listed = self.listed.get((place, version))
            if listed is not None and write.instant in (0, listed.instant):
                found[place] = version
            elif operation.outcome == "ok":
                self.problems.append(f"{operation.what} was told version {version} of {name_of(place)}: it is lost")
        if operation.outcome == "refused" and found:
            self.problems.append(f"{operation.what} was refused and has happened: {_versions(found)}")
        elif found and len(found) < len(operation.writes):
            self.problems.append(f"half of {operation.what} has happened: {_versions(found)}")
        self._claim(operation, found)

    def _claim(self, operation: Operation, found: Mapping[Place, int]) -> None:
        for place, version in found.items():
            other = self.made.setdefault((place, version), operation)
            if other is not operation:
                self.problems.append(
                    f"{other.what} and {operation.what} both are version {version} of {name_of(place)}"
                )

    def _settle_unknown(self) -> None:
        """Assigns versions to restores and merges of unknown outcome, which do not know their instants.

        The operation that began first takes the first version that fits.
        """
        unknown = sorted((one for one in self._history.operations if one.outcome == "unknown"), key=_began)
        done: set[int] = set()
        for place, version in self._unclaimed():
            listed = self.listed[place, version]
            for operation in unknown:
                write = operation.writes.get(place)
                if write is None or write.instant or write.column or id(operation) in done:
                    continue
                if (write.restores, write.merges) == (listed.restores, listed.merged[0] if listed.merged else ""):
                    self._claim(operation, {place: version})
                    done.add(id(operation))
                    break

    def _unclaimed(self) -> list[PlaceVersion]:
        return [key for key in self.listed if key not in self.made]


def _wrong_contents(history: History, ledger: Ledger) -> Iterator[str]:
    steps = Steps(history, ledger.made, ledger.listed)
    for operation in history.operations:
        for place, version in operation.reads.items():
            if version > history.fork(place) and (place, version) not in ledger.listed:
                yield f"{operation.what} saw version {version} of {name_of(place)}, which never was"
                return
        found = {**operation.reads, **dict([operation.looks] if operation.looks else [])}
        for place, seen in operation.contents.items() if operation.outcome == "ok" else ():
            right = steps.of(place, found[place]).files
            if seen != right:
                yield f"{operation.what} saw version {found[place]} of {name_of(place)} {difference(right, seen)}"
        if operation.compares:
            yield from steps.wrong(operation.what, operation.compares, operation.reads)
    for (place, version), seen in history.kept.items():
        right = steps.of(place, version).files
        if seen != right:
            yield f"in the end version {version} of {name_of(place)} is {difference(right, seen)}"
    for (place, version), lost in history.lost.items():
        yield f"in the end version {version} of {name_of(place)} has no {some(lost)} on disk"
    for place, listed in history.versions.items():
        if listed:
            steps.of(place, listed[-1].version)
    yield from steps.problems


def _wrong_columns(history: History, ledger: Ledger) -> Iterator[str]:
    """A change of the schema is one version of main. Each later version has it and is read with it."""
    for (place, version), listed in ledger.listed.items():
        came = [name for name, at in ledger.altered.get(place[0], ()) if at <= version or place[1] != MAIN]
        right = frozenset(came if place[1] == MAIN else came[: len(listed.columns)])
        if listed.columns != right:
            yield f"version {version} of {name_of(place)} has columns {some(listed.columns)}, not {some(right)}"
    for table, came_at in ledger.altered.items():
        for name, version in came_at:
            write = ledger.write((table, MAIN), version)
            if write.column != name:
                yield f"{ledger.made[(table, MAIN), version].what} brought column {name} of {table}"
    for operation in history.operations:
        for place, seen in operation.columns.items():
            version = operation.reads[place]
            found = ledger.listed.get((history.owner(place, version), version))
            right = found.columns if found else frozenset()
            if seen != right:
                told = f"with {some(seen)}, not {some(right)}"
                yield f"{operation.what} read version {version} of {name_of(place)} {told}"


# -- who comes before whom ---------------------------------------------------------------------------------------------


class _Graph:
    """The precedence graph. Operations are nodes from 0 on.

    After them comes a node for the end of each operation, in the order of time, so that real-time order needs one edge
    for each end and not one for each pair.
    """

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
        """The shortest cycle through some operation; [] if there is none."""
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
            operation, made.get((place, version + 1)), f"version {version} of {name_of(place)} comes before the next"
        )
    for (place, version), operation in made.items():
        listed = ledger.listed.get((place, version))
        if place[1] != MAIN and listed:  # a commit to a branch sees the table's schema, which changes on main
            table, has = (place[0], MAIN), len(listed.columns)
            versions = [0, *(at for _, at in ledger.altered.get(place[0], ()))]
            why = f"version {version} of {name_of(place)} has the schema of {has} changes"
            for before, after in zip(versions[has : has + 1], versions[has + 1 : has + 2] or [-1], strict=False):
                graph.put(made.get((table, before)), operation, why)
                graph.put(operation, made.get((table, after)), why)
    for operation in graph.operations:
        for place, version in _seen(operation, history, ledger):
            why = f"version {version} of {name_of(place)} was seen"
            graph.put(made.get((place, version)), operation, why)
            graph.put(operation, made.get((place, version + 1)), f"{why}, and not the next one")
    graph.put_times()
    path = graph.cycle()
    if path:
        yield "no order is possible: " + "; ".join(_told(graph, path))


def _is_told(operation: Operation) -> bool:
    return operation.outcome == "ok" and not operation.writes


def _seen(operation: Operation, history: History, ledger: Ledger) -> Iterator[tuple[Place, int]]:
    """The heads that an operation has read, whether or not it is a read."""
    yield from operation.reads.items()
    if operation.creates_from and operation.creates in history.forks:
        yield operation.creates_from, history.forks[operation.creates][1]
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


def _versions(found: Mapping[Place, int]) -> str:
    return ", ".join(f"version {version} of {name_of(place)}" for place, version in found.items())
