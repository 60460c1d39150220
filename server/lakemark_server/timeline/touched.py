"""Which file groups and files an instant touches: gathered from what is declared and staged, bounded for its record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from lakemark.errors import InvalidArgument
from lakemark_proto.store.v1.store_pb2 import InstantRecord, Touched
from lakemark_proto.v1 import timeline_pb2, types_pb2
from lakemark_server.snapshot.arrow import take, texts
from lakemark_server.timeline.changes import base_file, hash_of

# Together with partitions, metadata and an inline block they must fit into one value of the store.
LISTED_MAX: Final = 400
GROUP_NAME_BYTES_MAX: Final = 10_000
COLUMNS_MAX: Final = 1_000


class TouchedSet:
    """Grows; what becomes too much to list becomes "all", which is safe for conflicts: it only collides more."""

    def __init__(self, touched: Touched | None = None, names: Iterable[str] = ()) -> None:
        touched = touched or Touched()
        self._groups, self._files = set(touched.file_groups), set(touched.files)
        self._removed, self._columns = set(touched.removed), set(touched.columns)
        self._all_groups, self._all_files = touched.all_file_groups, touched.all_files
        self._all_removed = touched.all_removed
        self._names = set(names)

    @classmethod
    def of(cls, record: InstantRecord) -> TouchedSet:
        return cls(record.touched, record.group_names)

    def __bool__(self) -> bool:
        return bool(self._groups or self._columns or self._all_groups or self._removed or self._all_removed)

    def add_profile(self, profile: timeline_pb2.WorkProfile) -> None:
        """Raises InvalidArgument for too many columns."""
        if len(profile.columns) > COLUMNS_MAX:
            raise InvalidArgument(f"a work profile names at most {COLUMNS_MAX} columns")
        self._add_groups(profile.file_groups)
        self._all_groups |= profile.all_file_groups
        self._add_removed(profile.replaced_files)
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
        """Files that are taken out, with the columns ``FIXED``."""
        if not entries.num_rows:
            return
        paths, groups = texts(entries.column("path")), texts(entries.column("file_group"))
        self._add_groups(groups)
        self._add_removed(paths)
        kinds = entries.column("kind").to_pylist()
        rows = zip(kinds, texts(entries.column("partition")), groups, paths, strict=True)
        bases = [(where, group, int(path.split("/")[0])) for kind, where, group, path in rows if kind == types_pb2.BASE]
        self._add_files(bases)

    def add(self, other: TouchedSet) -> None:
        """Everything that the other one touches."""
        self._groups |= other._groups
        self._all_groups |= other._all_groups
        self._names |= other._names
        self._files |= other._files
        self._all_files |= other._all_files
        self._removed |= other._removed
        self._all_removed |= other._all_removed
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
            )
        )
        record.group_names[:] = sorted(self._names)

    def _add_groups(self, names: Iterable[str]) -> None:
        distinct = set(names)
        if len(distinct) > LISTED_MAX:
            self._all_groups = True
        else:
            self._groups.update(map(hash_of, distinct))
            self._names |= distinct
        self._bound()

    def _add_files(self, slices: Iterable[tuple[str, str, int]]) -> None:
        distinct = set(slices)
        if len(distinct) > LISTED_MAX:
            self._all_files = True
        else:
            self._files.update(hash_of(base_file(*one)) for one in distinct)
        self._bound()

    def _add_removed(self, paths: Iterable[str]) -> None:
        distinct = set(paths)
        if len(distinct) > LISTED_MAX:
            self._all_removed = True
        else:
            self._removed.update(map(hash_of, distinct))
        self._bound()

    def _bound(self) -> None:
        self._all_groups |= len(self._groups) > LISTED_MAX
        self._all_files |= len(self._files) > LISTED_MAX
        self._all_removed |= len(self._removed) > LISTED_MAX
        if self._all_groups:
            self._groups.clear()
        if self._all_files:
            self._files.clear()
        if self._all_removed:
            self._removed.clear()
        if self._all_groups or sum(len(name.encode()) for name in self._names) > GROUP_NAME_BYTES_MAX:
            self._names.clear()
