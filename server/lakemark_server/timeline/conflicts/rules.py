"""When two commits of one table exclude each other: one rule table, policy x operation x operation (docs/conflicts.md).

The question is always the same: *mine* has read version V and wants to be published after *theirs*, which was published
(or is being written) since V. A verdict says how far the two must stay apart.

One rule stands above the table: a file can be taken out once, and a file group begun once. Whatever a cell says, two
commits that remove the same file by name, or add the first base file of the same group, exclude each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, TypeAlias

from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.timeline.conflicts.changes import WHOLE_TABLE, Change, Operation, common, common_keys

NAMES_IN_MESSAGE_MAX: Final = 5
NAMES_IN_DETAILS_MAX: Final = 100
REMOVED: Final = "removed file"
BEGUN: Final = "begun file group"


class Verdict(Enum):
    """What makes two changes collide."""

    NEVER = "never"
    SAME_FILE = "same file"
    SAME_COLUMN = "same columns of a file group"
    SAME_GROUP = "same file group"
    SAME_PARTITION = "same partition"
    ALWAYS = "always"


Rules: TypeAlias = Mapping[tuple[Operation, Operation], Verdict]

APPEND: Final = pb.APPEND
OVERWRITE_PARTITIONS: Final = pb.OVERWRITE_PARTITIONS
OVERWRITE_TABLE: Final = pb.OVERWRITE_TABLE

_CODES: Final = {
    ".": Verdict.NEVER,
    "f": Verdict.SAME_FILE,
    "c": Verdict.SAME_COLUMN,
    "g": Verdict.SAME_GROUP,
    "p": Verdict.SAME_PARTITION,
    "!": Verdict.ALWAYS,
}
# In the order of the grids below.
_ORDER: Final = (
    pb.APPEND, pb.UPSERT, pb.DELETE, pb.OVERWRITE_PARTITIONS, pb.OVERWRITE_PREDICATE, pb.OVERWRITE_TABLE,
    pb.COMPACT, pb.CLUSTER, pb.RESTORE_VERSION,
)  # fmt: skip
WRITES: Final = frozenset(_ORDER[:6])
"""Operations that change the rows of a table."""
SERVICES: Final = frozenset({pb.COMPACT, pb.CLUSTER})
"""Operations that change where rows lie, and none of them."""
QUIET: Final = (pb.CLEAN_FILES, pb.ALTER_SCHEMA, pb.ALTER_BUCKETS)
"""A clean takes only what no retained version has; that files fit a changed schema is checked where it is published;
files say themselves which bucket they are of."""
OPERATIONS: Final = (*_ORDER, *QUIET)


def _grid(text: str, **finer: Verdict) -> Rules:
    """Rows: mine; columns: theirs; both in ``_ORDER``. ``finer``: more codes. What is quiet never collides."""
    codes = _CODES | finer
    rules = {(mine, theirs): Verdict.NEVER for mine in OPERATIONS for theirs in OPERATIONS}
    for mine, row in zip(_ORDER, text.split("\n"), strict=True):
        rules |= {(mine, theirs): codes[code] for theirs, code in zip(_ORDER, row.split()[1:], strict=True)}
    return MappingProxyType(rules)


# docs/conflicts.md gives the reason of every cell. Columns in the order of the rows.
_ONE_WRITER: Final = """\
append               ! ! ! ! ! ! . . !
upsert               ! ! ! ! ! ! . g !
delete               ! ! ! ! ! ! . g !
overwrite_partitions ! ! ! ! ! ! . . !
overwrite_predicate  ! ! ! ! ! ! . g !
overwrite_table      ! ! ! ! ! ! . . !
compact              . . . p . ! g g !
cluster              . g g p g ! g g !
restore              ! ! ! ! ! ! ! ! !"""

_BY_PARTITION: Final = """\
append               . . . p p ! . . !
upsert               p p p p p ! . g !
delete               p p p p p ! . g !
overwrite_partitions p p p p p ! . . !
overwrite_predicate  p p p p p ! . g !
overwrite_table      ! ! ! ! ! ! . . !
compact              . . . p . ! g g !
cluster              . g g p g ! g g !
restore              ! ! ! ! ! ! ! ! !"""

# Changes of rows are told apart more finely than by partition: "w" between two that change rows, "o" if one of them
# overwrites by predicate.
_FINER: Final = """\
append               . . . p . ! . . !
upsert               . w w p o ! . g !
delete               . w w p o ! . g !
overwrite_partitions p p p p p ! . . !
overwrite_predicate  . o o p p ! . g !
overwrite_table      ! ! ! ! ! ! . . !
compact              . . . p . ! g g !
cluster              . g g p g ! g g !
restore              ! ! ! ! ! ! ! ! !"""

RULES: Final[Mapping[str, Rules]] = MappingProxyType(
    {
        "table": _grid(_ONE_WRITER),
        "partition": _grid(_BY_PARTITION),
        "file_group": _grid(_FINER, w=Verdict.SAME_GROUP, o=Verdict.SAME_GROUP),
        "file": _grid(_FINER, w=Verdict.SAME_FILE, o=Verdict.SAME_FILE),
        "column": _grid(_FINER, w=Verdict.SAME_COLUMN, o=Verdict.SAME_GROUP),
        "row": _grid(_FINER, w=Verdict.NEVER, o=Verdict.SAME_GROUP),
    }
)


_WHOLESALE: Final = frozenset({OVERWRITE_PARTITIONS, *WHOLE_TABLE})
"""Operations that take out files which they do not name."""


@dataclass(frozen=True, slots=True)
class Collision:
    """Why a commit is refused. Of what both touch, None is more than is known by name."""

    mine: Change
    theirs: Change
    policy: str
    verdict: Verdict
    partitions: frozenset[str] | None
    groups: frozenset[int] | None = frozenset()
    columns: frozenset[int] | None = frozenset()
    twice: str = ""  # what both do that can be done once

    def describe(self, names: Mapping[int, str] | None = None) -> str:
        """``names``: of the table's columns by id; without them ids are told."""
        theirs = self.theirs
        who = f"instant {theirs.instant}" + (f" of {theirs.owner}" if theirs.owner else "")
        done = f"committed version {theirs.version}" if theirs.version else "is in flight"
        operation = pb.Operation.Name(theirs.operation)
        return f"{who} {done} ({operation}) {self._where(names)} (policy {self.policy!r})"

    def _where(self, names: Mapping[int, str] | None) -> str:
        if self.twice == REMOVED:
            return f"and replaced files of {self._groups()}, as this one does, {self._partitions()}"
        if self.twice == BEGUN:
            return f"and began {self._groups()}, as this one does, {self._partitions()}"
        match self.verdict:
            case Verdict.ALWAYS if self.theirs.operation in WHOLE_TABLE:
                return "and changes the whole table"
            case Verdict.ALWAYS if self.mine.operation in WHOLE_TABLE:
                return "while this one changes the whole table"
            case Verdict.ALWAYS:
                return "in the same table, which takes one writer at a time"
            case Verdict.SAME_GROUP:
                return f"in {self._groups()} {self._partitions()}"
            case Verdict.SAME_COLUMN:
                return f"in {self._columns(names)} of {self._groups()} {self._partitions()}"
            case Verdict.SAME_FILE:
                return f"in the same data files of {self._groups()} {self._partitions()}"
            case _:
                return self._partitions()

    def _columns(self, names: Mapping[int, str] | None) -> str:
        if self.columns is None:
            return "whole rows"
        ids = sorted(self.columns)
        if names is None:
            return f"column ids {ids}"
        known = [repr(names[one]) for one in ids if one in names]
        dropped = [f"a column that was dropped (id {one})" for one in ids if one not in names]
        return f"column{'s' if len(known) > 1 else ''} " * bool(known) + ", ".join(known + dropped)

    def _partitions(self) -> str:
        if self.partitions is None:
            return "in all partitions"
        return "in " + named_partitions(self.partitions) if self.partitions else "in partitions not told yet"

    def _groups(self) -> str:
        names = self._group_names()
        if not names:
            return "the same file groups"
        shown = ", ".join(names[:NAMES_IN_MESSAGE_MAX])
        more = len(names) - NAMES_IN_MESSAGE_MAX
        return f"file group{'s' if len(names) > 1 else ''} {shown}" + (f" and {more} more" if more > 0 else "")

    def _group_names(self) -> list[str]:
        known = {**self.theirs.group_names, **self.mine.group_names}
        return sorted(known[group] for group in self.groups or () if group in known)

    def details(self) -> dict[str, str]:
        """For machines; strings, as they travel in an error's details. "*": all, or more than are known by name."""
        return {
            "instant": str(self.theirs.instant),
            "version": str(self.theirs.version),
            "operation": pb.Operation.Name(self.theirs.operation),
            "policy": self.policy,
            "rule": f"same {self.twice}" if self.twice else self.verdict.value,
            "partitions": _listed(self.partitions),
            "file_groups": "*" if self.groups is None else ",".join(self._group_names()[:NAMES_IN_DETAILS_MAX]),
            "columns": _listed(self.columns),
        }


