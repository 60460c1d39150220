"""Figures of the partitions of a snapshot that say how much there is to optimize. Pure, and over columns alone.

A snapshot is cut into chunks of a few thousand entries, and each chunk is summed by partition. A later version shares
most entries with the one before it. So only chunks in which files came or went are summed again, and only partitions in
these are measured again: the cost follows what has changed, not the size of the table.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lakemark_core.bucket_tree import FileGroups
from lakemark_core.optimization import OptimizationPolicy
from lakemark_proto.v1.types_pb2 import DELTA
from lakemark_server.file_index.arrow import take
from lakemark_server.file_index.pages.contents import FileEntries, Mask, StoredEntries
from lakemark_server.file_index.parts.part import Part

Numbers: TypeAlias = npt.NDArray[np.int64]
CHUNK_FILES: Final = 8_192
"""Entries that are summed together: what a look reads anew because of a single file that came or went."""
NAMES_SPARE: Final = 10_000
"""So many names of partitions that have vanished are kept, and as many as there are partitions."""
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


class Measured:
    """The figures of one table, which are brought forward from version to version. For one thread at a time."""

    def __init__(self, policy: OptimizationPolicy) -> None:
        self._policy = policy
        self._parts: dict[Part, tuple[Hashable, list[_Chunk]]] = {}
        self._names = _Names()
        self._measures: dict[str, PartitionMeasure] = {}
        self.files = 0

    def serves(self, policy: OptimizationPolicy) -> bool:
        """Whether these are the figures that this policy asks for, and most of the names that are kept are in use."""
        spare = len(self._names.texts) > 2 * len(self._measures) + NAMES_SPARE
        return _sizes(policy) == _sizes(self._policy) and not spare

    @property
    def memory_bytes(self) -> int:
        """About what is kept in memory, without the entries themselves."""
        chunks = sum(chunk.memory_bytes for chunk in self._chunks())
        masks = sum(part.own_bytes for part in self._parts)
        return chunks + masks + 300 * len(self._names.texts) + 700 * len(self._measures)

    def forward(self, parts: Sequence[Part]) -> Iterable[PartitionMeasure]:
        """The figures of a snapshot with these parts, which may be of any version: one for each partition that has
        files, in no certain order. After an error this is unusable."""
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
        touched: list[Numbers] = []
        for part in changed:
            name = _name(part.entries)
            twins = left.get(name)
            self._parts[part] = name, self._chunked(part, twins.pop() if twins else (), touched)
        touched += (chunk.codes for many in left.values() for chunks in many for chunk in chunks)
        self._measure(touched)
        self.files = sum(part.files for part in parts)
        return self._measures.values()

    def _chunks(self) -> Iterator[_Chunk]:
        return (chunk for _, chunks in self._parts.values() for chunk in chunks)

    def _chunked(self, part: Part, before: Sequence[_Chunk], touched: list[Numbers]) -> list[_Chunk]:
        """The chunks of a part. ``before``: those of the same entries, of which others were alive. ``touched``: gets
        the codes of partitions with files that came or went."""
        chunks = []
        columns: _Columns | None = None
        for number, start in enumerate(range(0, part.size, CHUNK_FILES)):
            live = None if part.live is None else part.live[start : start + CHUNK_FILES]
            if live is not None and live.all():
                live = None
            if before and _same(before[number].live, live):
                chunks.append(before[number])
                continue
            columns = columns or _Columns.of(part.entries)
            chunk = _Chunk.of(columns, start, live, self._names, self._policy)
            touched.append(_between(before[number], chunk, columns, self._names) if before else chunk.codes)
            chunks.append(chunk)
        return chunks

    def _measure(self, touched: Sequence[Numbers]) -> None:
        """Measures the partitions with these codes again."""
        codes = np.unique(np.concatenate(touched)) if touched else _NOTHING
        if not len(codes):
            return
        wanted = np.zeros(len(self._names.texts), np.bool_)
        wanted[codes] = True
        rows = [(chunk, np.flatnonzero(wanted[chunk.codes])) for chunk in self._chunks()]
        for code, one in _measured([(chunk, own) for chunk, own in rows if len(own)], self._names, self._policy):
            self._measures[one.name] = one
            wanted[code] = False
        for code in np.flatnonzero(wanted).tolist():
            self._measures.pop(self._names.texts[code], None)


class _Names:
    """A number for each partition."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, name: str) -> int:
        """The number of a partition, which gets one if it has none."""
        code = self._codes.setdefault(name, len(self.texts))
        if code == len(self.texts):
            self.texts.append(name)
        return code


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
_FIGURES: Final = 7


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk:
    """Neighbouring entries, summed by partition. ``live``: a flag for each of them; None: all are alive.

    ``codes`` (of ``_Names``), ``figures`` and ``last`` (the greatest instant) have a row for each partition. ``small``:
    the sizes of its segments and fragments, as far as a run could take them, in increasing order, from ``bounds[row]``
    to ``bounds[row + 1]``.
    """

    entries: FileEntries
    start: int
    live: Mask | None
    codes: Numbers
    figures: Numbers
    last: Numbers
    small: Numbers
    bounds: Numbers

    @classmethod
    def of(cls, whole: _Columns, start: int, live: Mask | None, names: _Names, policy: OptimizationPolicy) -> _Chunk:
        """The chunk that begins at the place ``start`` of the entries with these columns."""
        entries = whole.entries
        live = None if live is None else live.copy()  # and not a view, which would keep all of the part's mask
        columns = whole.at(_places(entries, start, live))
        if not len(columns.size):
            return cls(entries, start, live, _NOTHING, _NOTHING.reshape(0, _FIGURES), _NOTHING, _NOTHING, _NOTHING)
        order = np.lexsort((columns.size, columns.codes))
        size = columns.size[order]
        own_codes, firsts = np.unique(columns.codes[order], return_index=True)
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
            np.array([names.code(str(columns.partitions[code])) for code in own_codes.tolist()], np.int64),
            figures,
            np.maximum.reduceat(columns.instant[order], firsts),
            size[taken],
            bounds,
        )

    @property
    def memory_bytes(self) -> int:
        arrays = self.codes.nbytes + self.figures.nbytes + self.last.nbytes + self.small.nbytes + self.bounds.nbytes
        return 500 + arrays + (0 if self.live is None else self.live.nbytes)

    def smalls(self, rows: Numbers) -> tuple[Numbers, Numbers]:
        """The sizes that a run could take of the partitions with these rows, and the code of each."""
        counts = self.bounds[rows + 1] - self.bounds[rows]
        ends = np.cumsum(counts)
        places = np.arange(ends[-1]) + np.repeat(self.bounds[rows] - (ends - counts), counts)
        return self.small[places], np.repeat(self.codes[rows], counts)

    def by_row(self) -> tuple[_Columns, Numbers]:
        """The files in the order of the rows, and where each row begins."""
        columns = _Columns.of(self.entries).at(_places(self.entries, self.start, self.live))
        columns = columns.at(np.argsort(columns.codes, kind="stable"))
        return columns, np.cumsum([0, *self.figures[:, _FILES]])


