"""How well the files of a version suit readers: sizes by partition, small files, deltas, and a score. Pure.

What is small, and what a delta is, are the optimizer's own definitions. The sums are not ``measures.Measured``, which
says for each partition what a run would read and write: a page wants classes of sizes, for all partitions at once, in
some milliseconds. So *avoidable* is what there is to gain in the long run, and a run that is due now may take less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lakemark_core.errors import InvalidArgument
from lakemark_core.file_layout import FILE_BYTES, layout_of
from lakemark_core.optimization import FRAGMENT_PARTS
from lakemark_core.table_kind import kind_of
from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_server.file_index.parts.part import Part
from lakemark_server.optimization.measures import deltas_of

EDGES_BYTES: Final = tuple(mega * 1_000_000 for mega in (1, 4, 16, 64, 256))
"""Where the classes of a histogram of sizes begin, but for the first one."""

CLASSES: Final = ("< 1 MB", "1–4 MB", "4–16 MB", "16–64 MB", "64–256 MB", "≥ 256 MB")
AVOIDABLE_MIN: Final = 16
"""A few small files hurt nobody."""

LISTED_BYTES_MAX: Final = 16 << 20
"""About how much memory the partitions of a summary take. Of more, those are left out that have least to gain."""

_PARTITION_BYTES: Final = 200
"""Beside the characters of its name."""

_FILES, _ROWS, _BYTES, _DELTAS, _SMALL, _SMALL_BYTES, _SIZES = range(7)
_COLUMNS: Final = _SIZES + len(CLASSES)

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FileGoal:
    """What the files of a table should be like. ``target_bytes``: their size. ``in_buckets``: the key of a row says
    which file it is in, so that small files cannot be merged."""

    target_bytes: int
    in_buckets: bool = False

    @property
    def small_bytes(self) -> int:
        """A smaller file is small."""
        return self.target_bytes // FRAGMENT_PARTS


def goal_of(properties: Mapping[str, str]) -> FileGoal:
    """The goal of a table with these properties; the default where an earlier build has accepted what is illegal."""
    try:
        target_bytes = layout_of(properties).target_bytes
    except InvalidArgument:
        target_bytes = FILE_BYTES
    try:
        return FileGoal(target_bytes, bool(kind_of(properties).buckets))
    except InvalidArgument:
        return FileGoal(target_bytes)


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The live files of a partition. ``avoidable``: how many fewer there were if the small ones were merged."""

    name: str
    files: int
    rows: int
    size_bytes: int
    deltas: int
    small: int
    avoidable: int
    histogram: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FileTotals:
    """The live files of a version, without those of each partition."""

    files: int
    rows: int
    size_bytes: int
    deltas: int
    small: int
    avoidable: int
    partitions: int
    histogram: tuple[int, ...]

    @property
    def score(self) -> int:
        """100: nothing to gain. Else the share of files that would be left if small files were merged, and delta files
        compacted into their base files, in percent."""
        gain = (self.avoidable if self.avoidable >= AVOIDABLE_MIN else 0) + self.deltas
        return 100 if not gain else 100 - 100 * min(gain, self.files) // self.files

    @property
    def reasons(self) -> list[str]:
        """Why the score is not 100, in words."""
        reasons = []
        if self.avoidable >= AVOIDABLE_MIN:
            reasons.append(
                f"{self.small:,} of {self.files:,} files are small; merging them would save {self.avoidable:,} files"
            )
        if self.deltas:
            reasons.append(f"{self.deltas:,} delta files are merged by every reader until they are compacted")
        return reasons


NOTHING: Final = FileTotals(0, 0, 0, 0, 0, 0, 0, (0,) * len(CLASSES))


