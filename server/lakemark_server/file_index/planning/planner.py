"""Plans: the files of a snapshot that a predicate needs, and what is left to evaluate in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
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
from lakemark_server.file_index.entries.bounds import Mask, filled
from lakemark_server.file_index.entries.columns import FIXED
from lakemark_server.file_index.entries.file_stats import PartitionsOnly, PreparedColumn
from lakemark_server.file_index.pages.contents import ADDED_VERSION, REPORTED, FileEntries
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
_NO_BUCKET: Final = -1
_ROWS: Final = 0  # no column has this id or the next
_COMPACT: Final = -1
_COMPACT_BYTES: Final = 60  # about, for a file
# Larger lists are made anew each time, because they would displace everything else in the cache.
_COMPACT_SHARE_MAX: Final = 0.4


@dataclass(frozen=True, slots=True)
class Selection:
    """Entries of one part: their places in order (None: all), and for each whether every row matches."""

    part: Part
    chosen: npt.NDArray[np.int64] | None
    matches: Mask

    @property
    def files(self) -> int:
        """How many files are selected."""
        return self.part.size if self.chosen is None else len(self.chosen)

    @property
    def files_matching_entirely(self) -> int:
        """How many of them have only rows that match."""
        matches = self.matches
        return int(np.count_nonzero(matches)) if isinstance(matches, np.ndarray) else self.files * int(matches)

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """The places of the selected entries."""
        return np.arange(self.part.size) if self.chosen is None else self.chosen

    @property
    def memory_bytes(self) -> int:
        """How much memory the selection takes, without the part."""
        return 100 + self.matches.nbytes + (0 if self.chosen is None else self.chosen.nbytes)

    def total(self, name: str) -> int:
        """The sum of an integer column over the selected files."""
        if self.chosen is None:
            return self.part.total(name)
        return int(self.part.column(name).to_numpy()[self.chosen].sum())

    def among(self, places: npt.NDArray[np.int64]) -> Selection:
        """The files at these places of the selection."""
        matches = self.matches[places] if isinstance(self.matches, np.ndarray) else self.matches
        return Selection(self.part, self.places[places], matches)


@dataclass(frozen=True, eq=False)
class Plan:
    """The files of one snapshot that may have rows which the predicate selects, in the order of their versions."""

    snapshot: Snapshot
    predicate: Expr
    selections: tuple[Selection, ...]

    @cached_property
    def files(self) -> int:
        """How many files the plan has."""
        return sum(selection.files for selection in self.selections)

    @cached_property
    def files_matching_entirely(self) -> int:
        """How many of them have only rows that match."""
        return sum(selection.files_matching_entirely for selection in self.selections)

    @cached_property
    def rows(self) -> int:
        """How many rows the files have."""
        return sum(selection.total("row_count") for selection in self.selections)

    @cached_property
    def size_bytes(self) -> int:
        """How many bytes the files have."""
        return sum(selection.total("size_bytes") for selection in self.selections)

    @property
    def residual(self) -> str:
        """The predicate to evaluate on rows of the files that do not match entirely, as SQL; "" if all match."""
        return "" if self.files_matching_entirely == self.files else to_sql(self.predicate)

    def page(self, offset: int, limit: int, statistics: Sequence[int]) -> pa.RecordBatch:
        """Files ``offset`` to ``offset + limit`` with the statistics of these column ids."""
        schema = self.snapshot.schema
        wanted = plan_schema(schema, statistics)
        batches = [_taken(selection, wanted, schema) for selection in self.between(offset, limit)]
        if len(batches) == 1:
            return batches[0]
        return concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=wanted)

    def whole_parts(self, offset: int, about: int) -> int:
        """How many files from ``offset`` on reach to the end of a part, at most ``about``; ``about`` if no part ends
        there."""
        end = best = 0
        for selection in self.selections:
            end += selection.files
            if end > offset + about:
                break
            best = end
        return best - offset if best > offset else about

    def columns(self, names: Sequence[str]) -> pa.Table:
        """These columns of all files: columns of FIXED, or ``added_version``."""
        wanted = pa.schema([FIXED.append(ADDED_VERSION).field(name) for name in names])
        batches = [
            pa.RecordBatch.from_arrays(
                [take(selection.part.column(name), selection.places) for name in names], schema=wanted
            )
            for selection in self.selections
        ]
        return pa.Table.from_batches(batches, wanted)

    def chosen(self, places: npt.NDArray[np.int64]) -> Plan:
        """The files at these places of the plan, in the same order."""
        kept, start = [], 0
        for selection in self.selections:
            mask = places[(places >= start) & (places < start + selection.files)] - start
            start += selection.files
            if len(mask):
                kept.append(selection.among(mask))
        return Plan(self.snapshot, self.predicate, tuple(kept))

    def between(self, offset: int, limit: int) -> Iterator[Selection]:
        """Files ``offset`` to ``offset + limit``, part by part."""
        for selection in self.selections:
            if not limit:
                return
            if offset >= selection.files:
                offset -= selection.files
                continue
            stop = min(selection.files, offset + limit)
            yield selection if stop - offset == selection.files else selection.among(np.arange(offset, stop))
            limit -= stop - offset
            offset = 0


class Planner:
    """``cache`` keeps what pruning needs of each part, so that only the first plan on a part computes it."""

    def __init__(self, cache: Cache | None = None) -> None:
        self._cache = make_cache(_CACHE_BYTES) if cache is None else cache

    def plan(self, snapshot: Snapshot, predicate: Expr | None) -> Plan:
        """The plan of a predicate; None selects all files.

        Raises InvalidPredicate for unknown columns and literals of a wrong type.
        """
        return self.plan_bound(snapshot, TRUE if predicate is None else normalize(bind(predicate, snapshot.schema)))

    def plan_bound(
        self, snapshot: Snapshot, bound: Expr, parts_max: int | None = None, buckets: Collection[int] | None = None
    ) -> Plan:
        """The plan of a predicate that is normalized and bound to the snapshot's schema.

        ``buckets``: where alone rows that it selects can be, as ``buckets_of`` tells; None: anywhere.
        Raises NotAtHand if more than ``parts_max`` parts would have to be searched.
        """
        merged = None if bound == TRUE else merged_on_read(snapshot)
        selections = []
        candidates = self._candidates(snapshot, bound, merged)
        if parts_max is not None and len(candidates) > parts_max:
            raise NotAtHand
        for part in candidates:
            mask = None if merged is None else merged.mask(part)
            selection = self._select(part, bound, snapshot.schema, mask, buckets)
            if selection.files:
                selections.append(selection)
        return Plan(snapshot, bound, tuple(selections))

    def compact_page(self, plan: Plan, offset: int, limit: int, statistics: Sequence[int]) -> list[pa.RecordBatch]:
        """Files ``offset`` to ``offset + limit`` of a plan in ``compact`` columns, one batch for each part."""
        schema = plan.snapshot.schema
        fits = plan.snapshot.files * _COMPACT_BYTES <= self._cache.bytes_max * _COMPACT_SHARE_MAX
        batches = []
        for selection in plan.between(offset, limit):
            make = partial(compact, selection.part, selection.chosen, selection.matches, schema, statistics)
            if fits and selection.chosen is None and selection.matches is np.True_ and not statistics:
                name = (selection.part.entries.name, schema.schema_id, _COMPACT)
                batches.append(kept(self._cache, name, make, batch_bytes))
            else:
                batches.append(make())
        return batches

    def _candidates(self, snapshot: Snapshot, bound: Expr, merged: MergedOnRead | None) -> Sequence[Part]:
        """The parts that may have files of the plan."""
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

    def _select(
        self, part: Part, bound: Expr, schema: Schema, merged: Mask | None, buckets: Collection[int] | None
    ) -> Selection:
        """The files of a part. ``merged``: entries that only their partition may exclude."""
        live = part.live
        if bound == TRUE:
            return Selection(part, None if live is None else np.flatnonzero(live), np.True_)
        stats = kept(
            self._cache,
            (part.entries.name, schema.schema_id, _ROWS),
            lambda: prepared(part, schema, partial(self._keep, part.entries, schema.schema_id)),
            lambda stats: stats.memory_bytes + part.memory_bytes,  # the statistics refer to the part
        )
        result = prune_normal(bound, stats)
        may, entirely = result.may_match, result.all_match
        if buckets is not None:
            # The key says the bucket, and a change of a row does not change its key: this holds for deltas, too.
            in_buckets = _in_buckets(part, buckets)
            may = may & in_buckets
            merged = None if merged is None else merged & in_buckets
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


def _in_buckets(part: Part, buckets: Collection[int]) -> Mask:
    """Which entries may belong to one of the buckets; those of no bucket may."""
    column = part.column("bucket")
    if column.null_count == len(column):
        return np.True_
    return np.isin(filled(column, _NO_BUCKET).to_numpy(), [*buckets, _NO_BUCKET])


def _narrowed(part: Part, chosen: npt.NDArray[np.int64]) -> tuple[Part, npt.NDArray[np.int64]]:
    """The one page that has all of the chosen files, if there is one: no other page is then decoded or kept."""
    page = part.entries.page_with(int(chosen.min()), int(chosen.max())) if len(chosen) else None
    if page is None:
        return part, chosen
    entries, start = page
    return Part(entries), chosen - start


def _taken(selection: Selection, wanted: pa.Schema, schema: Schema) -> pa.RecordBatch:
    """The files of a selection. Statistics that no entry of the part has are null."""
    matches = pa.array(np.broadcast_to(selection.matches, selection.files))
    reported = selection.part.entries.told()
    if selection.chosen is not None:
        reported = _rows(reported, selection.chosen)
    if len(wanted) == reported.num_columns + 1:
        return reported.append_column(MATCHES, matches)
    known = {MATCHES.name: matches} | dict(zip(REPORTED.names, reported.columns, strict=True))
    arrays = [
        known[field.name] if field.name in known else output_column(selection.part, selection.chosen, field, schema)
        for field in wanted
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _rows(batch: pa.RecordBatch, places: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """The rows at these places, which ascend. Consecutive rows, as plans often choose them, are not copied."""
    first, last = int(places[0]), int(places[-1])
    return batch.slice(first, len(places)) if last - first + 1 == len(places) else take_rows(batch, places)
