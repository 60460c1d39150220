"""Comparisons of two versions of a table, as plain objects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lakemark.arguments import INT64_MAX
from lakemark_core.errors import VersionNotFound
from lakemark_proto.v1 import timeline_pb2 as pb

_DIGITS_MAX = len(str(INT64_MAX))


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Net changes: a file that came and went again is in neither."""

    added_files: int
    added_rows: int
    added_bytes: int
    removed_files: int
    removed_rows: int
    removed_bytes: int


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: ``versions`` that the other side lacks, and what they change.

    ``shared_version``: the last version leading to ``version`` that the other side contains as a whole.
    """

    branch: str
    version: int
    shared_version: int
    versions: int
    changes: FileChanges


@dataclass(frozen=True, slots=True)
class DryMerge:
    """What a merge would do: replay so many versions, or nothing.

    ``refused``: why it would be refused; "" if it would not.
    """

    replayed: int
    fast_forward: bool
    refused: str
    details: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PartitionChanges:
    """The changes in one partition. ``groups_on_both``: how many file groups both sides changed."""

    name: str
    left: FileChanges
    right: FileChanges
    groups_on_both: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two versions of a table beside each other.

    ``partitions``: of all ``partitions_changed``, those with the most changed files. ``groups``: (partition, file
    group) of the first of the ``groups_on_both`` that both sides changed.
    """

    left: Side
    right: Side
    left_into_right: DryMerge
    right_into_left: DryMerge
    partitions_changed: int
    partitions: tuple[PartitionChanges, ...]
    groups_on_both: int
    groups: tuple[tuple[str, str], ...]


def version_name(text: str) -> pb.VersionName:
    """The version in ``dev``, ``dev@v5``, ``v5`` (of main), or a tag's name; "" is main.

    Raises VersionNotFound if the number is too large.
    """
    match = re.fullmatch(r"(?:(.*)@)?v0*([0-9]+)", text)
    if match is None:
        return pb.VersionName(name=text)
    name, digits = match[1] or "", match[2]
    if len(digits) > _DIGITS_MAX or int(digits) > INT64_MAX:
        raise VersionNotFound(f"there is no version {digits[:40]}: versions are numbers up to 2^63-1", version=digits)
    return pb.VersionName(name=name, version=int(digits))


def comparison_from(first: pb.CompareVersionsResponse, partitions: list[PartitionChanges]) -> Comparison:
    """A comparison from its first page and the partitions of all pages."""
    return Comparison(
        left=_side(first.left),
        right=_side(first.right),
        left_into_right=_merge(first.left_into_right),
        right_into_left=_merge(first.right_into_left),
        partitions_changed=first.partitions_changed,
        partitions=tuple(partitions),
        groups_on_both=first.groups_on_both,
        groups=tuple((group.partition, group.file_group) for group in first.groups),
    )


def partition_from(message: pb.CompareVersionsResponse.Partition) -> PartitionChanges:
    """The changes in one partition, from a message."""
    return PartitionChanges(message.name, _changes(message.left), _changes(message.right), message.groups_on_both)


def _side(message: pb.CompareVersionsResponse.Side) -> Side:
    return Side(message.branch, message.version, message.shared_version, message.versions, _changes(message.changes))


def _merge(message: pb.CompareVersionsResponse.Merge) -> DryMerge:
    refused = message.refused
    return DryMerge(message.replayed, message.fast_forward, refused.message, dict(refused.details))


def _changes(message: pb.FileChanges) -> FileChanges:
    return FileChanges(
        message.added_files,
        message.added_rows,
        message.added_bytes,
        message.removed_files,
        message.removed_rows,
        message.removed_bytes,
    )
