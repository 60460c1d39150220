"""When two commits of one table exclude each other: one rule table, policy x operation x operation (docs/conflicts.md).

The question is always the same: *mine* has read version V and wants to be published after *theirs*, which was published
(or is being written) since V. A verdict says how far the two must stay apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, TypeAlias

from lakemark_proto.v1 import timeline_pb2

Operation: TypeAlias = timeline_pb2.Operation.ValueType

APPEND: Final = timeline_pb2.APPEND
OVERWRITE_PARTITIONS: Final = timeline_pb2.OVERWRITE_PARTITIONS
OVERWRITE_TABLE: Final = timeline_pb2.OVERWRITE_TABLE

NAMES_IN_MESSAGE_MAX: Final = 5


class Verdict(Enum):
    """What makes two changes collide."""

    NEVER = "never"
    SAME_PARTITION = "same partition"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Change:
    """What one instant does. ``partitions`` are names ("month=1/origin=JFK"; "" in a table without partitions)."""

    instant: int
    operation: Operation
    partitions: frozenset[str] = frozenset()
    all_partitions: bool = False
    version: int = 0
    owner: str = ""

    def shared(self, other: Change) -> frozenset[str] | None:
        """The partitions that both touch; None: all of them, or more than are known by name."""
        if self.all_partitions and other.all_partitions:
            return None
        if self.all_partitions:
            return other.partitions
        if other.all_partitions:
            return self.partitions
        return self.partitions & other.partitions


@dataclass(frozen=True, slots=True)
class Collision:
    """Why a commit is refused."""

    theirs: Change
    policy: str
    partitions: frozenset[str] | None

    def describe(self) -> str:
        theirs = self.theirs
        who = f"instant {theirs.instant}" + (f" of {theirs.owner}" if theirs.owner else "")
        done = f"committed version {theirs.version}" if theirs.version else "is in flight"
        operation = timeline_pb2.Operation.Name(theirs.operation)
        return f"{who} {done} ({operation}) {self._where()} (policy {self.policy!r})"

    def _where(self) -> str:
        if self.policy == "table":
            return "in the same table, which takes one writer at a time"
        if self.partitions is None:
            return "in all partitions"
        return "in " + named_partitions(self.partitions)

    def details(self) -> dict[str, str]:
        """For machines; strings, as they travel in an error's details."""
        return {
            "instant": str(self.theirs.instant),
            "version": str(self.theirs.version),
            "operation": timeline_pb2.Operation.Name(self.theirs.operation),
            "policy": self.policy,
            "partitions": "*" if self.partitions is None else ",".join(sorted(self.partitions)[:100]),
        }


def named_partitions(names: Iterable[str]) -> str:
    """A short list for messages."""
    ordered = sorted(names)
    if ordered == [""]:
        return "the table, which has no partitions"
    shown = ", ".join(ordered[:NAMES_IN_MESSAGE_MAX])
    more = len(ordered) - NAMES_IN_MESSAGE_MAX
    return f"partition{'s' if len(ordered) > 1 else ''} {shown}" + (f" and {more} more" if more > 0 else "")


_Rules: TypeAlias = dict[tuple[Operation, Operation], Verdict]

# Rows: mine; columns: theirs.
_PARTITION_RULES: Final[_Rules] = {
    # Rows that are only added take nothing from each other.
    (APPEND, APPEND): Verdict.NEVER,
    # The overwrite replaced a partition that I was adding to: whether my rows belong to the new content is not known.
    (APPEND, OVERWRITE_PARTITIONS): Verdict.SAME_PARTITION,
    (APPEND, OVERWRITE_TABLE): Verdict.ALWAYS,
    # I would throw away rows that I have not read.
    (OVERWRITE_PARTITIONS, APPEND): Verdict.SAME_PARTITION,
    (OVERWRITE_PARTITIONS, OVERWRITE_PARTITIONS): Verdict.SAME_PARTITION,
    (OVERWRITE_PARTITIONS, OVERWRITE_TABLE): Verdict.ALWAYS,
    (OVERWRITE_TABLE, APPEND): Verdict.ALWAYS,
    (OVERWRITE_TABLE, OVERWRITE_PARTITIONS): Verdict.ALWAYS,
    (OVERWRITE_TABLE, OVERWRITE_TABLE): Verdict.ALWAYS,
}
OPERATIONS: Final = (APPEND, OVERWRITE_PARTITIONS, OVERWRITE_TABLE)
RULES: Final = MappingProxyType(
    {
        "partition": _PARTITION_RULES,
        # One writer at a time, whatever the two do.
        "table": {(mine, theirs): Verdict.ALWAYS for mine in OPERATIONS for theirs in OPERATIONS},
    }
)


def find_collision(policy: str, mine: Change, others: Iterable[Change]) -> Collision | None:
    """The first of ``others`` that excludes ``mine`` under the policy; None if ``mine`` may be published after all."""
    rules = RULES[policy]
    for theirs in others:
        verdict = rules[mine.operation, theirs.operation]
        if verdict is Verdict.NEVER:
            continue
        shared = mine.shared(theirs)
        if verdict is Verdict.ALWAYS or shared is None or shared:
            return Collision(theirs, policy, shared)
    return None
