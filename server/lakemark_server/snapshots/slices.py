"""File groups and their slices: what a merge-on-read engine asks a table format for (Hudi's FileSystemView).

A slice is the base file of a file group with the deltas on top of it. Its files are listed together: the base, then the
deltas in the order of their instants. Slices are in order of partition and file group.

Why instants give the order: a writer whose delta changes rows of another delta had read that one, so its instant began
after the other was committed. Deltas that did not read each other concern different rows or columns, or are merged by
their ordering column. The order of versions would be wrong, because a restore brings old files back in a new version.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark_core.errors import InvalidArgument, LimitExceeded
from lakemark_core.expressions import Expr
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.arrow import take_rows, texts
from lakemark_server.file_index.entries.columns import instants_of
from lakemark_server.file_index.pages.contents import REMOVED_VERSION
from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_server.file_index.parts.locate import difference
from lakemark_server.file_index.parts.part import Part
from lakemark_server.file_index.planning.planner import Plan, Planner
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.timeline.lineage import Lineage

VERSIONS_MAX: Final = 10_000


@dataclass(frozen=True, eq=False)
class FileSlices:
    """Files of a plan in the order of their slices. For replaced files also the version that removed each."""

    plan: Plan
    order: npt.NDArray[np.int64]
    removed_version: npt.NDArray[np.int64] | None = None

    @property
    def files(self) -> int:
        """How many files there are."""
        return len(self.order)

    @property
    def memory_bytes(self) -> int:
        """How much memory the slices take."""
        return 1_000 + self.order.nbytes + sum(selection.memory_bytes for selection in self.plan.selections)

    def page(self, offset: int, limit: int) -> pa.RecordBatch:
        """Files ``offset`` to ``offset + limit``, without statistics."""
        places = self.order[offset : offset + limit]
        ascending = np.argsort(places, kind="stable")
        batch = self.plan.chosen(places[ascending]).page(0, len(places), ())
        batch = take_rows(batch, np.argsort(ascending, kind="stable"))
        if self.removed_version is None:
            return batch
        return batch.append_column(REMOVED_VERSION, pa.array(self.removed_version[places]))


def latest_slices(
    planner: Planner, snapshot: Snapshot, predicate: Expr | None, file_groups: Collection[str] | None = None
) -> FileSlices:
    """The slices of a snapshot; ``file_groups`` limits them to these groups. Raises InvalidPredicate."""
    return _ordered(planner.plan(snapshot, predicate), file_groups)


def groups_of(snapshot: Snapshot) -> Iterator[str]:
    """The file group of each live file; names repeat."""
    for part in snapshot.parts:
        yield from texts(part.live_entries().column("file_group"))


def replaced_files(
    planner: Planner,
    snapshots: Snapshots,
    table: LakeTable,
    lineage: Lineage,
    after: int,
    upto: int,
    predicate: Expr | None,
    file_groups: Collection[str] | None = None,
) -> FileSlices:
    """Every file that a version ``after < v <= upto`` removed, including files that came after ``after``.

    Raises InvalidArgument, VersionNotFound (a version was cleaned), LimitExceeded (too many versions).
    """
    if not 0 <= after <= upto:
        raise InvalidArgument(
            f"no files were replaced from version {after} to version {upto}: from_version must lie between 0 and {upto}"
        )
    if upto - after > VERSIONS_MAX:
        raise LimitExceeded(f"replaced files of {upto - after} versions; at most {VERSIONS_MAX} are looked at at once")
    for version in (after, min(after + 1, upto)):
        snapshots.require_readable(table, lineage, version)
    parts: list[Part] = []
    versions: dict[int, int] = {}
    before: Snapshot | None = None
    for snapshot in snapshots.walk(table, lineage, after, upto):
        for gone in difference(before.parts, snapshot.parts) if before else ():
            part = Part(gone.entries, gone.live)  # a new object, because the same part may lose files more than once
            parts.append(part)
            versions[id(part)] = snapshot.version
        before = snapshot
    schema = snapshots.schema(table, lineage, upto)
    plan = planner.plan(Snapshot(upto, schema, tuple(parts)), predicate)
    removed = [np.full(selection.files, versions[id(selection.part)]) for selection in plan.selections]
    return _ordered(plan, file_groups, np.concatenate(removed) if removed else np.empty(0, np.int64))


def _ordered(
    plan: Plan, file_groups: Collection[str] | None, removed_version: npt.NDArray[np.int64] | None = None
) -> FileSlices:
    table = plan.columns(["partition", "file_group", "kind", "path"])
    instants = pa.array(instants_of(table.column("path").combine_chunks()))
    table = table.drop_columns(["path"]).append_column("instant", instants)
    table = table.append_column("place", pa.array(np.arange(table.num_rows)))
    if file_groups is not None:
        wanted = pa.array(sorted(file_groups), pa.string())
        among: Any = cast(Any, pc).is_in(table.column("file_group"), value_set=wanted)
        table = table.filter(among)
    table = table.sort_by([(name, "ascending") for name in table.column_names])
    return FileSlices(plan, np.asarray(table.column("place").to_numpy(), np.int64), removed_version)
