"""The steps that led to each version of a history, in an order in which they could have run one after another.

A step is a version that is not a merge, named by the place that made it. A merge appends the steps of its source that
the target lacks after all steps of the target. If the source lacks nothing, both have the same steps afterwards, in the
source's order. Every step must have seen the steps before it that matter to it. So merges are held to the same rule as
commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TypeAlias

from tests.histories import (
    DELTA_NAME,
    Alone,
    Comparison,
    DryMerge,
    History,
    Operation,
    Place,
    PlaceVersion,
    Version,
    Write,
    name_of,
)

Files: TypeAlias = frozenset[str]


@dataclass(frozen=True)
class State:
    steps: tuple[PlaceVersion, ...] = ()
    files: Files = frozenset()


class Steps:
    """``made``: the operation that made each version. ``listed``: what the service finally says of each version.

    ``problems`` has the violations of the versions that were asked for.
    """

    def __init__(
        self, history: History, made: Mapping[PlaceVersion, Operation], listed: Mapping[PlaceVersion, Version]
    ) -> None:
        self._history, self._made, self._listed = history, made, listed
        self._states: dict[Place, list[State]] = {}
        self.problems: list[str] = []

    def of(self, place: Place, version: int) -> State:
        fork = self._history.forks.get(place)
        if fork and version <= fork[1]:
            return self.of(fork[0], version)
        start = fork[1] if fork else 0
        states = self._states.setdefault(place, [self.of(*fork) if fork else State()])
        while len(states) <= version - start:
            states.append(self._after(states[-1], place, start + len(states)))
        return states[version - start]

    def _write(self, at: PlaceVersion) -> Write:
        return self._made[at].writes[at[0]]

    def _after(self, before: State, place: Place, version: int) -> State:
        at = place, version
        if self._write(at).merges:
            return self._merged(before, at)
        for other in self._minded(at, before.steps):
            self.problems.append(f"{self._told(at)} comes after {self._told(other)}, which it should have seen")
        return State((*before.steps, at), self._applied(before.files, at, self._told(at)))

    def _merged(self, before: State, at: PlaceVersion) -> State:
        write, merged, told = self._write(at), self._listed[at].merged, self._told(at)
        assert merged is not None
        source_name, after, upto = merged
        source_at = (at[0][0], source_name)
        source, had = self.of(source_at, upto), set(before.steps)
        brings = [step for step in source.steps if step not in had]
        if not had.issuperset(self.of(source_at, after).steps):
            self.problems.append(f"{told} begins after version {after} of {name_of(source_at)}, which it does not have")
        if write.replayed not in (None, len(brings)):
            self.problems.append(f"{told} was told to replay {write.replayed} versions, not {len(brings)}")
        forward = len(before.steps) + len(brings) == len(source.steps)
        if write.replayed is not None and write.fast_forward != forward:
            self.problems.append(f"{told} was {'not ' if forward else ''}told to be a fast-forward")
        files = before.files
        for step in brings:
            files = self._applied(files, step, told)
        if not forward:
            self.problems += self._misplaced(before.steps, brings, told)
            return State((*before.steps, *brings), files)
        if files != source.files:
            self.problems.append(f"{told}, a fast-forward, is {difference(source.files, files)}")
        return State(source.steps, files)

    def _misplaced(self, target: Sequence[PlaceVersion], brings: Sequence[PlaceVersion], told: str) -> Iterator[str]:
        for number, step in enumerate(brings):
            for other in self._minded(step, [*target, *brings[:number]]):
                yield f"{told} puts {self._told(step)} after {self._told(other)}, which it should have seen"

    def _minded(self, at: PlaceVersion, before: Iterable[PlaceVersion]) -> list[PlaceVersion]:
        """The earlier steps that this one has not seen, but should have."""
        place, version = at
        write = self._write(at)
        read = version - 1 if write.restores or write.column else write.read
        seen = set(self.of(place, read).steps)
        return [other for other in before if other not in seen and _minds(write, self._write(other))]

    def _applied(self, files: Files, at: PlaceVersion, told: str) -> Files:
        place, version = at
        write = self._write(at)
        if write.restores:  # on another branch a restore makes the same changes as on its own
            before, content = self.of(place, version - 1).files, self.of(place, write.restores).files
            return (files - (before - content)) | (content - before)
        if not write.removed <= files:
            missing = some(write.removed - files)
            self.problems.append(f"{told} takes {missing} out of what is before it, which does not have it")
        after = frozenset(path for path in files - write.removed if not _is_cleared(path, write.clears)) | write.added
        if homeless := _slices(after, delta=True) - _slices(after, delta=False):
            self.problems.append(f"{told} leaves deltas of {some(homeless)} without a base")
        return after

    def wrong(self, told: str, comparison: Comparison, versions: Mapping[Place, int]) -> Iterator[str]:
        """Violations in the response to a comparison of two places."""
        for place, other in permutations(comparison.sides):
            mine, theirs = (self.of(one, versions[one]) for one in (place, other))
            had = set(theirs.steps)
            own = [step for step in mine.steps if step not in had]
            both = self._both(place, versions[place], had)
            right = Alone(len(own), len(mine.files - both), len(both - mine.files))
            if comparison.sides[place] != right:
                yield f"{told} found of {name_of(place)} {comparison.sides[place]}, not {right}"
            merge = f"{told}: a merge of {name_of(place)} into {name_of(other)}"
            yield from self._wrong_merge(merge, comparison.merges[place], theirs, own, mine)

    def _both(self, place: Place, version: int, had: set[PlaceVersion]) -> Files:
        """The files of a version without those that only this side has."""
        shared = next(
            at for at in range(version, -1, -1) if all(step in had for step in reversed(self.of(place, at).steps))
        )
        steps = self.of(place, version).steps
        before = set(self.of(place, shared).steps)
        files = self.of(place, shared).files
        for step in steps:
            if step in had and step not in before:
                files = self._applied(files, step, "")
        return files

    def _wrong_merge(
        self, told: str, merge: DryMerge, target: State, own: Sequence[PlaceVersion], source: State
    ) -> Iterator[str]:
        forward = len(target.steps) + len(own) == len(source.steps)
        if merge.fast_forward != forward:
            yield f"{told} would {'' if forward else 'not '}be a fast-forward"
        if merge.refused:
            return
        if merge.replayed != len(own):
            yield f"{told} would replay {len(own)} versions, not {merge.replayed}"
        if not forward:
            yield from self._misplaced(target.steps, own, told)

    def _told(self, at: PlaceVersion) -> str:
        return f"{self._made[at].what} (version {at[1]} of {name_of(at[0])})"


def _minds(mine: Write, theirs: Write) -> bool:
    """Whether it matters that ``mine`` has not seen ``theirs``."""
    if theirs.service or theirs.column:
        return False
    if mine.restores or theirs.restores:
        return True
    if any(_place_of(path).startswith(saw) for path in theirs.added | theirs.removed for saw in mine.saw):
        return True
    near = any(saw.startswith(clears) or clears.startswith(saw) for clears in theirs.clears for saw in mine.saw)
    # Whether the added files belong to the new content is not known.
    return near or any(_is_cleared(path, theirs.clears) for path in mine.added)


def _is_cleared(path: str, clears: Iterable[str]) -> bool:
    return any(map(_place_of(path).startswith, clears))


def _place_of(path: str) -> str:
    """The path without the instant."""
    return path.partition("/")[2]


def _slices(paths: Iterable[str], *, delta: bool) -> set[str]:
    """The month and file group of base files, or of deltas."""
    return {_place_of(path).rpartition("/")[0] for path in paths if path.endswith(DELTA_NAME) == delta}


def difference(right: Files, seen: Files) -> str:
    return f"without {some(right - seen)} and with {some(seen - right)} too many"


def some(paths: Iterable[str]) -> str:
    listed = sorted(paths)
    return ", ".join(listed[:2]) + (f" and {len(listed) - 2} more" if len(listed) > 2 else "") or "nothing"
