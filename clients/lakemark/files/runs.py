"""Which files a run of maintenance takes: what is small is merged, and a run is bounded. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakemark.files.model import DataFile, without_settled_deletes
from lakemark_core.optimization import files_to_merge
from lakemark_core.types import ColumnValue


@dataclass(frozen=True, slots=True)
class RunLimits:
    """``small_bytes``: larger files are not merged. ``bytes_max``: what a run on a partition reads at most."""

    small_bytes: int
    bytes_max: int

    def fragments(self, files: Iterable[DataFile]) -> list[DataFile]:
        """The files that are merged: by partition those that ``files_to_merge`` takes."""
        small: dict[tuple[ColumnValue, ...], list[DataFile]] = {}
        for file in files:
            if file.size_bytes < self.small_bytes:
                small.setdefault(file.partition, []).append(file)
        taken: list[DataFile] = []
        for members in small.values():
            members.sort(key=lambda one: (one.size_bytes, one.path))
            taken += members[: files_to_merge((one.size_bytes for one in members), self.bytes_max)]
        return taken

    def groups(self, files: Sequence[DataFile]) -> list[DataFile]:
        """The files of file groups that are compacted: those with most deltas first, at least one group."""
        groups: dict[tuple[tuple[ColumnValue, ...], str], list[DataFile]] = {}
        for file in files:
            groups.setdefault((file.partition, file.file_group), []).append(file)
        taken: list[DataFile] = []
        total = 0
        for members in sorted(groups.values(), key=lambda some: (-_deltas(some), some[0].path)):
            size = sum(file.size_bytes for file in members)
            if taken and total + size > self.bytes_max:
                break
            taken += members
            total += size
        return taken


def _deltas(files: Sequence[DataFile]) -> int:
    return sum(file.kind == "delta" and not file.keeps_deletes for file in files)


def bins_of(files: Iterable[DataFile], target_bytes: int) -> list[list[DataFile]]:
    """Files of one partition that together have at most ``target_bytes``, two or more in each list.

    Only files below half of it are looked at: then all lists but the last of a partition reach that half, and what
    was merged once is not merged again and again.
    """
    small: dict[tuple[ColumnValue, ...], list[DataFile]] = {}
    for file in files:
        if 2 * file.size_bytes < target_bytes:
            small.setdefault(file.partition, []).append(file)
    bins: list[list[DataFile]] = []
    for members in small.values():
        size = 0
        current: list[DataFile] = []
        # In the order of their age: neighbours in time often have neighbouring values, which keeps bounds close.
        for file in sorted(members, key=lambda one: (one.added_version, one.path)):
            if current and size + file.size_bytes > target_bytes:
                bins.append(current)
                size, current = 0, []
            size += file.size_bytes
            current.append(file)
        bins.append(current)
    return [one for one in bins if len(one) > 1]


def without_deltas(files: Sequence[DataFile]) -> list[DataFile]:
    """The files of groups without deltas. Others stay as they are: only their own engine knows how to merge them."""
    files = without_settled_deletes(files)
    changed = {(file.partition, file.file_group) for file in files if file.kind == "delta"}
    return [file for file in files if (file.partition, file.file_group) not in changed]
