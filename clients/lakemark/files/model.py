"""One data file and what is known of the values in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from lakemark.convert import ColumnValue

FileKind: TypeAlias = Literal["base", "delta"]


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Bounds and counts of one column in one file; None is unknown.

    ``min`` and ``max`` bound the values that are neither null nor NaN. A truncated bound need not occur in the file.
    """

    column_id: int
    min: ColumnValue = None
    max: ColumnValue = None
    null_count: int | None = None
    nan_count: int | None = None
    min_truncated: bool = False
    max_truncated: bool = False


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file, which is alone in its directory.

    ``path`` is relative to the table's location: ``<instant>/[<partition path>/]<file group>/<file>``. ``partition``
    has one value for each partition column, in the schema's order. ``file_group`` "" means the name of the directory.
    ``added_version`` and ``matches_entirely`` are answers of a plan: the version that added the file, and whether all
    of its rows satisfy the plan's predicate; so is ``schema_id``, the schema that the file was written with.
    ``removed_version`` is told of replaced files only.
    """

    path: str
    size_bytes: int
    row_count: int
    partition: tuple[ColumnValue, ...] = ()
    statistics: tuple[ColumnStatistics, ...] = ()
    file_group: str = ""
    kind: FileKind = "base"
    format: str = "parquet"
    base_instant: int = 0
    bucket: int | None = None
    added_version: int = 0
    matches_entirely: bool = False
    schema_id: int = 0
    removed_version: int = 0
