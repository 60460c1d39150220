"""A snapshot: the live files of one version, folded from what each version changed.

Versions are folded in order: each removes the files that it replaced and adds its own entries. Adding never touches
earlier parts and replacing makes new masks, so older snapshots stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from lakemark_core.types import Schema
from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_server.file_index.arrow import AnyArray, take, texts
from lakemark_server.file_index.at_hand import may_make
from lakemark_server.file_index.partition_buckets import PartitionBuckets
from lakemark_server.file_index.parts.evolution import in_schema
from lakemark_server.file_index.parts.locate import difference, locate, without_paths
from lakemark_server.file_index.parts.part import Part, appended, concat

T = TypeVar("T")


class Origin(NamedTuple):
    """The version of a base where folding began; without a base it began with nothing.

    The origin determines the order of a snapshot's files.
    """

    base_id: int = 0
    version: int = 0


NOWHERE: Final = Origin()


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The files of one version. ``record`` is None for version 0, which has no files."""

    version: int
    schema: Schema
    parts: tuple[Part, ...] = ()
    record: VersionRecord | None = None
    origin: Origin = NOWHERE

    @cached_property
    def files(self) -> int:
        """How many files are alive."""
        return sum(part.files for part in self.parts)

    @cached_property
    def rows(self) -> int:
        """How many rows the live files have."""
        return sum(part.total("row_count") for part in self.parts)

    @cached_property
    def size_bytes(self) -> int:
        """How many bytes the live files have."""
        return sum(part.total("size_bytes") for part in self.parts)

    def pieces(self) -> Iterator[tuple[object, int]]:
        """The objects in memory that make up the snapshot, with their bytes. Versions share most of them."""
        yield self, 2_000 + 200 * len(self.parts)
        for part in self.parts:
            yield part, part.own_bytes
            yield part.entries, part.entries.memory_bytes

    def derived(self, kind: type[T], make: Callable[[], T]) -> T:
        """The one small thing of this class that is made from the snapshot, which never changes; made once.

        Raises NotAtHand if it has to be made, and may not be.
        """
        kept = self._derived.get(kind)
        if not isinstance(kept, kind):
            may_make()
            kept = self._derived[kind] = make()
        return kept

    @cached_property
    def _derived(self) -> dict[type, object]:
        return {}

    def sharing_keys(self, buckets: PartitionBuckets) -> Iterator[tuple[str, int, str]]:
        """Partition, bucket and path of each live base file that shares keys with one of the buckets.

        Costs some microseconds for each part; no text is looked at but those of the files that are told.
        """
        for part in self.parts:
            places, numbers = part.bases_of_buckets()
            codes, names = part.partition_codes
            shared = buckets.sharing(codes[places], names, numbers)
            places, numbers = places[shared], numbers[shared]
            if len(places):
                partitions = [names[code] for code in codes[places].tolist()]
                paths = texts(take(part.column("path"), places))
                yield from zip(partitions, numbers.tolist(), paths, strict=True)

    def entries(self) -> pa.RecordBatch:
        """All live entries in one batch, with the statistics of this version's columns."""
        ids: frozenset[int] = frozenset().union(*(part.entries.statistics_ids for part in self.parts))
        pieces = [in_schema(part, part.live_places, self.schema, ids) for part in self.parts]
        return concat(pieces, self.schema)


@dataclass(frozen=True, eq=False)
class VersionEdit:
    """What one version does to the version before it. The steps apply in the order of these fields."""

    version: int  # files that a restore brings back count as added by it
    everything: bool = False  # removes all files
    partitions: frozenset[str] = frozenset()  # removes all files of these partitions
    removed: AnyArray | None = None  # removes the files with these paths
    added: tuple[Part, ...] = ()
    restored: Snapshot | None = None  # makes the content that of this snapshot
    unless_live: bool = False  # adds only files that are not alive already


def empty(schema: Schema) -> Snapshot:
    """The snapshot of version 0."""
    return Snapshot(0, schema)


def fold(base: Snapshot, edits: Sequence[VersionEdit], record: VersionRecord, schema: Schema) -> Snapshot:
    """``base`` with the edits applied in order: the snapshot of the version with this record and this schema."""
    parts = list(base.parts)
    pending: list[Part] = []
    for edit in edits:
        if _takes_away(edit):
            parts, pending = appended(parts, pending), []
            parts = _taken(parts, edit)
        added = edit.added
        if edit.restored is not None:
            back = restoring(parts, edit.restored.parts, edit.version)
            parts, added = _taken(parts, back), (*back.added, *added)
        if edit.unless_live:
            parts, pending = appended(parts, pending), []
            added = tuple(difference(added, parts))
        pending += added
    return Snapshot(record.version, schema, tuple(appended(parts, pending)), record, base.origin)


def applied(parts: Sequence[Part], edit: VersionEdit) -> list[Part]:
    """Like ``fold`` with one edit, but never merges parts."""
    left = _taken(list(parts), edit)
    added = edit.added
    if edit.restored is not None:
        back = restoring(left, edit.restored.parts, edit.version)
        left, added = _taken(left, back), (*back.added, *added)
    return [*left, *(difference(added, left) if edit.unless_live else added)]


def gone_by_name(parts: Sequence[Part], edits: Sequence[VersionEdit]) -> list[Part]:
    """The files that these edits remove from ``parts`` or from what they added themselves.

    The edits must remove files by their paths only.
    """
    removed = [edit.removed for edit in edits if edit.removed is not None]
    if not removed:
        return []
    candidates = [*parts, *(part for edit in edits for part in edit.added)]
    return [
        part
        for located in locate(candidates, pa.concat_arrays(removed))
        if (part := candidates[located.part].only(located.places))
    ]


def restoring(now: Sequence[Part], target: Sequence[Part], version: int) -> VersionEdit:
    """The edit that turns ``now`` into ``target``.

    Files in both stay as they are; those that come back count as added.
    """
    gone = [take(part.column("path"), np.flatnonzero(part.live_mask())) for part in difference(now, target)]
    back = tuple(part.added_by(version) for part in difference(target, now))
    return VersionEdit(version, removed=pa.concat_arrays(gone) if gone else None, added=back)


def _takes_away(edit: VersionEdit) -> bool:
    return bool(edit.everything or edit.partitions or edit.removed is not None or edit.restored is not None)


def _taken(parts: list[Part], edit: VersionEdit) -> list[Part]:
    if edit.everything:
        return []
    if edit.partitions:
        parts = [left for part in parts if (left := part.without(edit.partitions)) is not None]
    return parts if edit.removed is None else without_paths(parts, edit.removed)
