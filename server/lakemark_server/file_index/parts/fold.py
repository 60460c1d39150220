"""A snapshot: the live files of one version, folded from what each version changed.

Versions are folded in order: each takes away what it replaced and adds its own entries. Adding never touches the parts
before, replacing makes new masks; so old snapshots stay what they are.
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
from lakemark_server.file_index.arrow import AnyArray, take
from lakemark_server.file_index.at_hand import may_make
from lakemark_server.file_index.parts.evolution import in_schema
from lakemark_server.file_index.parts.locate import difference, locate, without_paths
from lakemark_server.file_index.parts.part import Part, appended, concat

T = TypeVar("T")


class Origin(NamedTuple):
    """Where folding began: a version of a base; no base: nothing. It determines the order of a snapshot's files."""

    base_id: int = 0
    version: int = 0


NOWHERE: Final = Origin()


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The files of one version. ``record`` is None for version 0, which holds nothing."""

    version: int
    schema: Schema
    parts: tuple[Part, ...] = ()
    record: VersionRecord | None = None
    origin: Origin = NOWHERE

    @cached_property
    def files(self) -> int:
        return sum(part.files for part in self.parts)

    @cached_property
    def rows(self) -> int:
        return sum(part.total("row_count") for part in self.parts)

    @cached_property
    def size_bytes(self) -> int:
        return sum(part.total("size_bytes") for part in self.parts)

    def pieces(self) -> Iterator[tuple[object, int]]:
        """What it takes in memory, by pieces that versions share."""
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

    def entries(self) -> pa.RecordBatch:
        """All live entries in one batch, with the statistics of this version's columns."""
        ids: frozenset[int] = frozenset().union(*(part.entries.statistics_ids for part in self.parts))
        pieces = [in_schema(part, part.live_places, self.schema, ids) for part in self.parts]
        return concat(pieces, self.schema)


@dataclass(frozen=True, eq=False)
class Change:
    """What one version does to the version before: the steps in the order of these fields."""

    version: int  # that what a restore brings back is added by
    everything: bool = False  # all files go
    partitions: frozenset[str] = frozenset()  # whose files go
    removed: AnyArray | None = None  # paths
    added: tuple[Part, ...] = ()
    restored: Snapshot | None = None  # the content becomes that of this one
    unless_live: bool = False  # only those added files count that are not there


def empty(schema: Schema) -> Snapshot:
    return Snapshot(0, schema)


def fold(base: Snapshot, changes: Sequence[Change], record: VersionRecord, schema: Schema) -> Snapshot:
    """``base`` with the changes applied in order: the snapshot of the version with this record and this schema."""
    parts = list(base.parts)
    pending: list[Part] = []
    for change in changes:
        if _takes_away(change):
            parts, pending = appended(parts, pending), []
            parts = _taken(parts, change)
        added = change.added
        if change.restored is not None:
            back = restoring(parts, change.restored.parts, change.version)
            parts, added = _taken(parts, back), (*back.added, *added)
        if change.unless_live:
            parts, pending = appended(parts, pending), []
            added = tuple(difference(added, parts))
        pending += added
    return Snapshot(record.version, schema, tuple(appended(parts, pending)), record, base.origin)


def applied(parts: Sequence[Part], change: Change) -> list[Part]:
    """What ``fold`` does with one change, but parts are never merged."""
    left = _taken(list(parts), change)
    added = change.added
    if change.restored is not None:
        back = restoring(left, change.restored.parts, change.version)
        left, added = _taken(left, back), (*back.added, *added)
    return [*left, *(difference(added, left) if change.unless_live else added)]


def gone_by_name(parts: Sequence[Part], changes: Sequence[Change]) -> list[Part]:
    """The files that these changes, which take out files by their paths only, take out of ``parts`` or of what they
    have added themselves."""
    removed = [change.removed for change in changes if change.removed is not None]
    if not removed:
        return []
    there = [*parts, *(part for change in changes for part in change.added)]
    return [part for one in locate(there, pa.concat_arrays(removed)) if (part := there[one.part].only(one.places))]


def restoring(now: Sequence[Part], target: Sequence[Part], version: int) -> Change:
    """What makes ``target`` of ``now``: files in both stay as they are, those that come back count as added."""
    gone = [take(part.column("path"), np.flatnonzero(part.live_mask())) for part in difference(now, target)]
    back = tuple(part.added_by(version) for part in difference(target, now))
    return Change(version, removed=pa.concat_arrays(gone) if gone else None, added=back)


def _takes_away(change: Change) -> bool:
    return bool(change.everything or change.partitions or change.removed is not None or change.restored is not None)


def _taken(parts: list[Part], change: Change) -> list[Part]:
    if change.everything:
        return []
    if change.partitions:
        parts = [kept for part in parts if (kept := part.without(change.partitions)) is not None]
    return parts if change.removed is None else without_paths(parts, change.removed)