def _between(old: _Chunk, new: _Chunk, columns: _Columns, names: _Names) -> Numbers:
    """The codes of partitions of which two chunks of the same entries have different files."""
    places = np.setxor1d(
        _places(old.entries, old.start, old.live), _places(new.entries, new.start, new.live), assume_unique=True
    )
    own = np.unique(columns.codes[places]).tolist()
    return np.array([names.code(str(columns.partitions[code])) for code in own], np.int64)


def _places(entries: FileEntries, start: int, live: Mask | None) -> Numbers:
    if live is not None:
        return start + np.flatnonzero(live)
    return np.arange(start, min(start + CHUNK_FILES, entries.size))


def deltas_of(part: Part) -> Mask:
    """Which live files of a part are deltas that readers merge."""
    merged = _merged(part.entries)
    return merged if part.live is None else np.asarray(merged[part.live])


def _merged(entries: FileEntries) -> Mask:
    """Which of the entries are deltas that readers merge: not the deletes that a compaction keeps."""
    if not entries.has_deltas:
        return np.zeros(entries.size, np.bool_)
    under = entries.column("base_instant").to_numpy(zero_copy_only=False)
    return np.asarray((entries.column("kind").to_numpy() == DELTA) & (under != entries.instants))


@dataclass(frozen=True, slots=True)
class _Columns:
    """Entries of one part. ``delta``: as ``_merged`` has it."""

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
        size, rows = entries.column("size_bytes").to_numpy(), entries.column("row_count").to_numpy()
        return cls(entries, partitions, codes, size, rows, entries.instants, _merged(entries))

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


