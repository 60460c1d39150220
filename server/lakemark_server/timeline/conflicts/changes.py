"""What one instant changes: what conflict rules compare.

File groups, files and paths are compared by 64-bit numbers (``group_ids``), so that a version's record stays small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import add, and_
from typing import Final, NamedTuple, TypeAlias, TypeVar

from lakemark_proto.store.v1.store_pb2 import InstantRecord, VersionRecord
from lakemark_proto.v1 import timeline_pb2
from lakemark_server.timeline.conflicts.group_ids import group_id, sharing

Operation: TypeAlias = timeline_pb2.Operation.ValueType

T = TypeVar("T", str, int)


class Run(NamedTuple):
    """What a branch, by key, itself got: ``after < version <= upto``. Merges among these versions count for nothing."""

    branch: str
    after: int
    upto: int


class Totals(NamedTuple):
    """Of files that are added, and of those that are removed by name."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    removed_files: int = 0
    removed_rows: int = 0
    removed_bytes: int = 0

    def plus(self, other: Totals) -> Totals:
        return Totals(*map(add, self, other))


NO_TOTALS: Final = Totals()


@dataclass(frozen=True, slots=True)
class Change:
    """What an instant does to its table, as far as it is known.

    ``partitions`` are names ("month=1/origin=JFK"; "" in a table without partitions). ``groups`` are the file groups
    that deltas are laid on, whose files are replaced, or that a writer of rows begins; ``files`` the base files among
    them; ``removed`` the files that are taken out by name; ``begun`` the groups (with their partition) that get their
    first base file. A flag ``all_…`` says that there are more than are listed. No ``columns``: whole rows.
    A merge itself changes nothing; ``replays`` are the changes that it brought.
    """

    instant: int
    operation: Operation
    partitions: frozenset[str] = frozenset()
    all_partitions: bool = False
    groups: frozenset[int] = frozenset()
    all_groups: bool = False
    files: frozenset[int] = frozenset()
    all_files: bool = False
    removed: frozenset[int] = frozenset()
    all_removed: bool = False
    begun: frozenset[int] = frozenset()
    all_begun: bool = False
    columns: frozenset[int] = frozenset()
    version: int = 0
    owner: str = ""
    replays: tuple[Run, ...] = ()
    group_names: Mapping[int, str] = field(default_factory=dict, compare=False)
    totals: Totals = field(default=NO_TOTALS, compare=False)

    @property
    def once(self) -> bool:
        """Whether it does something that can only be done once, whatever the policy."""
        return bool(self.removed or self.begun) or self.all_removed or self.all_begun


def common(mine: frozenset[T], all_mine: bool, theirs: frozenset[T], all_theirs: bool) -> frozenset[T] | None:
    """What two lists share; None: something, but more than is known by name."""
    return _common(mine, all_mine, theirs, all_theirs, and_)


def common_keys(
    mine: frozenset[int], all_mine: bool, theirs: frozenset[int], all_theirs: bool
) -> frozenset[int] | None:
    """Likewise the file groups, or base files, of both that may have common keys."""
    return _common(mine, all_mine, theirs, all_theirs, sharing)


def _common(
    mine: frozenset[T],
    all_mine: bool,
    theirs: frozenset[T],
    all_theirs: bool,
    shared: Callable[[frozenset[T], frozenset[T]], frozenset[T]],
) -> frozenset[T] | None:
    if all_mine and all_theirs:
        return None
    if all_mine:
        return theirs
    if all_theirs:
        return mine
    return shared(mine, theirs)


def of_record(record: InstantRecord | VersionRecord) -> Change:
    """What a stored instant or version changes."""
    change = Change(
        instant=record.instant,
        operation=record.operation,
        partitions=frozenset(record.partitions),
        all_partitions=record.all_partitions or record.operation in WHOLE_TABLE,
        version=record.version,
        owner=record.owner,
        replays=() if isinstance(record, InstantRecord) else replays_of(record),
        totals=_totals(record),
    )
    return _with_touched(change, record) if record.HasField("touched") else change


def _totals(record: InstantRecord | VersionRecord) -> Totals:
    added, removed = record.staged, record.removed
    return Totals(added.files, added.rows, added.bytes, removed.files, removed.rows, removed.bytes)


def _with_touched(change: Change, record: InstantRecord | VersionRecord) -> Change:
    touched = record.touched
    names = record.group_names if isinstance(record, InstantRecord) else ()
    return replace(
        change,
        groups=frozenset(touched.file_groups),
        all_groups=touched.all_file_groups,
        files=frozenset(touched.files),
        all_files=touched.all_files,
        removed=frozenset(touched.removed),
        all_removed=touched.all_removed,
        begun=frozenset(touched.begun),
        all_begun=touched.all_begun,
        columns=frozenset(touched.columns),
        group_names={group_id(name): name for name in names},
    )


def replays_of(record: VersionRecord) -> tuple[Run, ...]:
    """What a merge brought, in this order; nothing for another version."""
    return tuple(Run(one.branch, one.after_version, one.upto_version) for one in record.merged.replayed)


def by_group(change: Change) -> Change:
    """For comparing what two branches did: each may have compacted a file, which has two names then."""
    return replace(change, files=frozenset(), all_files=change.all_files or bool(change.files))


WHOLE_TABLE: Final = frozenset({timeline_pb2.OVERWRITE_TABLE, timeline_pb2.RESTORE_VERSION})
"""Operations that change all there is, whatever it is when they are published."""
