"""Building a base: the one before, with the versions since, rewritten where that makes it better.

A base keeps every file that it has ever known together with the versions that added and removed it, so that it serves
all versions up to its own (as multi-version B-trees do; Becker et al. 1996). Pages are sorted runs by partition, in
the order of commits within one; new entries make a new run, which takes up the runs before it that are not larger than
twice its size, so that each entry is rewritten O(log n) times (log-structured merge trees, O'Neil et al. 1996). Files
that are dead have runs of their own, which the latest version never reads. Blocks of large commits stay where they are
if they hold few partitions.
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

# No run gets larger: what a fold takes in memory is bounded, some 200 MB.
RUN_FILES_MAX: Final = 1 << 17
# A block in place has so many files of each of its partitions, or it is rewritten.
FILES_OF_PARTITION_MIN: Final = 64
# A part of which less is alive is rewritten.
LIVE_SHARE_MIN: Final = 0.5
_SMALL_PARTS_MAX: Final = 500


@dataclass(eq=False)
class Tracked:
    """Entries with the version that removed each, or ALIVE; 0: it was never part of the branch.

    ``known``: as the index before has them. ``shared``: their pages belong to a base that is sure to stay.
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
    """Which versions can no longer be read: those up to ``ended``, but for the ``pinned`` ones (in order)."""

    ended: int = 0
    pinned: tuple[int, ...] = ()

    def over(self, added: Integers, removed: Integers) -> Mask:
        """Of entries that are dead: whether no version that can be read has them."""
        pinned = np.array([*self.pinned, ALIVE], np.int64)
        return (removed <= self.ended + 1) & (pinned[np.searchsorted(pinned, added)] >= removed)

    def is_over(self, part: BasePart) -> bool:
        """Of a part whose entries are all dead: whether they surely are over."""
        return part.dead and bool(self.over(np.array([part.added_min]), np.array([part.removed_max]))[0])


NOTHING_ENDED: Final = Past()


class Builder:
    """One build: ``apply`` each version in order, then ``finish``."""

    def __init__(self, before: Base | None, start: Sequence[Part], past: Past = NOTHING_ENDED) -> None:
        """``start``: the content to begin with if there is no base before; ``past``: what need not be kept."""
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
        return sum(part.files for part in self._live)

    def apply(self, version: int, changes: Iterable[VersionEdit]) -> None:
        """What a version did. Entries that it took out are kept as dead ones."""
        for change in changes:
            before = self._live
            self._live = applied(before, change)
            kept = len(before)
            # What an append, all that a hot table has, leaves as it is need not be gone through one by one.
            if len(self._live) < kept or not all(map(is_, before, self._live)):
                kept = 0
                self._note_removed(version, before)
            for part in self._live[kept:]:
                if id(part.entries) not in self._tracked:
                    # What is not alive in it came from elsewhere and was never part of this branch.
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
        small = [one for one in self._tracked.values() if not isinstance(one.entries, StoredEntries)]
        gone = {id(one.entries) for one in small}
        self._live = [part for part in self._live if id(part.entries) not in gone]
        for of_schema in _by_schema(small):
            schema = of_schema[0].entries.schema
            joined = in_memory(concat([one.entries.batch() for one in of_schema], schema), schema)
            removed = np.concatenate([one.removed for one in of_schema])
            for one in of_schema:
                del self._tracked[id(one.entries)]
            self._track(Tracked(joined.entries, removed))
            part = joined.masked(removed == ALIVE)
            if part is not None:
                self._live.append(part)

    def finish(
        self, branch_key: str, version: int, base_id: int, write: Callable[[int, Sequence[bytes]], None]
    ) -> BaseIndex:
        """The index. ``write``: pages from a number on, which are kept under the id of the base."""
        kept, loose = self._divided()
        writer = _Writer(base_id, write)
        index = BaseIndex(version=version, branch_key=branch_key)
        zones: dict[int, list[Row]] = {}
        schemas: dict[int, Schema] = {}
        for one in kept:
            schema = one.entries.schema
            index.parts.append(_kept_part(one))
            zones.setdefault(schema.schema_id, []).append(one.zones or _zone_row(one.entries))
            schemas[schema.schema_id] = schema
        for of_schema in _by_schema(loose):
            schema = of_schema[0].entries.schema
            schemas[schema.schema_id] = schema
            for group in _bounded(of_schema):
                for dead in (False, True):
                    for part, row in writer.run(group, schema, self._past if dead else None):
                        index.parts.append(part)
                        zones.setdefault(schema.schema_id, []).append(row)
        for schema_id, rows in zones.items():
            index.zones.append(BaseZones(schema_id=schema_id, arrow=encode_zones(rows, schemas[schema_id])))
        return index

    def _divided(self) -> tuple[list[Tracked], list[Tracked]]:
        """Those that stay as they are, and those that are written anew."""
        kept: list[Tracked] = []
        loose: list[Tracked] = []
        for one in _in_place_together(self._tracked.values()):
            (loose if _is_loose(one) else kept).append(one)
        for dead in (False, True):
            kept, loose = _merged_runs(kept, loose, dead=dead)
        return kept, loose


def _since_now(part: Part) -> Integers:
    return np.where(part.live_mask(), np.int64(ALIVE), np.int64(0))


