"""The table of the ``plan`` and ``commit`` benchmarks: entries of files that do not exist, the same for every system.

Each file holds 1,000 ids, and files with consecutive ids share a partition. The table grows in 100 appends of the same
size. *Clustered* appends fill one partition after another, as days do. *Scattered* appends write to all partitions each
time, as buckets and regions do. Imports only NumPy and Arrow, because peers use it from an environment of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

APPENDS: Final = 100
FILE_ROWS: Final = 1_000
PARTITION_COLUMN: Final = "p"
# Name and type of the columns with statistics; ids are their positions, from 1. The partition column follows them.
COLUMNS: Final = (("id", "bigint"), ("at", "timestamp"), ("amount", "double"), ("code", "int"), ("name", "string"))
SELECTED_FILES: Final = 50
UNCLUSTERED: Final = "code = 123456 AND amount > 900"
_HOUR_US: Final = 3_600_000_000


@dataclass(frozen=True)
class Selection:
    """``p = partition AND id >= low AND id < high``: at most SELECTED_FILES files of one partition."""

    partition: int
    low: int
    high: int

    @property
    def sql(self) -> str:
        return self.moved_sql(0)

    def moved_sql(self, ids: int) -> str:
        """The same selection with ids that are greater by ``ids``: nearly the same files, but another plan."""
        return f"{PARTITION_COLUMN} = {self.partition} AND id >= {self.low + ids} AND id < {self.high + ids}"


def other_unclustered(number: int) -> str:
    """A plan like UNCLUSTERED, but a different one for each number from 1 to 1,000."""
    return f"code = {123_456 + 719 * number} AND amount > {900 + number / 1_000}"


@dataclass(frozen=True)
class Dataset:
    """``files`` must be a multiple of ``partitions`` and of APPENDS."""

    files: int
    partitions: int
    scattered: bool = False

    def __post_init__(self) -> None:
        if self.files % self.partitions or self.files % APPENDS:
            raise ValueError(f"{self.files} files are not a multiple of {self.partitions} partitions and of {APPENDS}")

    @property
    def layout(self) -> str:
        return "scattered" if self.scattered else "clustered"

    @property
    def partition_files(self) -> int:
        return self.files // self.partitions

    @property
    def selection(self) -> Selection:
        partition = self.partitions // 2
        low = partition * self.partition_files * FILE_ROWS
        return Selection(partition, low, low + self.selected_files * FILE_ROWS)

    @property
    def selected_files(self) -> int:
        """How many files ``selection`` needs."""
        return min(SELECTED_FILES, self.partition_files)

    def append(self, number: int) -> pa.Table:
        """The files of append ``number`` (from 0), as ``entries`` gives them."""
        count = self.files // APPENDS
        places = np.arange(number * count, (number + 1) * count)
        if self.scattered:
            places = places % self.partitions * self.partition_files + places // self.partitions
        return entries(places, places // self.partition_files, seed=number)

    def later(self, number: int, count: int) -> pa.Table:
        """``count`` files for append ``number`` (from 0) after the table is complete, each in another partition."""
        places = self.files + number * count + np.arange(count)
        return entries(places, places % self.partitions, seed=APPENDS + number)


def entries(places: np.ndarray, partitions: np.ndarray, seed: int) -> pa.Table:
    """One row for each file: ``path`` below the table, ``size_bytes``, ``row_count``, ``p``, ``min.N`` and ``max.N``.

    N are the columns. ``places`` are positions in the order of ids; the other columns are random.
    """
    count = len(places)
    random = np.random.default_rng(seed)
    groups = [f"{a:016x}{b:016x}" for a, b in random.integers(0, 1 << 62, (count, 2)).tolist()]
    low = random.uniform(0, 900, count)
    codes = random.integers(0, 1_000_000, count).astype(np.int32)
    paths = [
        f"{PARTITION_COLUMN}={p}/{group}/part-00000.snappy.parquet"
        for p, group in zip(partitions.tolist(), groups, strict=True)
    ]
    return pa.table(
        {
            "path": paths,
            "size_bytes": random.integers(1 << 20, 1 << 28, count),
            "row_count": np.full(count, FILE_ROWS),
            "p": partitions.astype(np.int32),
            "min.1": places * FILE_ROWS,
            "max.1": places * FILE_ROWS + FILE_ROWS - 1,
            "min.2": pa.array(places * _HOUR_US, pa.timestamp("us", "UTC")),
            "max.2": pa.array((places + 1) * _HOUR_US, pa.timestamp("us", "UTC")),
            "min.3": low,
            "max.3": low + random.uniform(0, 100, count),
            "min.4": codes,
            "max.4": codes + 200,
            "min.5": [group[:8] for group in groups],
            "max.5": [f"{group[:7]}g" for group in groups],
        }
    )
