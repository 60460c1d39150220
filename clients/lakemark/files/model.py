"""One data file and what is known of the values in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from lakemark.arguments import Count, Number64
from lakemark_core.bucket_tree import FileGroups
from lakemark_core.errors import InvalidFile
from lakemark_core.types import ColumnValue

FileKind: TypeAlias = Literal["base", "delta"]
KIND_NUMBERS: Final[Mapping[str, int]] = {"base": 1, "delta": 2}
"""As messages and columns have them."""


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Bounds and counts of one column in one file; None is unknown.

    ``min`` and ``max`` bound the values that are neither null nor NaN. A truncated bound need not occur in the file.
    """

    column_id: Count
    min: ColumnValue = None
    max: ColumnValue = None
    null_count: Number64 | None = None
    nan_count: Number64 | None = None
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
    size_bytes: Number64
    row_count: Number64
    partition: tuple[ColumnValue, ...] = ()
    statistics: tuple[ColumnStatistics, ...] = ()
    file_group: str = ""
    kind: FileKind = "base"
    format: str = "parquet"
    base_instant: Number64 = 0
    bucket: Count | None = None
    added_version: int = 0
    matches_entirely: bool = False
    schema_id: int = 0
    removed_version: int = 0

    @property
    def keeps_deletes(self) -> bool:
        """Whether a compaction wrote it: deletes, for changes that come later, which its base file has seen already."""
        return self.kind == "delta" and self.path.partition("/")[0] == str(self.base_instant)


def without_settled_deletes(files: Sequence[DataFile]) -> list[DataFile]:
    """``files`` without those that keep deletes in file groups where no other delta lies: these change no row there."""
    changed = groups_of(file for file in files if file.kind == "delta" and not file.keeps_deletes)
    return [file for file in files if not file.keeps_deletes or changed.touch(file.partition, file.file_group)]


def groups_of(files: Iterable[DataFile]) -> FileGroups[tuple[ColumnValue, ...]]:
    """The file groups of these files, by partition."""
    return FileGroups((file.partition, file.file_group) for file in files)


def kind_number(file: DataFile) -> int:
    """The number of the file's kind in messages. Raises InvalidFile for an unknown kind."""
    try:
        return KIND_NUMBERS[file.kind]
    except (KeyError, TypeError):
        raise InvalidFile(f"file {file.path!r}: kind {file.kind!r} is neither 'base' nor 'delta'") from None