def _listed(values: frozenset[str] | frozenset[int] | None) -> str:
    return "*" if values is None else ",".join(map(str, sorted(values)[:NAMES_IN_DETAILS_MAX]))


def named_partitions(names: Iterable[str]) -> str:
    """A short list for messages."""
    ordered = sorted(names)
    if ordered == [""]:
        return "the table, which has no partitions"
    shown = ", ".join(ordered[:NAMES_IN_MESSAGE_MAX])
    more = len(ordered) - NAMES_IN_MESSAGE_MAX
    return f"partition{'s' if len(ordered) > 1 else ''} {shown}" + (f" and {more} more" if more > 0 else "")


def find_collision(policy: str, mine: Change, others: Iterable[Change]) -> Collision | None:
    """The first of ``others`` that excludes ``mine`` under the policy; None if ``mine`` may be published after all."""
    rules, once = RULES[policy], mine.once
    for theirs in others:
        verdict = rules[mine.operation, theirs.operation]
        if verdict is Verdict.NEVER and not once:
            continue  # the way of nearly every commit
        collision = _collision(policy, verdict, mine, theirs)
        if collision is not None:
            return collision
    return None


def commute(one: Change, other: Change) -> bool:
    """Whether it is the same for the files which of two changes comes first that have not seen each other."""
    if one.operation not in _WHOLESALE and other.operation not in _WHOLESALE:
        return True
    shared = common(one.partitions, one.all_partitions, other.partitions, other.all_partitions)
    return shared is not None and not shared


