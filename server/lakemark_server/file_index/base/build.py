"""Builds a base from the base before it and the versions since.

A base keeps every file that it has ever known, with the versions that added and removed it. So it serves all versions
up to its own, like a multi-version B-tree (Becker et al. 1996).

Pages are runs sorted by partition; within a partition files stay in the order of commits. New entries make a new run.
It absorbs earlier runs that are at most twice its size, so each entry is rewritten O(log n) times (log-structured merge
trees, O'Neil et al. 1996). Removed files have runs of their own, which the latest version never reads. Blocks of large
commits stay where they are if they hold few partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Final

import numpy as np
import pyarrow as pa

from lakemark_core.types import Schema, is_nested
from lakemark_proto.store.v1.store_pb2 import BaseIndex, BasePart, BaseZones, PageReference
from lakemark_server.file_index.arrow import take_rows
from lakemark_server.file_index.base.read import ALIVE, Base
from lakemark_server.file_index.pages.blocks import encode_pages, page_of
from lakemark_server.file_index.pages.contents import (
    ADDED_VERSION,
    REMOVED_VERSION,
    FileEntries,
    Integers,
    Mask,
    PageRef,
    StoredEntries,
)
from lakemark_server.file_index.pages.numbers import encode_integers
from lakemark_server.file_index.pages.zone_table import TOTALS, Row, encode_zones
from lakemark_server.file_index.parts.fold import VersionEdit, applied
from lakemark_server.file_index.parts.part import PART_FILES_MAX, Part, concat, in_memory
from lakemark_server.file_index.pruning.statistics import partition_values_by_name
from lakemark_server.file_index.pruning.zones import column_zone, partition_zone

# The largest run. It bounds the memory of a fold to about 200 MB.
RUN_FILES_MAX: Final = 1 << 17
# A block stays in place if it has at least this many files for each of its partitions on average.
FILES_OF_PARTITION_MIN: Final = 64
# A part with a smaller share of live entries is rewritten.
LIVE_SHARE_MIN: Final = 0.5
_SMALL_PARTS_MAX: Final = 500


@dataclass(eq=False)
class Tracked:
    """Entries with the version that removed each.

    ``removed`` is ALIVE for live entries, and 0 for entries that were never part of the branch. ``known`` is the part
    as the previous index has it. ``shared``: the pages belong to a base that is sure to stay.
    """

    entries: FileEntries
    removed: Integers
    run: int = -1  # files of its run; 0: blocks in place; -1: not in a base yet
    known: BasePart | None = None
    zones: Row | None = None
    shared: bool = False

    @property
    def dead(self) -> bool:
        return self.known is not None and self.known.dead

    @property
    def live_share(self) -> float:
        return float(np.count_nonzero(self.removed == ALIVE)) / max(1, self.entries.size)


@dataclass(frozen=True, slots=True)
class Past:
    """Which versions can no longer be read: all up to ``ended`` except the ``pinned`` ones, which are in order."""

    ended: int = 0
    pinned: tuple[int, ...] = ()

    def over(self, added: Integers, removed: Integers) -> Mask:
        """Which of these dead entries are in no version that can still be read."""
        pinned = np.array([*self.pinned, ALIVE], np.int64)
        return (removed <= self.ended + 1) & (pinned[np.searchsorted(pinned, added)] >= removed)

    def is_over(self, part: BasePart) -> bool:
        """Whether a part holds only dead entries that are in no readable version. May be False for some that are."""
        return part.dead and bool(self.over(np.array([part.added_min]), np.array([part.removed_max]))[0])


NOTHING_ENDED: Final = Past()


class Builder:
    """One build: call ``apply`` for each version in order, then ``finish``."""

    def __init__(self, before: Base | None, start: Sequence[Part], past: Past = NOTHING_ENDED) -> None:
        """``start`` is the content to begin with if there is no base before. ``past`` says which versions need not be
        kept."""
        self._past = past
        self._tracked: dict[int, Tracked] = {}
        self._live: list[Part] = []
        for stored in before.parts if before else ():
            if past.is_over(stored.known):
                continue
            removed = stored.removed()
            if removed is None:
                removed = np.full(stored.entries.size, ALIVE, np.int64)
            known = stored.known
            zones = stored.entries.zone_row()
            self._track(Tracked(stored.entries, removed, known.run, known, zones))
            part = Part(stored.entries).masked(removed == ALIVE)
            if part is not None:
                self._live.append(part)
        for part in start:
            self._track(Tracked(part.entries, _since_now(part), shared=True))
            self._live.append(part)

    @property
    def live_files(self) -> int:
        """How many files are alive after the versions applied so far."""
        return sum(part.files for part in self._live)

    def apply(self, version: int, changes: Iterable[VersionEdit]) -> None:
        """Applies what a version did. Entries that it removed are kept as dead ones."""
        for change in changes:
            before = self._live
            self._live = applied(before, change)
            kept = len(before)
            # An append leaves the parts before it as they are: there is no need to compare them one by one.
            if len(self._live) < kept or not all(map(is_, before, self._live)):
                kept = 0
                self._note_removed(version, before)
            for part in self._live[kept:]:
                if id(part.entries) not in self._tracked:
                    # Its dead entries came from elsewhere and were never part of this branch.
                    self._track(Tracked(part.entries, _since_now(part)))
        if len(self._tracked) > _SMALL_PARTS_MAX:
            self._compact()

    def _note_removed(self, version: int, before: Sequence[Part]) -> None:
        after = {id(part.entries): part for part in self._live}
        for part in before:
            twin = after.get(id(part.entries))
            if twin is not part:
                gone = part.live_mask() if twin is None else part.live_mask() & ~twin.live_mask()
                self._tracked[id(part.entries)].removed[gone] = version

    def _track(self, tracked: Tracked) -> None:
        self._tracked[id(tracked.entries)] = tracked

    def _compact(self) -> None:
        """Joins small parts in memory, dead entries included."""
        small = [tracked for tracked in self._tracked.values() if not isinstance(tracked.entries, StoredEntries)]
        gone = {id(tracked.entries) for tracked in small}
        self._live = [part for part in self._live if id(part.entries) not in gone]
        for group in _by_schema(small):
            schema = group[0].entries.schema
            joined = in_memory(concat([tracked.entries.batch() for tracked in group], schema), schema)
            removed = np.concatenate([tracked.removed for tracked in group])
            for tracked in group:
                del self._tracked[id(tracked.entries)]
            self._track(Tracked(joined.entries, removed))
            part = joined.masked(removed == ALIVE)
            if part is not None:
                self._live.append(part)

    def finish(
        self, branch_key: str, version: int, base_id: int, write: Callable[[int, Sequence[bytes]], None]
    ) -> BaseIndex:
        """The index of the new base.

        ``write`` gets the number of the first page and consecutive pages, and stores them under the base's id.
        """
        kept, loose = self._divided()
        writer = _Writer(base_id, write)
        index = BaseIndex(version=version, branch_key=branch_key)
        zones: dict[int, list[Row]] = {}
        schemas: dict[int, Schema] = {}
        for tracked in kept:
            schema = tracked.entries.schema
            index.parts.append(_kept_part(tracked))
            zones.setdefault(schema.schema_id, []).append(tracked.zones or _zone_row(tracked.entries))
            schemas[schema.schema_id] = schema
        for alike in _by_schema(loose):
            schema = alike[0].entries.schema
            schemas[schema.schema_id] = schema
            for group in _bounded(alike):
                for dead in (False, True):
                    for part, row in writer.run(group, schema, self._past if dead else None):
                        index.parts.append(part)
                        zones.setdefault(schema.schema_id, []).append(row)
        for schema_id, rows in zones.items():
            index.zones.append(BaseZones(schema_id=schema_id, arrow=encode_zones(rows, schemas[schema_id])))
        return index

    def _divided(self) -> tuple[list[Tracked], list[Tracked]]:
        """The parts that stay as they are, and those that are written anew."""
        kept: list[Tracked] = []
        loose: list[Tracked] = []
        for tracked in _in_place_together(self._tracked.values()):
            (loose if _is_loose(tracked) else kept).append(tracked)
        for dead in (False, True):
            kept, loose = _merged_runs(kept, loose, dead=dead)
        return kept, loose


def _since_now(part: Part) -> Integers:
    return np.where(part.live_mask(), np.int64(ALIVE), np.int64(0))


def _is_loose(tracked: Tracked) -> bool:
    if tracked.run < 0:
        return not _well_clustered(tracked)
    return not tracked.dead and tracked.live_share < LIVE_SHARE_MIN


def _well_clustered(tracked: Tracked) -> bool:
    """Whether stored entries that are not in a base yet can stay where they are."""
    if not isinstance(tracked.entries, StoredEntries) or tracked.live_share < LIVE_SHARE_MIN:
        return False
    if not tracked.shared and not all(page.block for page in tracked.entries.pages):
        return False  # pages of a base that may be swept
    _, names = tracked.entries.partition_codes
    return len(names) == 1 or tracked.entries.size >= FILES_OF_PARTITION_MIN * len(names)


def _merged_runs(kept: list[Tracked], loose: list[Tracked], *, dead: bool) -> tuple[list[Tracked], list[Tracked]]:
    """Moves runs that are not much larger than what is written anew from ``kept`` to ``loose``."""
    fresh = sum(int(np.count_nonzero((tracked.removed != ALIVE) == dead)) for tracked in loose)
    runs = sorted({tracked.run for tracked in kept if tracked.run > 0 and tracked.dead == dead})
    joined: set[int] = set()
    for run in runs:
        if not fresh or run > 2 * fresh or run + fresh > RUN_FILES_MAX:
            break
        joined.add(run)
        fresh += sum(tracked.entries.size for tracked in kept if tracked.run == run and tracked.dead == dead)
    moving = [tracked for tracked in kept if tracked.run in joined and tracked.dead == dead]
    staying = [tracked for tracked in kept if tracked.run not in joined or tracked.dead != dead]
    return staying, [*moving, *loose]


def _in_place_together(candidates: Iterable[Tracked]) -> Iterator[Tracked]:
    """Groups consecutive blocks of commits into parts of full size, where none of their files was removed."""
    group: list[StoredEntries] = []
    for tracked in candidates:
        entries = tracked.entries
        fits = tracked.run < 0 and bool((tracked.removed == ALIVE).all()) and _well_clustered(tracked)
        if group and not (fits and group[0].schema.schema_id == entries.schema.schema_id):
            yield from _cut_anew(group)
            group = []
        if fits and isinstance(entries, StoredEntries):
            group.append(entries)
        else:
            yield tracked
    if group:
        yield from _cut_anew(group)


def _cut_anew(group: Sequence[StoredEntries]) -> Iterator[Tracked]:
    pages: list[PageRef] = []
    for page in (page for entries in group for page in entries.pages):
        if pages and sum(other.entries for other in pages) + page.entries > PART_FILES_MAX:
            yield _fresh(group[0].with_pages(pages))
            pages = []
        pages.append(page)
    yield _fresh(group[0].with_pages(pages))


def _fresh(entries: StoredEntries) -> Tracked:
    return Tracked(entries, np.full(entries.size, ALIVE, np.int64))


def _by_schema(candidates: Sequence[Tracked]) -> list[list[Tracked]]:
    groups: dict[int, list[Tracked]] = {}
    for tracked in candidates:
        groups.setdefault(tracked.entries.schema.schema_id, []).append(tracked)
    return list(groups.values())


def _bounded(candidates: Sequence[Tracked]) -> Iterator[list[Tracked]]:
    """Splits entries into groups that each make one run."""
    group: list[Tracked] = []
    files = 0
    for tracked in candidates:
        if group and files + tracked.entries.size > RUN_FILES_MAX:
            yield group
            group, files = [], 0
        group.append(tracked)
        files += tracked.entries.size
    if group:
        yield group


class _Writer:
    """Cuts entries into pages and parts, and numbers the pages."""

    def __init__(self, base_id: int, write: Callable[[int, Sequence[bytes]], None]) -> None:
        self._base_id = base_id
        self._write = write
        self._next = 0

    def run(self, loose: Sequence[Tracked], schema: Schema, past: Past | None) -> Iterable[tuple[BasePart, Row]]:
        """Writes one sorted run.

        Without ``past`` it holds the live entries, else the dead ones that a readable version still has.
        """
        pieces, dead = [], past is not None
        for tracked in loose:
            wanted = tracked.removed == ALIVE
            if past is not None:
                added = np.asarray(tracked.entries.column(ADDED_VERSION.name, keep=False).to_numpy(), np.int64)
                wanted = ~wanted & (tracked.removed > 0) & ~past.over(added, tracked.removed)
            if not wanted.any():
                continue
            batch = tracked.entries.batch()
            removed = pa.array(tracked.removed)
            pieces.append((batch.filter(pa.array(wanted)), removed.filter(pa.array(wanted))))
        if not pieces:
            return
        batch = concat([piece for piece, _ in pieces], schema)
        if dead:
            removed_all = pa.concat_arrays([removed for _, removed in pieces])
            batch = batch.append_column(REMOVED_VERSION, removed_all)
        batch = take_rows(batch, _order(batch, schema))
        for start in range(0, batch.num_rows, PART_FILES_MAX):
            yield self._part(batch.slice(start, PART_FILES_MAX), schema, batch.num_rows, dead=dead)

    def _part(self, batch: pa.RecordBatch, schema: Schema, run: int, *, dead: bool) -> tuple[BasePart, Row]:
        pages = encode_pages(batch)
        self._write(self._next, pages)
        entries = in_memory(batch, schema).entries
        part = _describe(entries, run, dead=dead)
        for page in pages:
            decoded = page_of(page)
            count = decoded.entries if decoded else 0
            part.pages.append(PageReference(owner=self._base_id, number=self._next, entries=count))
            self._next += 1
        if dead:
            removed = batch.column(REMOVED_VERSION.name).to_numpy()
            part.removed_min, part.removed_max = int(removed.min()), int(removed.max())
        return part, _zone_row(entries)


def _order(batch: pa.RecordBatch, schema: Schema) -> Integers:
    """The order by the values of the partition columns; within a partition entries keep their order."""
    entries = in_memory(batch, schema).entries
    codes, names = entries.partition_codes
    if len(names) == 1:
        return np.arange(batch.num_rows)
    columns = {str(field.id): partition_values_by_name(names, field, schema) for field in schema.partition_fields}
    table = pa.table(columns).append_column("name", pa.array(names))
    order = np.asarray(table.sort_by([(name, "ascending") for name in table.column_names]).column("name").to_pylist())
    ranks = {name: rank for rank, name in enumerate(order.tolist())}
    by_code = np.array([ranks[name] for name in names], np.int64)
    return np.argsort(by_code[codes], kind="stable")


def _describe(entries: FileEntries, run: int, *, dead: bool = False) -> BasePart:
    added = entries.column(ADDED_VERSION.name).to_numpy()
    low, high = entries.instant_range
    return BasePart(
        schema_id=entries.schema.schema_id,
        run=run,
        dead=dead,
        added_min=int(added.min()),
        added_max=int(added.max()),
        instant_min=low,
        instant_max=high,
        has_deltas=entries.has_deltas,
        statistics_ids=sorted(entries.statistics_ids),
    )


def _kept_part(tracked: Tracked) -> BasePart:
    """A part that stays where it is, with the entries that were removed since."""
    if not isinstance(tracked.entries, StoredEntries):
        raise TypeError("only stored entries can stay as they are")
    part = BasePart()
    if tracked.known is not None:
        part.CopyFrom(tracked.known)
        if tracked.dead:
            return part
    else:
        part = _describe(tracked.entries, 0)
        part.pages.extend(map(_reference, tracked.entries.pages))
    places = np.flatnonzero(tracked.removed != ALIVE)
    part.removed = len(places)
    if len(places):  # version 0: the entry was never part of the branch
        versions = tracked.removed[places]
        part.removed_min, part.removed_max = int(versions.min()), int(versions.max())
        part.removed_places.CopyFrom(encode_integers(places.astype(np.int64)))
        part.removed_versions.CopyFrom(encode_integers(versions))
    return part


def _reference(page: PageRef) -> PageReference:
    return PageReference(
        owner=page.owner,
        number=page.number,
        entries=page.entries,
        added_version=page.added_version,
        block=page.block,
    )


def _zone_row(entries: FileEntries) -> Row:
    """Totals and zones, in the types of the schema that the files were written with."""
    part, schema = Part(entries), entries.schema
    row: Row = {name: part.total(name) for name in TOTALS}
    for field in schema.columns:
        if schema.is_partition(field.name):
            zone = partition_zone(part, field, schema)
        elif field.id in entries.statistics_ids and not is_nested(field.type):
            zone = column_zone(part, field)
        else:
            continue
        row |= {f"min.{field.id}": zone.low, f"max.{field.id}": zone.high}
        row |= {f"null_count.{field.id}": zone.nulls, f"nan_count.{field.id}": zone.nans}
    return row
