"""Which file groups and files an instant touches: gathered from what is declared and staged, bounded for its record."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from lakemark_core.bucket_tree import FileGroups
from lakemark_core.errors import InvalidArgument
from lakemark_proto.store.v1.store_pb2 import InstantRecord, Touched
from lakemark_proto.v1 import timeline_pb2, types_pb2
from lakemark_server.file_index.arrow import take, texts
from lakemark_server.timeline.conflicts.changes import Change, Operation, common_keys
from lakemark_server.timeline.conflicts.group_ids import base_file, group_id, hash_of, same_group

# Together with partitions, metadata and an inline block they must fit into one value of the store.
LISTED_MAX: Final = 400
GROUP_NAME_BYTES_MAX: Final = 10_000
COLUMNS_MAX: Final = 1_000
_MAKES_GROUPS: Final = frozenset({timeline_pb2.UPSERT, timeline_pb2.DELETE, timeline_pb2.OVERWRITE_PREDICATE})
COUNTS_MADE: Final = _MAKES_GROUPS | {timeline_pb2.COMPACT}
"""Operations of which base files that they add matter to others."""


class TouchedSet:
    """Grows; what becomes too much to list becomes "all", which is safe for conflicts: it only collides more."""

    def __init__(self, touched: Touched | None = None, names: Iterable[str] = ()) -> None:
        touched = touched or Touched()
        self._groups, self._files = set(touched.file_groups), set(touched.files)
        self._removed, self._columns = set(touched.removed), set(touched.columns)
        self._begun, self._all_begun = set(touched.begun), touched.all_begun
        self._all_groups, self._all_files = touched.all_file_groups, touched.all_files
        self._all_removed = touched.all_removed
        self._names = set(names)

    @classmethod
    def of(cls, record: InstantRecord) -> TouchedSet:
        return cls(record.touched, record.group_names)

    def __bool__(self) -> bool:
        return bool(self._groups or self._columns or self._all_groups or self._removed or self._all_removed)

    def add_profile(self, profile: timeline_pb2.WorkProfile, location: str = "") -> None:
        """``location`` is the table's, below which files may be named in full. Raises InvalidArgument: many columns."""
        if len(profile.columns) > COLUMNS_MAX:
            raise InvalidArgument(f"a work profile names at most {COLUMNS_MAX} columns")
        self._add_groups(profile.file_groups)
        self._all_groups |= profile.all_file_groups
        below = location.rstrip("/") + "/"
        self._add_removed(path.removeprefix(below) for path in profile.replaced_files)
        self._columns.update(profile.columns)

    def add_added(self, entries: pa.RecordBatch) -> None:
        """The deltas among files that are added lie on file groups."""
        deltas = np.flatnonzero(entries.column("kind").to_numpy() == types_pb2.DELTA)
        if not len(deltas):
            return
        groups = texts(take(entries.column("file_group"), deltas))
        partitions = texts(take(entries.column("partition"), deltas))
        instants = entries.column("base_instant").to_numpy()[deltas].tolist()
        self._add_groups(groups)
        self._add_files(zip(partitions, groups, instants, strict=True))

    def add_removed(self, entries: pa.RecordBatch) -> None:
        """Files that are taken out, with the columns ``FIXED``. Of a delta the base file under it counts."""
        if not entries.num_rows:
            return
        paths, groups = texts(entries.column("path")), texts(entries.column("file_group"))
        self._add_groups(groups)
        self._add_removed(paths)
        kinds, under = entries.column("kind").to_pylist(), entries.column("base_instant").to_pylist()
        rows = zip(kinds, under, texts(entries.column("partition")), groups, paths, strict=True)
        self._add_files(
            (where, group, base or 0 if kind == types_pb2.DELTA else int(path.split("/")[0]))
            for kind, base, where, group, path in rows
        )

    def add_made(
        self, entries: pa.RecordBatch, instant: int, operation: Operation, replaced: Collection[tuple[str, str]]
    ) -> None:
        """The base files among files that ``instant`` adds with an operation of ``COUNTS_MADE``.

        Who changes rows by key may make a file group that another one is about to make, too (the first of a bucket).
        A compaction makes a base file that those who have not seen it look for under another name, and of deltas alone
        the first one of their group. ``replaced``: (partition, file group) where base files are removed.
        """
        bases = np.flatnonzero(entries.column("kind").to_numpy() != types_pb2.DELTA)
        groups = texts(take(entries.column("file_group"), bases))
        self._add_groups(groups)
        partitions = texts(take(entries.column("partition"), bases))
        every = set(zip(partitions, groups, strict=True))
        covering = FileGroups(replaced)
        begun = {one for one in every if not covering.cover(*one)}
        self._add_begun(begun)
        if operation == timeline_pb2.COMPACT:
            self._add_files((where, group, instant) for where, group in every)
        else:
            self._add_files((where, group, 0) for where, group in begun)

    def add(self, other: TouchedSet) -> None:
        """Everything that the other one touches."""
        self._groups |= other._groups
        self._all_groups |= other._all_groups
        self._names |= other._names
        self._files |= other._files
        self._all_files |= other._all_files
        self._removed |= other._removed
        self._all_removed |= other._all_removed
        self._begun |= other._begun
        self._all_begun |= other._all_begun
        self._columns |= other._columns
        self._bound()

    def write_to(self, record: InstantRecord) -> None:
        if not self:
            return
        record.touched.CopyFrom(
            Touched(
                file_groups=sorted(self._groups),
                all_file_groups=self._all_groups,
                files=sorted(self._files),
                all_files=self._all_files,
                columns=sorted(self._columns),
                removed=sorted(self._removed),
                all_removed=self._all_removed,
                begun=sorted(self._begun),
                all_begun=self._all_begun,
            )
        )
        record.group_names[:] = sorted(self._names)

    def _add_groups(self, names: Iterable[str]) -> None:
        distinct = set(names)
        if len(distinct) > LISTED_MAX:
            self._all_groups = True
        else:
            self._groups.update(map(group_id, distinct))
            self._names |= distinct
        self._bound()

    def _add_files(self, slices: Iterable[tuple[str, str, int]]) -> None:
        distinct = set(slices)
        if len(distinct) > LISTED_MAX:
            self._all_files = True
        else:
            self._files.update(base_file(*one) for one in distinct)
        self._bound()

    def _add_removed(self, paths: Iterable[str]) -> None:
        distinct = set(paths)
        if len(distinct) > LISTED_MAX:
            self._all_removed = True
        else:
            self._removed.update(map(hash_of, distinct))
        self._bound()

    def _add_begun(self, groups: Collection[tuple[str, str]]) -> None:
        if len(groups) > LISTED_MAX:
            self._all_begun = True
        else:
            self._begun.update(base_file(*one, 0) for one in groups)
        self._bound()

    def _bound(self) -> None:
        self._all_begun |= len(self._begun) > LISTED_MAX
        self._all_groups |= len(self._groups) > LISTED_MAX
        self._all_files |= len(self._files) > LISTED_MAX
        self._all_removed |= len(self._removed) > LISTED_MAX
        if self._all_groups:
            self._groups.clear()
        if self._all_files:
            self._files.clear()
        if self._all_removed:
            self._removed.clear()
        if self._all_begun:
            self._begun.clear()
        if self._all_groups or sum(len(name.encode()) for name in self._names) > GROUP_NAME_BYTES_MAX:
            self._names.clear()


def follow_compactions(record: InstantRecord, mine: Change, others: Iterable[Change]) -> Change:
    """``mine`` with the base files that compactions among ``others`` have made of its own since it has read them.

    A delta stays on top of what a compaction made of the file under it. Two writers of the same rows then name two
    files: one the old, the other the new. So whoever commits across a compaction counts for both, also in its record.
    """
    if not mine.files:
        return mine
    compactions = [one for one in others if one.operation == timeline_pb2.COMPACT and _shares_group(one, mine)]
    files, everything = mine.files, mine.all_files
    while True:
        crossed = [one for one in compactions if one.all_files or one.files & files]
        more = files.union(*(same_group(files, one.files) for one in crossed))
        everything |= any(one.all_files for one in crossed) or len(more) > LISTED_MAX
        if everything or more == files:
            break
        files = more
    if everything == mine.all_files and files == mine.files:
        return mine
    files = frozenset() if everything else files
    record.touched.files[:], record.touched.all_files = sorted(files), everything
    return replace(mine, files=files, all_files=everything)


def _shares_group(one: Change, other: Change) -> bool:
    shared = common_keys(one.groups, one.all_groups, other.groups, other.all_groups)
    return shared is None or bool(shared)