def _measured(
    rows: Sequence[tuple[_Chunk, Numbers]], names: _Names, policy: OptimizationPolicy
) -> Iterator[tuple[int, PartitionMeasure]]:
    """The figures of partitions by their codes. ``rows``: all that chunks have of them."""
    if not rows:
        return
    codes = np.concatenate([chunk.codes[own] for chunk, own in rows])
    order = np.argsort(codes, kind="stable")
    of_all, firsts = np.unique(codes[order], return_index=True)
    figures = np.add.reduceat(np.concatenate([chunk.figures[own] for chunk, own in rows])[order], firsts, axis=0)
    last = np.maximum.reduceat(np.concatenate([chunk.last[own] for chunk, own in rows])[order], firsts)
    sizes, bounds = _smalls(rows, of_all)
    lines = figures.tolist()
    changed = _Changed(rows, order, [*firsts.tolist(), len(order)])
    for at, (code, line) in enumerate(zip(of_all.tolist(), lines, strict=True)):
        more: dict[str, int] = {}
        small = sizes[bounds[at] : bounds[at + 1]]
        counted = line[_FRAGMENTS], line[_FRAGMENT_BYTES], line[_SEGMENTS]
        if line[_DELTAS]:  # then what lies under them counts, too
            columns, groups = changed.columns(at)
            more = _folding(columns, groups)
            if not policy.buckets:
                small, counted = _unchanged(columns, groups, policy)
        if not policy.buckets:
            more |= _merging(*counted, small, policy)
        yield code, PartitionMeasure(names.texts[code], line[_FILES], line[_BYTES], line[_ROWS], int(last[at]), **more)


def _smalls(rows: Sequence[tuple[_Chunk, Numbers]], codes: Numbers) -> tuple[Numbers, Numbers]:
    """The sizes that a run could take, by partition and in increasing order, and where each partition begins."""
    pairs = [chunk.smalls(own) for chunk, own in rows]
    sizes, of_codes = (np.concatenate(some) for some in zip(*pairs, strict=True))
    if len(codes) == 1:
        return np.sort(sizes), np.array([0, len(sizes)])
    order = np.lexsort((sizes, of_codes))
    return sizes[order], np.searchsorted(of_codes[order], [*codes, np.iinfo(np.int64).max])


class _Changed:
    """The files of partitions with deltas. ``order`` and ``firsts``: which rows belong to the partition at a place."""

    def __init__(self, rows: Sequence[tuple[_Chunk, Numbers]], order: Numbers, firsts: Sequence[int]) -> None:
        self._rows, self._order, self._firsts = rows, order, firsts
        self._starts = np.cumsum([0, *(len(own) for _, own in rows)])
        self._read: dict[int, tuple[_Columns, Numbers]] = {}

    def columns(self, at: int) -> tuple[list[_Columns], list[list[str]]]:
        """What each chunk has of the partition, and the file groups of these files."""
        pieces = []
        for place in self._order[self._firsts[at] : self._firsts[at + 1]].tolist():
            number = int(np.searchsorted(self._starts, place, "right")) - 1
            chunk, own = self._rows[number]
            if number not in self._read:
                self._read[number] = chunk.by_row()
            columns, begins = self._read[number]
            row = own[place - self._starts[number]]
            pieces.append(columns.at(np.arange(begins[row], begins[row + 1])))
        return pieces, [piece.groups() for piece in pieces]


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


def _unchanged(
    columns: Sequence[_Columns], groups: Sequence[Sequence[str]], policy: OptimizationPolicy
) -> tuple[Numbers, tuple[int, int, int]]:
    """The sizes of small files in groups without deltas (those of the others are left to their own engine), and how
    many of these are fragments, with their bytes, and segments."""
    changed = _changed(columns, groups)
    kept = [
        some.size[np.fromiter((name not in changed for name in names), np.bool_, len(names))]
        for some, names in zip(columns, groups, strict=True)
    ]
    sizes = np.sort(np.concatenate(kept))
    small = sizes[: np.searchsorted(sizes, policy.segment_bytes)]
    fragments = small[: np.searchsorted(small, policy.fragment_bytes)]
    return small, (len(fragments), int(fragments.sum()), len(small) - len(fragments))


def _merging(
    fragments: int, fragment_bytes: int, segments: int, small: Numbers, policy: OptimizationPolicy
) -> dict[str, int]:
    """``small``: the sizes of segments and fragments in increasing order, as far as a run could take them."""
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
    """How many of these files a run merges, their bytes, and how many files it makes of them.

    As ``files_to_merge`` says it, without a loop over files.
    """
    totals = np.cumsum(sizes)
    fitting = sizes[: np.searchsorted(totals, policy.run_bytes_max, "right")]
    joining = np.flatnonzero(fitting[1:] <= totals[: len(fitting)][:-1])
    taken = int(joining[-1]) + 2 if len(joining) else 0
    total = int(totals[taken - 1]) if taken else 0
    return taken, total, -(-total // policy.target_bytes)