def _collision(policy: str, verdict: Verdict, mine: Change, theirs: Change) -> Collision | None:
    partitions = common(mine.partitions, mine.all_partitions, theirs.partitions, theirs.all_partitions)
    if verdict is Verdict.ALWAYS:
        return Collision(mine, theirs, policy, verdict, partitions)
    apart = partitions is not None and not partitions
    if apart and (verdict is Verdict.SAME_PARTITION or (mine.partitions and theirs.partitions)):
        return None  # else one of the two has told its groups or files, and not yet where they lie
    groups = common_keys(mine.groups, mine.all_groups, theirs.groups, theirs.all_groups)
    twice = _twice(mine, theirs)
    if twice:
        return Collision(mine, theirs, policy, verdict, partitions, groups, twice=twice)
    if verdict is Verdict.SAME_PARTITION:
        return Collision(mine, theirs, policy, verdict, partitions)
    if verdict is Verdict.NEVER or (groups is not None and not groups):
        return None
    match verdict:
        case Verdict.SAME_COLUMN:
            columns = common(mine.columns, not mine.columns, theirs.columns, not theirs.columns)
            if columns is None or columns:
                return Collision(mine, theirs, policy, verdict, partitions, groups, columns)
            return None
        case Verdict.SAME_FILE:
            files = common_keys(mine.files, mine.all_files, theirs.files, theirs.all_files)
            return Collision(mine, theirs, policy, verdict, partitions, groups) if files is None or files else None
    return Collision(mine, theirs, policy, verdict, partitions, groups)


def _twice(mine: Change, theirs: Change) -> str:
    removed = common(mine.removed, mine.all_removed, theirs.removed, theirs.all_removed)
    if removed is None or removed:
        return REMOVED
    begun = common_keys(mine.begun, mine.all_begun, theirs.begun, theirs.all_begun)
    return BEGUN if begun is None or begun else ""
