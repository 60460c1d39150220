"""What the clients of a history commit: the files of an instant, the files that it removes, and what it has seen."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path
from typing import TypeAlias

from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from tests.histories import DELTA_NAME, Place, Write
from tests.lakes import file, files

Slice: TypeAlias = tuple[int, str]  # month, file group

TABLES = ("a", "b", "c")
POLICIES = ("partition", "file_group", "row", "file", "column", "table")
MONTHS = 5
SERVICES = {t.COMPACT, t.CLUSTER}
Kind: TypeAlias = tuple[str, t.Operation.ValueType]
REWRITING: tuple[Kind, ...] = (
    ("lay", t.UPSERT), ("lay", t.DELETE), ("replace", t.UPSERT), ("replace", t.OVERWRITE_PREDICATE),
    ("compact", t.COMPACT), ("cluster", t.CLUSTER),
)  # fmt: skip
KINDS: tuple[Kind, ...] = (
    *REWRITING, ("append", t.APPEND), ("overwrite", t.OVERWRITE_PARTITIONS), ("overwrite", t.OVERWRITE_TABLE)
)  # fmt: skip


def policies(seed: int) -> dict[str, str]:
    """The policy of each table; another seed gives other ones."""
    return {table: POLICIES[(seed + number) % len(POLICIES)] for number, table in enumerate(TABLES, -1)}


def pairs(seed: int) -> Iterator[tuple[Kind, Kind]]:
    """Pairs of operations that are to meet; each has its turn as first. Three consecutive seeds begin with different
    ones."""
    found = list(product(KINDS, repeat=2))
    random.Random(0).shuffle(found)
    first = seed * len(found) // 3 % len(found)
    return cycle(found[first:] + found[:first])


@dataclass(frozen=True)
class Plan:
    """What an instant is opened for.

    ``paths``: the files of slices that it rewrites, or the base that it adds a delta to.
    """

    what: str
    place: Place
    operation: t.Operation.ValueType
    months: tuple[int, ...]
    group: str = ""
    paths: tuple[str, ...] = ()
    read_version: int = 0  # 0: the latest
    delta: bool = False


class Planner:
    """``policies`` of the tables, and ``roots``, the directories of their files."""

    def __init__(self, policies: Mapping[str, str], roots: Mapping[str, Path], chance: random.Random) -> None:
        self._policies, self._roots, self._chance = policies, roots, chance

    @staticmethod
    def meeting(kind: Kind, place: Place, version: int, paths: Sequence[str], target: Slice) -> Plan:
        """A plan that changes a slice: of a version that was read, or where the slice is now."""
        what, operation = kind
        month, group = target
        if kind not in REWRITING:
            return Plan(what, place, operation, (month,), read_version=version)
        taken = {target}
        if what == "cluster":  # replaces slices of a month by a file of a new group
            others = sorted({one for at, one in map(slice_of, paths) if at == month} - {group})
            taken |= {(month, one) for one in others[:2]}
        gone = tuple(path for path in paths if slice_of(path) in taken)
        if what == "lay":
            base = tuple(path for path in gone if not path.endswith(DELTA_NAME))
            return Plan(what, place, operation, (month,), group, base, version, delta=True)
        return Plan(what, place, operation, (month,), "" if what == "cluster" else group, gone, version)

    def adding(self, what: str, place: Place) -> Plan:
        count = self._chance.randint(1, 3)
        months = [self._chance.randrange(MONTHS) for _ in range(count)]
        if what != "overwrite":
            return Plan(what, place, t.APPEND, tuple(months))
        operation = self._chance.choice((t.OVERWRITE_TABLE, t.OVERWRITE_PARTITIONS, t.OVERWRITE_PARTITIONS))
        return Plan(what, place, operation, tuple(sorted(set(months))))

    def files(self, plan: Plan, instant: int, name: str) -> list[p.DataFile]:
        """The files of a plan. They exist on disk, but are empty."""
        if plan.delta:
            given = file(instant, plan.group, plan.months[0])
            given.path = given.path.rpartition("/")[0] + DELTA_NAME
            base = max((int(path.partition("/")[0]) for path in plan.paths), default=0)
            given.MergeFrom(p.DataFile(file_group=plan.group, kind=p.DELTA, base_instant=base))
            found = [given]
        else:
            found = [file(instant, plan.group or f"{name}-{n}", month) for n, month in enumerate(plan.months)]
        for one in found:
            path = self._roots[plan.place[0]] / one.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return found

    def write(self, plan: Plan, instant: int, read_version: int, given: Sequence[p.DataFile]) -> Write:
        return Write(
            frozenset(one.path for one in given),
            frozenset(() if plan.delta else plan.paths),
            frozenset(_clears(plan)),
            read_version,
            frozenset(self._saw(plan)),
            service=plan.operation in SERVICES,
            instant=instant,
        )

    def _saw(self, plan: Plan) -> Iterable[str]:
        """What the operation must have seen under the table's policy (docs/conflicts.md)."""
        policy, operation = self._policies[plan.place[0]], plan.operation
        if operation in SERVICES:  # services name what they rewrite
            return []
        if policy == "table":
            return [""]
        if operation in (t.APPEND, t.OVERWRITE_TABLE, t.OVERWRITE_PARTITIONS):
            return _clears(plan)
        if policy == "partition":
            return [_partition(plan.months[0])]
        by_row = policy == "row" and operation != t.OVERWRITE_PREDICATE
        return [] if by_row else [f"{_partition(plan.months[0])}{plan.group}/"]


def request_of(plan: Plan, instant: int, given: Sequence[p.DataFile]) -> t.CommitRequest:
    removed = None if plan.delta or not plan.paths else t.RemovedFiles(paths=plan.paths)
    return t.CommitRequest(table=table_of(plan.place), instant=instant, added=files(*given), removed=removed)


def slice_of(path: str) -> Slice:
    _, month, group, _ = path.split("/")
    return int(month.removeprefix("m=")), group


def table_of(place: Place) -> p.TableName:
    return p.TableName(database="default", table=place[0])


def _clears(plan: Plan) -> list[str]:
    if plan.operation == t.OVERWRITE_TABLE:
        return [""]
    return [_partition(month) for month in plan.months] if plan.operation == t.OVERWRITE_PARTITIONS else []


def _partition(month: int) -> str:
    return f"m={month}/"