def _is_loose(one: Tracked) -> bool:
    if one.run < 0:
        return not _well_clustered(one)
    return not one.dead and one.live_share < LIVE_SHARE_MIN


def _well_clustered(one: Tracked) -> bool:
    """Whether stored entries that are not in a base yet can stay where they are."""
    if not isinstance(one.entries, StoredEntries) or one.live_share < LIVE_SHARE_MIN:
        return False
    if not one.shared and not all(page.block for page in one.entries.pages):
        return False  # pages of a base that may be swept
    _, names = one.entries.partition_codes
    return len(names) == 1 or one.entries.size >= FILES_OF_PARTITION_MIN * len(names)


def _merged_runs(kept: list[Tracked], loose: list[Tracked], *, dead: bool) -> tuple[list[Tracked], list[Tracked]]:
    """Runs that are not much larger than what is written anew join it."""
    fresh = sum(int(np.count_nonzero((one.removed != ALIVE) == dead)) for one in loose)
    runs = sorted({one.run for one in kept if one.run > 0 and one.dead == dead})
    joined: set[int] = set()
    for run in runs:
        if not fresh or run > 2 * fresh or run + fresh > RUN_FILES_MAX:
            break
        joined.add(run)
        fresh += sum(one.entries.size for one in kept if one.run == run and one.dead == dead)
    moving = [one for one in kept if one.run in joined and one.dead == dead]
    staying = [one for one in kept if one.run not in joined or one.dead != dead]
    return staying, [*moving, *loose]


def _in_place_together(tracked: Iterable[Tracked]) -> Iterator[Tracked]:
    """Blocks of commits that follow each other, as parts of full size. None of their files was removed."""
    group: list[StoredEntries] = []
    for one in tracked:
        entries = one.entries
        fits = one.run < 0 and bool((one.removed == ALIVE).all()) and _well_clustered(one)
        if group and not (fits and group[0].schema.schema_id == entries.schema.schema_id):
            yield from _cut_anew(group)
            group = []
        if fits and isinstance(entries, StoredEntries):
            group.append(entries)
        else:
            yield one
    if group:
        yield from _cut_anew(group)


def _cut_anew(group: Sequence[StoredEntries]) -> Iterator[Tracked]:
    pages: list[PageRef] = []
    for page in (page for entries in group for page in entries.pages):
        if pages and sum(one.entries for one in pages) + page.entries > PART_FILES_MAX:
            yield _fresh(group[0].with_pages(pages))
            pages = []
        pages.append(page)
    yield _fresh(group[0].with_pages(pages))


def _fresh(entries: StoredEntries) -> Tracked:
    return Tracked(entries, np.full(entries.size, ALIVE, np.int64))


def _by_schema(tracked: Sequence[Tracked]) -> list[list[Tracked]]:
    groups: dict[int, list[Tracked]] = {}
    for one in tracked:
        groups.setdefault(one.entries.schema.schema_id, []).append(one)
    return list(groups.values())


def _bounded(tracked: Sequence[Tracked]) -> Iterator[list[Tracked]]:
    """Those that make a run together."""
    group: list[Tracked] = []
    files = 0
    for one in tracked:
        if group and files + one.entries.size > RUN_FILES_MAX:
            yield group
            group, files = [], 0
        group.append(one)
        files += one.entries.size
    if group:
        yield group


class _Writer:
    """Cuts entries into pages and parts, and numbers the pages."""

    def __init__(self, base_id: int, write: Callable[[int, Sequence[bytes]], None]) -> None:
        self._base_id = base_id
        self._write = write
        self._next = 0

    def run(self, loose: Sequence[Tracked], schema: Schema, past: Past | None) -> Iterable[tuple[BasePart, Row]]:
        """One sorted run of those entries that are alive, or of those that are dead and not over (``past``)."""
        pieces, dead = [], past is not None
        for one in loose:
            wanted = one.removed == ALIVE
            if past is not None:
                added = np.asarray(one.entries.column(ADDED_VERSION.name, keep=False).to_numpy(), np.int64)
                wanted = ~wanted & (one.removed > 0) & ~past.over(added, one.removed)
            if not wanted.any():
                continue
            batch = one.entries.batch()
            removed = pa.array(one.removed)
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
            found = page_of(page)
            count = found.entries if found else 0
            part.pages.append(PageReference(owner=self._base_id, number=self._next, entries=count))
            self._next += 1
        if dead:
            removed = batch.column(REMOVED_VERSION.name).to_numpy()
            part.removed_min, part.removed_max = int(removed.min()), int(removed.max())
        return part, _zone_row(entries)


def _order(batch: pa.RecordBatch, schema: Schema) -> Integers:
    """By the values of the partition columns; within a partition as they came."""
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


def _kept_part(one: Tracked) -> BasePart:
    """As it was before, with what was removed since; or blocks that stay in place."""
    if not isinstance(one.entries, StoredEntries):
        raise TypeError("only stored entries can stay as they are")
    part = BasePart()
    if one.known is not None:
        part.CopyFrom(one.known)
        if one.dead:
            return part
    else:
        part = _describe(one.entries, 0)
        part.pages.extend(map(_reference, one.entries.pages))
    places = np.flatnonzero(one.removed != ALIVE)
    part.removed = len(places)
    if len(places):  # version 0: it was never part of the branch
        versions = one.removed[places]
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
    """Totals and zones in the type of the files' own schema."""
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
