"""Plans: which files of a snapshot a predicate needs, and what is left to evaluate in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark_core.expressions import TRUE, Expr, bind, normalize, to_sql
from lakemark_core.types import Schema
from lakemark_server.file_index.arrow import batch_bytes, concat_batches, take, take_rows
from lakemark_server.file_index.at_hand import NotAtHand
from lakemark_server.file_index.entries.bounds import Mask
from lakemark_server.file_index.entries.columns import FIXED
from lakemark_server.file_index.entries.file_stats import PartitionsOnly, PreparedColumn
from lakemark_server.file_index.pages.contents import ADDED_VERSION, TOLD, FileEntries
from lakemark_server.file_index.pages.source import Cache, kept, make_cache
from lakemark_server.file_index.parts.evolution import output_column
from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_server.file_index.parts.part import Part
from lakemark_server.file_index.planning.compact import MATCHES, compact, plan_schema
from lakemark_server.file_index.planning.merge_on_read import MergedOnRead, merged_on_read
from lakemark_server.file_index.pruning.rules import prune_normal
from lakemark_server.file_index.pruning.statistics import prepared
from lakemark_server.file_index.pruning.zones import zones

_CACHE_BYTES: Final = 64 << 20
_ROWS: Final = 0  # no column has this id, nor the next
_COMPACT: Final = -1
_COMPACT_BYTES: Final = 60  # about, of a file
# Lists of tables that take more of the cache are made anew each time; they would drive out all else.
_COMPACT_SHARE_MAX: Final = 0.4


@dataclass(frozen=True, slots=True)
class Selection:
    """Entries of one part: their places in order (None: all), and for each whether every row matches."""

    part: Part
    chosen: npt.NDArray[np.int64] | None
    matches: Mask

    @property
    def files(self) -> int:
        return self.part.size if self.chosen is None else len(self.chosen)

    @property
    def files_matching_entirely(self) -> int:
        matches = self.matches
        return int(np.count_nonzero(matches)) if isinstance(matches, np.ndarray) else self.files * int(matches)

    @property
    def places(self) -> npt.NDArray[np.int64]:
        return np.arange(self.part.size) if self.chosen is None else self.chosen

    @property
    def memory_bytes(self) -> int:
        return 100 + self.matches.nbytes + (0 if self.chosen is None else self.chosen.nbytes)

    def total(self, name: str) -> int:
        if self.chosen is None:
            return self.part.total(name)
        return int(self.part.column(name).to_numpy()[self.chosen].sum())

    def among(self, places: npt.NDArray[np.int64]) -> Selection:
        """Only the files at these places of the selection."""
        matches = self.matches[places] if isinstance(self.matches, np.ndarray) else self.matches
        return Selection(self.part, self.places[places], matches)


@dataclass(frozen=True, eq=False)
class Plan:
    """The files of one snapshot that can hold rows which the predicate selects, in the order of their versions."""

    snapshot: Snapshot
    predicate: Expr
    selections: tuple[Selection, ...]

    @cached_property
    def files(self) -> int:
        return sum(one.files for one in self.selections)

    @cached_property
    def files_matching_entirely(self) -> int:
        return sum(one.files_matching_entirely for one in self.selections)

    @cached_property
    def rows(self) -> int:
        return sum(one.total("row_count") for one in self.selections)

    @cached_property
    def size_bytes(self) -> int:
        return sum(one.total("size_bytes") for one in self.selections)

    @property
    def residual(self) -> str:
        """What has to be evaluated on rows of the files that do not match entirely; "" if there are none."""
        return "" if self.files_matching_entirely == self.files else to_sql(self.predicate)

    def page(self, offset: int, limit: int, statistics: Sequence[int]) -> pa.RecordBatch:
        """Files ``offset`` to ``offset + limit`` with the statistics of these column ids."""
        schema = self.snapshot.schema
        wanted = plan_schema(schema, statistics)
        batches = [_taken(one, wanted, schema) for one in self.between(offset, limit)]
        if len(batches) == 1:
            return batches[0]
        return concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=wanted)

    def whole_parts(self, offset: int, about: int) -> int:
        """How many files from ``offset`` on reach to the end of a part, at most ``about``; ``about`` if none do."""
        end = best = 0
        for one in self.selections:
            end += one.files
            if end > offset + about:
                break
            best = end
        return best - offset if best > offset else about

    def columns(self, names: Sequence[str]) -> pa.Table:
        """These columns of all files: fixed ones or their version."""
        wanted = pa.schema([FIXED.append(ADDED_VERSION).field(name) for name in names])
        batches = [
            pa.RecordBatch.from_arrays([take(one.part.column(name), one.places) for name in names], schema=wanted)
            for one in self.selections
        ]
        return pa.Table.from_batches(batches, wanted)

    def chosen(self, places: npt.NDArray[np.int64]) -> Plan:
        """Only the files at these places of the plan, in the same order."""
        kept, start = [], 0
        for one in self.selections:
            mask = places[(places >= start) & (places < start + one.files)] - start
            start += one.files
            if len(mask):
                kept.append(one.among(mask))
        return Plan(self.snapshot, self.predicate, tuple(kept))

    def between(self, offset: int, limit: int) -> Iterator[Selection]:
        """Files ``offset`` to ``offset + limit``, by parts."""
        for one in self.selections:
            if not limit:
                return
            if offset >= one.files:
                offset -= one.files
                continue
            stop = min(one.files, offset + limit)
            yield one if stop - offset == one.files else one.among(np.arange(offset, stop))
            limit -= stop - offset
            offset = 0


class Planner:
    """``cache`` keeps what pruning needs of each part, so that only the first plan on it pays."""

    def __init__(self, cache: Cache | None = None) -> None:
        self._cache = make_cache(_CACHE_BYTES) if cache is None else cache

    def plan(self, snapshot: Snapshot, predicate: Expr | None) -> Plan:
        """Raises InvalidPredicate for unknown columns and literals of a wrong type."""
        return self.plan_bound(snapshot, TRUE if predicate is None else normalize(bind(predicate, snapshot.schema)))

    def plan_bound(self, snapshot: Snapshot, bound: Expr, parts_max: int | None = None) -> Plan:
        """With a predicate that is bound to the snapshot's schema and normalized.

        Raises NotAtHand if more than ``parts_max`` parts have to be looked at.
        """
        merged = None if bound == TRUE else merged_on_read(snapshot)
        selections = []
        candidates = self._candidates(snapshot, bound, merged)
        if parts_max is not None and len(candidates) > parts_max:
            raise NotAtHand
        for part in candidates:
            mask = None if merged is None else merged.mask(part)
            selection = self._select(part, bound, snapshot.schema, mask)
            if selection.files:
                selections.append(selection)
        return Plan(snapshot, bound, tuple(selections))

    def compact_page(self, plan: Plan, offset: int, limit: int, statistics: Sequence[int]) -> list[pa.RecordBatch]:
        """Files ``offset`` to ``offset + limit`` of a plan in ``compact`` columns, a batch for each part."""
        schema = plan.snapshot.schema
        fits = plan.snapshot.files * _COMPACT_BYTES <= self._cache.bytes_max * _COMPACT_SHARE_MAX
        found = []
        for one in plan.between(offset, limit):
            make = partial(compact, one.part, one.chosen, one.matches, schema, statistics)
            if fits and one.chosen is None and one.matches is np.True_ and not statistics:
                name = (one.part.entries.name, schema.schema_id, _COMPACT)
                found.append(kept(self._cache, name, make, batch_bytes))
            else:
                found.append(make())
        return found

    def _candidates(self, snapshot: Snapshot, bound: Expr, merged: MergedOnRead | None) -> Sequence[Part]:
        """The parts that can hold a file to be read."""
        parts = snapshot.parts
        if bound == TRUE or len(parts) == 1:
            return parts
        known = zones(snapshot)
        may = prune_normal(bound, known).may_match.copy()
        if merged is not None:
            by_partition = prune_normal(bound, PartitionsOnly(known, _partition_ids(snapshot.schema))).may_match
            for at in np.flatnonzero(by_partition & ~may).tolist():
                may[at] = merged.mask(parts[at]) is not None
        return [parts[at] for at in np.flatnonzero(may).tolist()]

    def _select(self, part: Part, bound: Expr, schema: Schema, merged: Mask | None) -> Selection:
        """``merged``: entries that only their partition may leave out."""
        live = part.live
        if bound == TRUE:
            return Selection(part, None if live is None else np.flatnonzero(live), np.True_)
        stats = kept(
            self._cache,
            (part.entries.name, schema.schema_id, _ROWS),
            lambda: prepared(part, schema, partial(self._keep, part.entries, schema.schema_id)),
            lambda stats: stats.memory_bytes + part.memory_bytes,  # which it refers to
        )
        result = prune_normal(bound, stats)
        may, entirely = result.may_match, result.all_match
        if merged is None and not may.any():
            return Selection(part, np.empty(0, np.int64), np.False_)
        if merged is not None:
            by_partition = prune_normal(bound, PartitionsOnly(stats, _partition_ids(schema)))
            may = np.where(merged, by_partition.may_match, may)
            entirely = np.where(merged, by_partition.all_match, entirely)
        places = np.flatnonzero(may if live is None else may & live)
        if len(places) == part.size:
            return Selection(part, None, entirely)
        part, chosen = _narrowed(part, places)
        return Selection(part, chosen, entirely[places])

    def _keep(
        self, entries: FileEntries, schema_id: int, column_id: int, make: Callable[[], PreparedColumn]
    ) -> PreparedColumn:
        return kept(self._cache, (entries.name, schema_id, column_id), make, lambda column: column.memory_bytes)


def _partition_ids(schema: Schema) -> frozenset[int]:
    return frozenset(field.id for field in schema.partition_fields)


def _narrowed(part: Part, chosen: npt.NDArray[np.int64]) -> tuple[Part, npt.NDArray[np.int64]]:
    """Only the page that has all of the chosen files, if one has: no more is decoded for them, nor kept in memory."""
    found = part.entries.page_with(int(chosen.min()), int(chosen.max())) if len(chosen) else None
    if found is None:
        return part, chosen
    entries, start = found
    return Part(entries), chosen - start


def _taken(one: Selection, wanted: pa.Schema, schema: Schema) -> pa.RecordBatch:
    """Statistics that no entry of the part has are null."""
    matches = pa.array(np.broadcast_to(one.matches, one.files))
    told = one.part.entries.told()
    if one.chosen is not None:
        told = _rows(told, one.chosen)
    if len(wanted) == told.num_columns + 1:
        return told.append_column(MATCHES, matches)
    known = {MATCHES.name: matches} | dict(zip(TOLD.names, told.columns, strict=True))
    arrays = [
        known[field.name] if field.name in known else output_column(one.part, one.chosen, field, schema)
        for field in wanted
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _rows(batch: pa.RecordBatch, places: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Those at these places, which ascend; neighbours, as plans often choose them, are not copied."""
    first, last = int(places[0]), int(places[-1])
    return batch.slice(first, len(places)) if last - first + 1 == len(places) else take_rows(batch, places)
