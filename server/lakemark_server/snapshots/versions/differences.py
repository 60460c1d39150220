"""What each of two versions of a table has that the other lacks: files, rows and bytes by partition, and file groups.

For each side this is the net change since the content that both sides share. That content is the last version of the
side that the other one contains as a whole, plus what a later merge brought from the other side. Folding begins at that
version, so the cost is that of the changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_server.file_index.arrow import take
from lakemark_server.file_index.parts.changes import added_between, removed_between
from lakemark_server.file_index.parts.fold import Snapshot, fold
from lakemark_server.snapshots.versions.loader import Loading
from lakemark_server.timeline.branches.divergence import Side

_compute: Any = pc
_GROUP: Final = ("partition", "file_group")
_NOTHING: Final = pa.table(
    [pa.array([], kind) for kind in (pa.string(), pa.string(), pa.int64(), pa.int64())],
    names=[*_GROUP, "rows", "bytes"],
)
_WAYS: Final = ("added", "removed")
_COUNTS: Final = ("files", "rows", "bytes")
SIDES: Final = ("left", "right")
COUNTS: Final = tuple(f"{way}_{count}" for way in _WAYS for count in _COUNTS)
"""The fields of ``FileChanges``. Columns have these names after "left." and "right."."""
_NUMBERS: Final = tuple(f"{side}.{count}" for side in SIDES for count in COUNTS)
_DIFFERENCES_BYTES: Final = 20_000  # of the object itself, without the values in its columns
_FILES: Final = tuple(f"{side}.{way}_files" for side in SIDES for way in _WAYS)


@dataclass(frozen=True, slots=True)
class FileDifferences:
    """Counts by partition, and file groups that both sides changed.

    ``partitions`` has "partition", then ``COUNTS`` for each side, then "both": how many file groups both sides changed.
    Partitions with the most changed files come first. ``groups`` has "partition" and "file_group" of the groups that
    both changed. ``sums`` are totals over all partitions.
    """

    partitions: pa.Table
    groups: pa.Table
    sums: Mapping[str, int]

    def totals(self, side: str) -> dict[str, int]:
        """The totals of "left" or "right", by ``COUNTS``."""
        return {count: self.sums[f"{side}.{count}"] for count in COUNTS}

    @property
    def memory_bytes(self) -> int:
        """How much memory the differences take."""
        return _DIFFERENCES_BYTES + self.partitions.nbytes + self.groups.nbytes


def file_differences(loading: Loading, left: Side, right: Side) -> FileDifferences:
    """Compares the files of two sides. Raises SnapshotGone."""
    counted = [
        _counted(snapshot, f"{name}.{way}")
        for name, side in zip(SIDES, (left, right), strict=True)
        for way, snapshot in zip(_WAYS, _net(loading, side), strict=True)
    ]
    groups = _summed(pa.concat_tables(counted), _GROUP, _NUMBERS)
    of_left, of_right = (_sum(groups, _FILES[at : at + 2]) for at in (0, 2))
    both = _compute.and_(_compute.greater(of_left, 0), _compute.greater(of_right, 0))
    partitions = _summed(groups.append_column("both", both.cast(pa.int64())), _GROUP[:1], (*_NUMBERS, "both"))
    partitions = partitions.append_column("files", _sum(partitions, _FILES))
    return FileDifferences(
        partitions.sort_by([("files", "descending"), ("partition", "ascending")]),
        groups.filter(both).select(_GROUP).sort_by([(name, "ascending") for name in _GROUP]),
        {name: _compute.sum(partitions.column(name)).as_py() or 0 for name in _NUMBERS},
    )


def _net(loading: Loading, side: Side) -> tuple[Snapshot, Snapshot]:
    """The files that a side has beyond the shared content, and those that it removed from it."""
    lineage = side.head.lineage
    older = loading.load(lineage, side.after)
    newer = loading.forward(lineage, older, side.head.version)
    if side.shared:
        changes = list(loading.history(older.origin, lineage).replayed(side.shared, older.version))
        older = fold(older, changes, older.record or VersionRecord(), older.schema)
    return added_between(older, newer), removed_between(older, newer)


def _counted(snapshot: Snapshot, what: str) -> pa.Table:
    """The file groups of a snapshot with all of ``_NUMBERS``: counts for the columns of ``what``, else zeros."""
    pieces = [
        pa.table(
            {
                name: part.column(of) if part.live_places is None else take(part.column(of), part.live_places)
                for name, of in zip((*_GROUP, "rows", "bytes"), (*_GROUP, "row_count", "size_bytes"), strict=True)
            }
        )
        for part in snapshot.parts
    ]
    files = pa.concat_tables([_NOTHING, *pieces])
    files = files.append_column("files", pa.array(np.ones(files.num_rows, np.int64)))
    counted = _summed(files, _GROUP, _COUNTS)
    none = pa.array(np.zeros(counted.num_rows, np.int64))
    mine = {f"{what}_{count}": counted.column(count) for count in _COUNTS}
    return pa.table({name: counted.column(name) for name in _GROUP} | {name: mine.get(name, none) for name in _NUMBERS})


def _summed(table: pa.Table, by: Sequence[str], columns: Sequence[str]) -> pa.Table:
    grouped: Any = table.group_by(list(by))
    sums: pa.Table = grouped.aggregate([(name, "sum") for name in columns])
    return pa.table({name: sums.column(name if name in by else f"{name}_sum") for name in (*by, *columns)})


def _sum(table: pa.Table, columns: Sequence[str]) -> Any:
    return reduce(_compute.add, [table.column(name) for name in columns])