class FileSummary:
    """The files of one version: all of them together, and by partition. Immutable.

    ``left_out``: partitions that ``partitions`` does not list, since there are too many.
    """

    def __init__(self, names: list[str], figures: Integers, goal: FileGoal) -> None:
        avoidable = _avoidable(figures, goal)
        sums = [int(one) for one in figures.sum(axis=0)]
        self.totals = FileTotals(
            sums[_FILES], sums[_ROWS], sums[_BYTES], sums[_DELTAS], sums[_SMALL],
            int(avoidable.sum()), len(names), tuple(sums[_SIZES:]),
        )  # fmt: skip
        lengths = np.fromiter((len(name) for name in names), np.int64, len(names)) + _PARTITION_BYTES
        kept = np.arange(len(names))
        if lengths.sum() > LISTED_BYTES_MAX:
            worst_first = np.lexsort((-figures[:, _FILES], -figures[:, _DELTAS], -avoidable))
            kept = np.sort(worst_first[np.cumsum(lengths[worst_first]) <= LISTED_BYTES_MAX])
        self.left_out = len(names) - len(kept)
        self.memory_bytes = 1_000 + int(lengths[kept].sum())
        """About how much memory it takes."""

        self._names = [names[place] for place in kept] if self.left_out else names
        self._figures, self._avoidable = figures[kept], avoidable[kept]

    @property
    def listed(self) -> int:
        """How many partitions ``partitions`` lists."""
        return len(self._names)

    def partitions(self, order: str, offset: int, limit: int) -> list[PartitionFiles]:
        """Some of them, in order of "name", or by most "files", "size" or "avoidable" files first."""
        places = self._order(order)[offset : offset + limit]
        return [_partition(self._names[place], self._figures[place], self._avoidable[place]) for place in places]

    @cached_property
    def _by_name(self) -> Integers:
        return np.array(sorted(range(len(self._names)), key=self._names.__getitem__), np.int64)

    def _order(self, order: str) -> Integers:
        keys = {"files": self._figures[:, _FILES], "size": self._figures[:, _BYTES], "avoidable": self._avoidable}
        if order not in keys:
            return self._by_name
        return self._by_name[np.argsort(-keys[order][self._by_name], kind="stable")]


def summarize(snapshot: Snapshot, goal: FileGoal) -> FileSummary:
    """The files of a snapshot."""
    places: dict[str, int] = {}
    figures = np.zeros((0, _COLUMNS), np.int64)
    for part in snapshot.parts:
        names, own = _figures(part, goal)
        used = np.flatnonzero(own[:, _FILES])
        rows = [places.setdefault(names[at], len(places)) for at in used.tolist()]
        if len(places) > len(figures):
            more = max(len(places) - len(figures), len(figures))
            figures = np.concatenate((figures, np.zeros((more, _COLUMNS), np.int64)))
        figures[rows] += own[used]
    return FileSummary(list(places), figures[: len(places)], goal)


def partition_files(snapshot: Snapshot, goal: FileGoal, name: str) -> PartitionFiles | None:
    """The files of one partition of a snapshot; None if it has none."""
    figures = np.zeros((1, _COLUMNS), np.int64)
    for part in snapshot.parts:
        if name in part.partition_codes[1]:
            names, own = _figures(part, goal)
            figures[0] += own[names.index(name)]
    return _partition(name, figures[0], _avoidable(figures, goal)[0]) if figures[0, _FILES] else None


def _figures(part: Part, goal: FileGoal) -> tuple[Sequence[str], Integers]:
    """The names of a part's partitions, and a row of figures for each; of dead files alone it has zeros."""
    codes, names = part.partition_codes
    live = part.live_mask()
    codes = codes[live]
    sizes = part.column("size_bytes").to_numpy()[live]
    row_counts = part.column("row_count").to_numpy()[live]
    deltas = deltas_of(part)
    small = (sizes < (0 if goal.in_buckets else goal.small_bytes)) & ~deltas
    figures = np.zeros((len(names), _COLUMNS), np.int64)
    figures[:, _FILES] = np.bincount(codes, minlength=len(names))
    figures[:, _ROWS], figures[:, _BYTES] = _sums(codes, row_counts, names), _sums(codes, sizes, names)
    figures[:, _DELTAS], figures[:, _SMALL] = _sums(codes, deltas, names), _sums(codes, small, names)
    figures[:, _SMALL_BYTES] = _sums(codes, sizes * small, names)
    classes = codes * len(CLASSES) + np.digitize(sizes, EDGES_BYTES)
    figures[:, _SIZES:] = np.bincount(classes, minlength=len(names) * len(CLASSES)).reshape(len(names), -1)
    return names, figures


def _avoidable(figures: Integers, goal: FileGoal) -> Integers:
    avoidable: Integers = np.maximum(figures[:, _SMALL] - -(-figures[:, _SMALL_BYTES] // goal.target_bytes), 0)
    return avoidable


def _partition(name: str, figures: Integers, avoidable: np.int64) -> PartitionFiles:
    row = [int(one) for one in figures]
    return PartitionFiles(
        name, row[_FILES], row[_ROWS], row[_BYTES], row[_DELTAS], row[_SMALL], int(avoidable), tuple(row[_SIZES:])
    )


def _sums(codes: npt.NDArray[np.int32], values: npt.NDArray[Any], names: Sequence[str]) -> Integers:
    """The sum of the values with each code; exact up to 2^53."""
    return np.bincount(codes, values.astype(np.float64), len(names)).astype(np.int64)
