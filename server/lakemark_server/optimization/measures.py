"""Figures of the partitions of a snapshot that say how much there is to optimize. Pure, and over columns alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lakemark_core.bucket_tree import FileGroups
from lakemark_core.optimization import OptimizationPolicy, files_to_merge
from lakemark_proto.v1.types_pb2 import DELTA
from lakemark_server.file_index.parts.part import Part

Numbers: TypeAlias = npt.NDArray[np.int64]
_NOTHING: Final[Numbers] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class PartitionMeasure:
    """Sizes in bytes. Fragments, segments and what can be merged are told of tables without buckets.

    ``segments``: without fragments. ``mergeable``: fragments that one minor run merges into ``merged`` files;
    ``large_mergeable``: fragments and segments that a major run does. ``fold_bytes``: of all files in the file groups
    that have deltas. ``bases_bytes`` and ``bases_rows``: of these groups, without deltas. ``last_change_ms``: the
    greatest instant of a file.
    """

    name: str
    files: int
    bytes: int
    rows: int
    last_change_ms: int
    fragments: int = 0
    fragment_bytes: int = 0
    segments: int = 0
    mergeable: int = 0
    merge_bytes: int = 0
    merged: int = 0
    large_mergeable: int = 0
    large_merge_bytes: int = 0
    large_merged: int = 0
    deltas: int = 0
    delta_commits: int = 0
    delta_bytes: int = 0
    delta_rows: int = 0
    fold_groups: int = 0
    fold_bytes: int = 0
    fold_rows: int = 0


def measure(parts: Sequence[Part], policy: OptimizationPolicy) -> list[PartitionMeasure]:
    """One for each partition that has files, in no certain order. The cost is that of reading some columns once."""
    if not parts:
        return []
    columns = _Columns.of(parts)
    count = len(columns.names)
    order = np.argsort(columns.partition, kind="stable")
    bounds = np.searchsorted(columns.partition[order], np.arange(count + 1))
    last = np.zeros(count, np.int64)
    np.maximum.at(last, columns.partition, columns.instant)
    measures = []
    for code, name in enumerate(columns.names):
        places = order[bounds[code] : bounds[code + 1]]
        if len(places):
            measures.append(_partition(name, int(last[code]), columns, places, policy))
    return measures


def deltas_of(part: Part) -> npt.NDArray[np.bool_]:
    """Which live files of a part are deltas that readers merge: not the deletes that a compaction keeps."""
    if not part.entries.has_deltas:
        return np.zeros(part.files, np.bool_)
    live: Any = slice(None) if part.live is None else part.live
    kind = part.column("kind").to_numpy()[live]
    under = part.column("base_instant").to_numpy(zero_copy_only=False)[live]
    merged: npt.NDArray[np.bool_] = (kind == DELTA) & (under != part.entries.instants[live])
    return merged


@dataclass(frozen=True, slots=True)
class _Columns:
    """The live files of all parts. ``delta``: as ``deltas_of`` has it."""

    names: list[str]
    partition: Numbers
    size: Numbers
    rows: Numbers
    instant: Numbers
    delta: npt.NDArray[np.bool_]
    groups: list[str] | None

    @classmethod
    def of(cls, parts: Sequence[Part]) -> _Columns:
        codes: dict[str, int] = {}
        collected: list[list[npt.NDArray[Any]]] = [[] for _ in range(5)]
        groups: list[str] = []
        any_deltas = any(part.entries.has_deltas for part in parts)
        for part in parts:
            live: Any = slice(None) if part.live is None else part.live
            own, names = part.partition_codes
            among = np.array([codes.setdefault(str(name), len(codes)) for name in names], np.int64)
            instant = part.entries.instants[live]
            collected[0].append(among[own[live]] if len(among) else _NOTHING)
            collected[1].append(part.column("size_bytes").to_numpy()[live])
            collected[2].append(part.column("row_count").to_numpy()[live])
            collected[3].append(instant)
            collected[4].append(deltas_of(part))
            if any_deltas:
                all_groups = np.asarray(part.column("file_group").to_pylist(), object)
                groups += all_groups[live].tolist()
        partition, size, rows, instant, delta = (np.concatenate(some) for some in collected)
        return cls(list(codes), partition, size, rows, instant, delta, groups if any_deltas else None)


def _partition(
    name: str, last_change_ms: int, columns: _Columns, places: Numbers, policy: OptimizationPolicy
) -> PartitionMeasure:
    size, rows, delta = columns.size[places], columns.rows[places], columns.delta[places]
    figures: dict[str, int] = {}
    if delta.any() and columns.groups is not None:
        figures = _folding(columns, places, size, rows, delta)
    if not policy.buckets:
        figures |= _merging(columns, places, size, delta, policy)
    return PartitionMeasure(name, len(places), int(size.sum()), int(rows.sum()), last_change_ms, **figures)


def _folding(
    columns: _Columns, places: Numbers, size: Numbers, rows: Numbers, delta: npt.NDArray[np.bool_]
) -> dict[str, int]:
    assert columns.groups is not None  # noqa: S101 - the caller has looked
    names = [columns.groups[place] for place in places]
    changed = {name for name, is_delta in zip(names, delta, strict=True) if is_delta}
    # Deltas lie on the files of all buckets that share keys with theirs.
    groups = FileGroups(("", name) for name in changed)
    touched = {name for name in set(names) if groups.touch("", name)}
    among = np.fromiter((name in touched for name in names), np.bool_, len(names))
    return {
        "deltas": int(delta.sum()),
        "delta_commits": len(np.unique(columns.instant[places][delta])),
        "delta_bytes": int(size[delta].sum()),
        "delta_rows": int(rows[delta].sum()),
        "fold_groups": len(changed),
        "fold_bytes": int(size[among].sum()),
        "fold_rows": int(rows[among & ~delta].sum()),
    }


def _merging(
    columns: _Columns,
    places: Numbers,
    size: Numbers,
    delta: npt.NDArray[np.bool_],
    policy: OptimizationPolicy,
) -> dict[str, int]:
    if delta.any() and columns.groups is not None:  # files of groups with deltas are left to their own engine
        changed = {columns.groups[place] for place in places[delta]}
        size = size[np.fromiter((columns.groups[place] not in changed for place in places), np.bool_, len(places))]
    small = np.sort(size[size < policy.segment_bytes])
    fragments = small[small < policy.fragment_bytes]
    mergeable, merge_bytes, merged = _run(fragments, policy)
    large, large_bytes, large_merged = _run(small, policy)
    return {
        "fragments": len(fragments),
        "fragment_bytes": int(fragments.sum()),
        "segments": len(small) - len(fragments),
        "mergeable": mergeable,
        "merge_bytes": merge_bytes,
        "merged": merged,
        "large_mergeable": large,
        "large_merge_bytes": large_bytes,
        "large_merged": large_merged,
    }


def _run(sizes: Numbers, policy: OptimizationPolicy) -> tuple[int, int, int]:
    """How many of these files a run merges, their bytes, and how many files it makes of them."""
    taken = files_to_merge(sizes.tolist(), policy.run_bytes_max) if len(sizes) > 1 else 0
    total = int(sizes[:taken].sum())
    return taken, total, -(-total // policy.target_bytes) if taken else 0
