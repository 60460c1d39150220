"""Figures of the partitions of a snapshot that say how much there is to optimize. Pure, and over columns alone.

A snapshot is cut into chunks of a few thousand entries, and each chunk is summed by partition. A later version shares
most entries with the one before it. So only chunks in which files came or went are summed again, and only partitions in
these are measured again: the cost follows what has changed, not the size of the table.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lakemark_core.bucket_tree import FileGroups
from lakemark_core.optimization import OptimizationPolicy, files_to_merge
from lakemark_proto.v1.types_pb2 import DELTA
from lakemark_server.file_index.arrow import take
from lakemark_server.file_index.pages.contents import FileEntries, Mask, StoredEntries
from lakemark_server.file_index.parts.part import Part

Numbers: TypeAlias = npt.NDArray[np.int64]
CHUNK_FILES: Final = 8_192
"""Entries that are summed together: what a look reads anew because of a single file that came or went."""
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
    return list(Measured(policy).forward(parts))


class Measured:
    """The figures of one table, which are brought forward from version to version. For one thread at a time."""

    def __init__(self, policy: OptimizationPolicy) -> None:
        self._policy = policy
        self._parts: dict[Part, tuple[Hashable, list[_Chunk]]] = {}
        self._chunks_of: dict[str, dict[_Chunk, int]] = {}  # by partition: the row that a chunk has of it
        self._measures: dict[str, PartitionMeasure] = {}
        self.files = 0

    def serves(self, policy: OptimizationPolicy) -> bool:
        """Whether these are the figures that this policy asks for."""
        return _sizes(policy) == _sizes(self._policy)

    @property
    def memory_bytes(self) -> int:
        """About what is kept in memory, without the entries themselves."""
        chunks = sum(chunk.memory_bytes for _, chunks in self._parts.values() for chunk in chunks)
        masks = sum(part.own_bytes for part in self._parts)
        return chunks + masks + 1_000 * len(self._measures)

    def forward(self, parts: Sequence[Part]) -> Iterable[PartitionMeasure]:
        """The figures of a snapshot with these parts, which may be of any version. After an error this is unusable."""
        before, self._parts = self._parts, {}
        changed: list[Part] = []
        for part in parts:
            known = before.pop(part, None)
            if known is None:
                changed.append(part)
            else:
                self._parts[part] = known
        left: dict[Hashable, list[list[_Chunk]]] = {}
        for name, chunks in before.values():
            left.setdefault(name, []).append(chunks)
        touched: set[str] = set()
        for part in changed:
            name = _name(part.entries)
            twins = left.get(name)
            self._parts[part] = name, self._chunked(part, twins.pop() if twins else (), touched)
        for many in left.values():
            for chunks in many:
                for chunk in chunks:
                    self._leave(chunk, touched)
        for partition in touched:
            of_partition = self._chunks_of.get(partition)
            if of_partition:
                self._measures[partition] = _measure(partition, of_partition, self._policy)
            else:
                self._chunks_of.pop(partition, None)
                self._measures.pop(partition, None)
        self.files = sum(part.files for part in parts)
        return self._measures.values()

    def _chunked(self, part: Part, before: Sequence[_Chunk], touched: set[str]) -> list[_Chunk]:
        """The chunks of a part. ``before``: those of the same entries, of which others were alive."""
        chunks = []
        columns: _Columns | None = None
        for number, start in enumerate(range(0, part.size, CHUNK_FILES)):
            live = None if part.live is None else part.live[start : start + CHUNK_FILES]
            if live is not None and live.all():
                live = None
            if before and _same(before[number].live, live):
                chunks.append(before[number])
                continue
            if before:
                self._leave(before[number], touched)
            columns = columns or _Columns.of(part.entries)
            chunk = _Chunk.of(columns, start, live, self._policy)
            for row, partition in enumerate(chunk.partitions):
                self._chunks_of.setdefault(partition, {})[chunk] = row
            touched.update(chunk.partitions)
            chunks.append(chunk)
        return chunks

    def _leave(self, chunk: _Chunk, touched: set[str]) -> None:
        for partition in chunk.partitions:
            del self._chunks_of[partition][chunk]
        touched.update(chunk.partitions)


def _sizes(policy: OptimizationPolicy) -> tuple[int, int, bool]:
    return policy.target_bytes, policy.run_bytes_max, bool(policy.buckets)


def _name(entries: FileEntries) -> Hashable:
    """The same for entries of the same pages, which another base may have, too."""
    return entries.pages if isinstance(entries, StoredEntries) else entries


def _same(some: Mask | None, other: Mask | None) -> bool:
    if some is None or other is None:
        return some is other
    return some is other or np.array_equal(some, other)


# Columns of ``_Chunk.figures``. All are sums.
_FILES, _BYTES, _ROWS, _DELTAS, _FRAGMENTS, _FRAGMENT_BYTES, _SEGMENTS = range(7)


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk:
    """Neighbouring entries, summed by partition. ``live``: a flag for each of them; None: all are alive.

    ``figures`` and ``last`` (the greatest instant) have a row for each partition. ``small``: the sizes of its segments
    and fragments, as far as a run could take them, in increasing order, from ``bounds[row]`` to ``bounds[row + 1]``.
    """

    entries: FileEntries
    start: int
    live: Mask | None
    partitions: list[str]
    codes: npt.NDArray[np.int32]
    figures: Numbers
    last: Numbers
    small: Numbers
    bounds: Numbers

    @classmethod
    def of(cls, whole: _Columns, start: int, live: Mask | None, policy: OptimizationPolicy) -> _Chunk:
        """The chunk that begins at the place ``start`` of the entries with these columns."""
        entries = whole.entries
        live = None if live is None else live.copy()  # and not a view, which would keep all of the part's mask
        columns = whole.at(_places(entries, start, live))
        if not len(columns.size):
            return cls(entries, start, live, [], columns.codes, _NOTHING, _NOTHING, _NOTHING, _NOTHING)
        order = np.lexsort((columns.size, columns.codes))
        sorted_codes, size = columns.codes[order], columns.size[order]
        codes, firsts = np.unique(sorted_codes, return_index=True)
        merged = not policy.buckets
        is_small = (size < policy.segment_bytes) & merged
        is_fragment = (size < policy.fragment_bytes) & merged
        summed = (
            np.ones(len(size), np.int64),
            size,
            columns.rows[order],
            columns.delta[order],
            is_fragment,
            size * is_fragment,
            is_small & ~is_fragment,
        )
        figures = np.stack([np.add.reduceat(one.astype(np.int64), firsts) for one in summed], axis=1)
        # What is larger than a run, together with all smaller ones of the chunk, is in no run of more chunks either.
        totals = np.cumsum(size)
        before = np.repeat(totals[firsts] - size[firsts], np.diff([*firsts, len(size)]))
        taken = is_small & (totals - before <= policy.run_bytes_max)
        bounds = np.concatenate(([0], np.cumsum(np.add.reduceat(taken.astype(np.int64), firsts))))
        return cls(
            entries,
            start,
            live,
            [str(columns.partitions[code]) for code in codes],
            codes,
            figures,
            np.maximum.reduceat(columns.instant[order], firsts),
            size[taken],
            bounds,
        )

    @property
    def memory_bytes(self) -> int:
        arrays = self.codes.nbytes + self.figures.nbytes + self.last.nbytes + self.small.nbytes + self.bounds.nbytes
        return 500 + arrays + 200 * len(self.partitions) + (0 if self.live is None else self.live.nbytes)

    def smalls(self, row: int) -> Numbers:
        """The sizes that a run could take of the partition with this row."""
        return self.small[self.bounds[row] : self.bounds[row + 1]]

    def columns(self, row: int) -> _Columns:
        """The files of the partition with this row."""
        columns = _Columns.of(self.entries).at(_places(self.entries, self.start, self.live))
        return columns.at(np.flatnonzero(columns.codes == self.codes[row]))


def _places(entries: FileEntries, start: int, live: Mask | None) -> Numbers:
    if live is not None:
        return start + np.flatnonzero(live)
    return np.arange(start, min(start + CHUNK_FILES, entries.size))


@dataclass(frozen=True, slots=True)
class _Columns:
    """Entries of one part. ``delta``: those that readers merge, not the deletes that a compaction keeps."""

    entries: FileEntries
    partitions: Sequence[str]
    codes: npt.NDArray[np.int32]
    size: Numbers
    rows: Numbers
    instant: Numbers
    delta: Mask
    places: Numbers | None = None

    @classmethod
    def of(cls, entries: FileEntries) -> _Columns:
        """All of these entries."""
        codes, partitions = entries.partition_codes
        instant = entries.instants
        delta: Mask = np.zeros(entries.size, np.bool_)
        if entries.has_deltas:
            under = entries.column("base_instant").to_numpy(zero_copy_only=False)
            delta = np.asarray((entries.column("kind").to_numpy() == DELTA) & (under != instant))
        size, rows = entries.column("size_bytes").to_numpy(), entries.column("row_count").to_numpy()
        return cls(entries, partitions, codes, size, rows, instant, delta)

    def at(self, places: Numbers) -> _Columns:
        """Those at these places among them."""
        return _Columns(
            self.entries,
            self.partitions,
            self.codes[places],
            self.size[places],
            self.rows[places],
            self.instant[places],
            self.delta[places],
            places if self.places is None else self.places[places],
        )

    def groups(self) -> list[str]:
        """The file group of each."""
        column = self.entries.column("file_group")
        return [str(name) for name in (column if self.places is None else take(column, self.places)).to_pylist()]


def _measure(name: str, chunks: Mapping[_Chunk, int], policy: OptimizationPolicy) -> PartitionMeasure:
    figures = np.sum([chunk.figures[row] for chunk, row in chunks.items()], axis=0).tolist()
    last = max(int(chunk.last[row]) for chunk, row in chunks.items())
    more: dict[str, int] = {}
    left = figures[_FRAGMENTS], figures[_FRAGMENT_BYTES], figures[_SEGMENTS]
    smalls: Iterator[Numbers] = (chunk.smalls(row) for chunk, row in chunks.items())
    if figures[_DELTAS]:  # then what lies under them counts, too
        columns = [chunk.columns(row) for chunk, row in chunks.items()]
        groups = [columns_of.groups() for columns_of in columns]
        more = _folding(columns, groups)
        if not policy.buckets:
            unchanged = _without_changed(columns, groups)
            small = [size[size < policy.segment_bytes] for size in unchanged]
            fragments = [size[size < policy.fragment_bytes] for size in small]
            count, total = sum(map(len, fragments)), sum(int(size.sum()) for size in fragments)
            left, smalls = (count, total, sum(map(len, small)) - count), iter(small)
    if not policy.buckets:
        more |= _merging(*left, smalls, policy)
    return PartitionMeasure(name, figures[_FILES], figures[_BYTES], figures[_ROWS], last, **more)


def _folding(columns: Sequence[_Columns], groups: Sequence[Sequence[str]]) -> dict[str, int]:
    changed = _changed(columns, groups)
    # Deltas lie on the files of all buckets that share keys with theirs.
    under = FileGroups(("", name) for name in changed)
    touched = {name for name in {name for names in groups for name in names} if under.touch("", name)}
    figures = dict.fromkeys(("deltas", "delta_bytes", "delta_rows", "fold_bytes", "fold_rows"), 0)
    instants: set[int] = set()
    for some, names in zip(columns, groups, strict=True):
        delta = some.delta
        among = np.fromiter((name in touched for name in names), np.bool_, len(names))
        instants.update(some.instant[delta].tolist())
        figures["deltas"] += int(delta.sum())
        figures["delta_bytes"] += int(some.size[delta].sum())
        figures["delta_rows"] += int(some.rows[delta].sum())
        figures["fold_bytes"] += int(some.size[among].sum())
        figures["fold_rows"] += int(some.rows[among & ~delta].sum())
    return {**figures, "delta_commits": len(instants), "fold_groups": len(changed)}


def _changed(columns: Sequence[_Columns], groups: Sequence[Sequence[str]]) -> set[str]:
    """File groups with deltas."""
    return {
        names[at] for some, names in zip(columns, groups, strict=True) for at in np.flatnonzero(some.delta).tolist()
    }


def _without_changed(columns: Sequence[_Columns], groups: Sequence[Sequence[str]]) -> list[Numbers]:
    """The sizes of files in groups without deltas: those of the others are left to their own engine."""
    changed = _changed(columns, groups)
    return [
        some.size[np.fromiter((name not in changed for name in names), np.bool_, len(names))]
        for some, names in zip(columns, groups, strict=True)
    ]


def _merging(
    fragments: int, fragment_bytes: int, segments: int, smalls: Iterable[Numbers], policy: OptimizationPolicy
) -> dict[str, int]:
    small = np.sort(np.concatenate([*smalls]))
    mergeable, merge_bytes, merged = _run(small[: np.searchsorted(small, policy.fragment_bytes)], policy)
    large, large_bytes, large_merged = _run(small, policy)
    return {
        "fragments": fragments,
        "fragment_bytes": fragment_bytes,
        "segments": segments,
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
