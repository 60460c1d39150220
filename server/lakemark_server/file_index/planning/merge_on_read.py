"""Files whose rows are merged when they are read: those of file groups with live deltas.

A row of such a group comes from a base row and from what deltas say of it, perhaps of single columns only. So no file
of the group may be skipped because of its own statistics: a delta may turn a base row that does not match into one that
does, and the other way round. Only the partition decides, which all files of the group share.

In a table with an extendible bucket index the groups above and below that of a delta may have its keys, too: the base
file of a bucket that was split since lies in another group than the deltas on top of it.

A compaction may keep deletes in deltas of its own (``keep_deletes``). They change no row until another delta comes to
lie beside them; until then the group is one without deltas.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark_core.bucket_tree import above, bucket_named, depth_of
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.file_index.arrow import AnyArray, take
from lakemark_server.file_index.entries.bounds import filled
from lakemark_server.file_index.entries.columns import keep_deletes
from lakemark_server.file_index.pages.contents import Mask
from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_server.file_index.parts.part import Part

Numbers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BucketSet:
    """Buckets of an extendible index: by depth, and with all that are above them."""

    by_depth: Mapping[int, Numbers]
    with_above: Numbers

    @classmethod
    def of(cls, buckets: Collection[int]) -> BucketSet:
        """By their numbers."""
        by_depth: dict[int, list[int]] = {}
        for bucket in sorted(buckets):
            by_depth.setdefault(depth_of(bucket), []).append(bucket)
        over = sorted({one for bucket in buckets for one in above(bucket)})
        return cls({depth: np.array(those) for depth, those in by_depth.items()}, np.array(over))

    def sharing(self, numbers: Numbers) -> Mask:
        """Which of ``numbers`` are above or below one of these, or one of them; 0 is no bucket."""
        depths = np.frexp(numbers.astype(np.float64))[1] - 1
        mask = np.isin(numbers, self.with_above)
        for depth, those in self.by_depth.items():
            mask |= (depths > depth) & np.isin(1 << depth | numbers & (1 << depth) - 1, those)
        return mask


@dataclass(frozen=True, eq=False)
class MergedOnRead:
    """The file groups of a snapshot with live deltas to merge, and the names of their partitions.

    ``buckets``: of the groups, in an extendible index; None in others. ``deltas``: whether there are any at all, such
    as change no row among them. ``layers``: as many deltas as lie in one group at most.
    """

    groups: AnyArray
    buckets: BucketSet | None
    partitions: frozenset[str]
    deltas: bool
    layers: int

    def mask(self, part: Part) -> Mask | None:
        """The entries of a part whose group has deltas; None if there are none.

        Names of groups and of partitions are looked up apart: of a group that several partitions have, which has deltas
        in one of them, it marks those that lie in any partition with deltas. That may be too many, never too few.
        """
        codes, names = part.partition_codes
        if self.partitions.isdisjoint(names):
            return None
        here = np.array([name in self.partitions for name in names], np.bool_)[codes]
        groups = part.column("file_group")
        among = cast(Any, pc).is_in(groups, value_set=self.groups)
        mask = np.asarray(among.to_numpy(zero_copy_only=False), np.bool_)
        if self.buckets is not None and part.column("bucket").null_count < part.size:
            mask = mask | self.buckets.sharing(filled(part.column("bucket"), 0).to_numpy())
        mask = here & mask
        return mask if mask.any() else None


def merged_on_read(snapshot: Snapshot) -> MergedOnRead | None:
    """The groups with live deltas to merge; None if there are none."""
    merged = _merged(snapshot)
    return merged if merged.partitions else None


@dataclass(frozen=True, slots=True)
class SplitSnapshot:
    """The live files of a snapshot: those of groups without deltas, the base files under deltas, and the deltas.

    Base files of other groups may be among those under deltas; rows of them are then merged with nothing. Kept deletes
    that change no row may be missing.
    """

    settled: Snapshot
    bases: Snapshot
    deltas: Snapshot


def split(snapshot: Snapshot) -> SplitSnapshot:
    """The snapshot taken apart by what has to be merged."""
    merged = _merged(snapshot)
    if not merged.deltas:
        nothing = replace(snapshot, parts=())
        return SplitSnapshot(snapshot, nothing, nothing)
    settled: list[Part] = []
    bases: list[Part] = []
    deltas: list[Part] = []
    for part in snapshot.parts:
        mask = merged.mask(part)
        if not part.entries.has_deltas and mask is None:
            settled.append(part)
            continue
        is_delta = part.column("kind").to_numpy() == pb.DELTA
        mask = np.zeros(part.size, np.bool_) if mask is None else mask
        chosen = (settled, ~mask & ~is_delta), (bases, mask & ~is_delta), (deltas, mask & is_delta)
        for parts, those in chosen:
            kept = part.masked(those)
            if kept is not None:
                parts.append(kept)
    return SplitSnapshot(*(replace(snapshot, parts=tuple(parts)) for parts in (settled, bases, deltas)))


def base_files(snapshot: Snapshot) -> Snapshot:
    """The snapshot without its deltas."""
    apart = split(snapshot)
    return replace(snapshot, parts=(*apart.settled.parts, *apart.bases.parts))


def _merged(snapshot: Snapshot) -> MergedOnRead:
    return snapshot.derived(MergedOnRead, lambda: _find(snapshot.parts))


def _find(parts: Sequence[Part]) -> MergedOnRead:
    groups: list[AnyArray] = []
    partitions: list[AnyArray] = []
    deltas = False
    for part in parts:
        if part.entries.has_deltas:
            kinds = part.column("kind")
            kept = keep_deletes(kinds, part.column("base_instant"), part.column("path"))
            live = (kinds.to_numpy() == pb.DELTA) & part.live_mask()
            deltas |= bool(live.any())
            places = np.flatnonzero(live & ~kept)
            groups.append(take(part.column("file_group"), places))
            codes, names = part.partition_codes
            partitions.append(take(pa.array(names, pa.string()), codes[places]))
    named = pa.table(
        [pa.chunked_array(those, pa.string()) for those in (partitions, groups)], names=["partition", "group"]
    )
    layers = pc.max(named.group_by(["partition", "group"]).aggregate([([], "count_all")])["count_all"]).as_py() or 0
    merged = cast(AnyArray, named["group"].unique())
    numbers = {bucket_named(str(group)) for group in merged.to_pylist()} - {None}
    buckets = BucketSet.of({bucket for bucket in numbers if bucket is not None}) if numbers else None
    return MergedOnRead(merged, buckets, frozenset(map(str, named["partition"].unique().to_pylist())), deltas, layers)
