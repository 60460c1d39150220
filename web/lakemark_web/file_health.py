"""How well the files of a version suit readers: sizes by partition, small files, deltas, and a score. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lakemark_proto.v1 import types_pb2
from lakemark_server.file_index.parts.fold import Snapshot

EDGES_BYTES: Final = tuple(mega * 1_000_000 for mega in (1, 4, 16, 64, 256))
"""Where the classes of a histogram of sizes begin, but for the first one."""

CLASSES: Final = ("< 1 MB", "1–4 MB", "4–16 MB", "16–64 MB", "64–256 MB", "≥ 256 MB")
SMALL_SHARE: Final = 8
"""A file is small if it is smaller than an eighth of what the table's files should have."""

AVOIDABLE_MIN: Final = 16
"""A few small files hurt nobody."""

_FILES, _ROWS, _BYTES, _DELTAS, _SMALL, _SMALL_BYTES, _SIZES = range(7)
_COLUMNS: Final = _SIZES + len(CLASSES)

Integers = npt.NDArray[np.int64]


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
        folded into their base files, in percent."""
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
    """The files of one version by partition. Immutable; takes about 100 bytes for each partition."""

    def __init__(self, names: list[str], figures: Integers, target_bytes: int) -> None:
        self._names = names
        self._figures = figures
        small, small_bytes = figures[:, _SMALL], figures[:, _SMALL_BYTES]
        self._avoidable = np.maximum(small - -(-small_bytes // target_bytes), 0)

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        return 1_000 + int(self._figures.nbytes + self._avoidable.nbytes) + sum(60 + len(name) for name in self._names)

    @cached_property
    def totals(self) -> FileTotals:
        """Of all partitions."""
        sums = [int(one) for one in self._figures.sum(axis=0)]
        return FileTotals(
            sums[_FILES], sums[_ROWS], sums[_BYTES], sums[_DELTAS], sums[_SMALL],
            int(self._avoidable.sum()), len(self._names), tuple(sums[_SIZES:]),
        )  # fmt: skip

    def partitions(self, order: str, offset: int, limit: int) -> list[PartitionFiles]:
        """Some of them, in order of "name", or by most "files", "size" or "avoidable" files first."""
        places = self._order(order)[offset : offset + limit]
        return [self._partition(int(place)) for place in places]

    def find(self, name: str) -> PartitionFiles | None:
        """The partition of this name; None if it has no files."""
        return self._partition(self._names.index(name)) if name in self._names else None

    def _order(self, order: str) -> Integers:
        keys = {"files": self._figures[:, _FILES], "size": self._figures[:, _BYTES], "avoidable": self._avoidable}
        by_name = np.array(sorted(range(len(self._names)), key=self._names.__getitem__), np.int64)
        if order not in keys:
            return by_name
        return by_name[np.argsort(-keys[order][by_name], kind="stable")]

    def _partition(self, place: int) -> PartitionFiles:
        row = [int(one) for one in self._figures[place]]
        return PartitionFiles(
            self._names[place], row[_FILES], row[_ROWS], row[_BYTES], row[_DELTAS], row[_SMALL],
            int(self._avoidable[place]), tuple(row[_SIZES:]),
        )  # fmt: skip


def summarize(snapshot: Snapshot, target_bytes: int) -> FileSummary:
    """The files of a snapshot. ``target_bytes``: how large files of the table should be."""
    places: dict[str, int] = {}
    rows: list[Integers] = []
    for part in snapshot.parts:
        codes, names = part.partition_codes
        live = part.live_mask()
        codes = codes[live]
        sizes = part.column("size_bytes").to_numpy()[live]
        row_counts = part.column("row_count").to_numpy()[live]
        deltas = part.column("kind").to_numpy()[live] == types_pb2.DELTA
        small = (sizes * SMALL_SHARE < target_bytes) & ~deltas
        figures = np.zeros((len(names), _COLUMNS), np.int64)

        figures[:, _FILES] = np.bincount(codes, minlength=len(names))
        figures[:, _ROWS], figures[:, _BYTES] = _sums(codes, row_counts, names), _sums(codes, sizes, names)
        figures[:, _DELTAS], figures[:, _SMALL] = _sums(codes, deltas, names), _sums(codes, small, names)
        figures[:, _SMALL_BYTES] = _sums(codes, sizes * small, names)
        classes = codes * len(CLASSES) + np.digitize(sizes, EDGES_BYTES)
        figures[:, _SIZES:] = np.bincount(classes, minlength=len(names) * len(CLASSES)).reshape(len(names), -1)
        for name, row in zip(names, figures, strict=True):
            if row[_FILES]:
                place = places.setdefault(name, len(rows))
                if place == len(rows):
                    rows.append(row)
                else:
                    rows[place] = rows[place] + row
    figures = np.array(rows, np.int64).reshape(len(rows), _COLUMNS)
    return FileSummary(list(places), figures, target_bytes)


def _sums(codes: npt.NDArray[np.int32], values: npt.NDArray[Any], names: Sequence[str]) -> Integers:
    """The sum of the values with each code; exact up to 2^53."""
    return np.bincount(codes, values.astype(np.float64), len(names)).astype(np.int64)
