"""Plans: which files of a snapshot a predicate needs, and what is left to evaluate in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.expressions import TRUE, Expr, bind, normalize, to_sql
from lakemark.types import Schema
from lakemark_server.snapshot.arrow import concat_batches, take
from lakemark_server.snapshot.contents import ADDED_VERSION, Entries, Mask
from lakemark_server.snapshot.entries import FIXED, entry_schema
from lakemark_server.snapshot.evolution import SCHEMA_ID, output_column
from lakemark_server.snapshot.file_stats import PartitionsOnly, PreparedColumn
from lakemark_server.snapshot.fold import Snapshot
from lakemark_server.snapshot.merge_on_read import MergedOnRead, merged_on_read
from lakemark_server.snapshot.page_source import Cache, kept, make_cache
from lakemark_server.snapshot.parts import Part
from lakemark_server.snapshot.pruning import prune_normal
from lakemark_server.snapshot.statistics import prepared
from lakemark_server.snapshot.zones import zones

MATCHES: Final = pa.field("matches_entirely", pa.bool_())
_CACHE_BYTES: Final = 64 << 20
_ROWS: Final = 0  # no column has this id


@dataclass(frozen=True, slots=True)
class Selection:
    """Entries of one part: their places in order, and for each whether every row matches."""

    part: Part
    places: npt.NDArray[np.int64]
    matches: npt.NDArray[np.bool_]

    def total(self, name: str) -> int:
        return int(self.part.column(name).to_numpy()[self.places].sum())


@dataclass(frozen=True, eq=False)
class Plan:
    """The files of one snapshot that can hold rows which the predicate selects, in the order of their versions."""

    snapshot: Snapshot
    predicate: Expr
    selections: tuple[Selection, ...]

    @cached_property
    def files(self) -> int:
        return sum(len(one.places) for one in self.selections)

    @cached_property
    def files_matching_entirely(self) -> int:
        return sum(int(one.matches.sum()) for one in self.selections)

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
        wanted = entry_schema(schema, statistics).append(ADDED_VERSION).append(SCHEMA_ID).append(MATCHES)
        batches = [_taken(one, wanted, schema) for one in self._slices(offset, limit)]
        return concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=wanted)

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
            size = len(one.places)
            mask = places[(places >= start) & (places < start + size)] - start
            start += size
            if len(mask):
                kept.append(Selection(one.part, one.places[mask], one.matches[mask]))
        return Plan(self.snapshot, self.predicate, tuple(kept))

    def _slices(self, offset: int, limit: int) -> Iterator[Selection]:
        for one in self.selections:
            size = len(one.places)
            if offset >= size:
                offset -= size
                continue
            stop = min(size, offset + limit)
            yield Selection(one.part, one.places[offset:stop], one.matches[offset:stop])
            limit -= stop - offset
            offset = 0
            if not limit:
                return


class Planner:
    """``cache`` keeps what pruning needs of each part, so that only the first plan on it pays."""

    def __init__(self, cache: Cache | None = None) -> None:
        self._cache = make_cache(_CACHE_BYTES) if cache is None else cache

    def plan(self, snapshot: Snapshot, predicate: Expr | None) -> Plan:
        """Raises InvalidPredicate for unknown columns and literals of a wrong type."""
        bound = TRUE if predicate is None else normalize(bind(predicate, snapshot.schema))
        merged = None if bound == TRUE else merged_on_read(snapshot)
        selections = []
        for part in self._candidates(snapshot, bound, merged):
            mask = None if merged is None else merged.mask(part)
            selection = self._select(part, bound, snapshot.schema, mask)
            if len(selection.places):
                selections.append(selection)
        return Plan(snapshot, bound, tuple(selections))

    def _candidates(self, snapshot: Snapshot, bound: Expr, merged: MergedOnRead | None) -> Iterable[Part]:
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
            places = np.arange(part.size) if live is None else np.flatnonzero(live)
            return Selection(part, places, np.ones(len(places), np.bool_))
        stats = kept(
            self._cache,
            (part.entries, schema.schema_id, _ROWS),
            lambda: prepared(part, schema, partial(self._keep, part.entries, schema.schema_id)),
            lambda stats: 1_000 + stats.not_empty.nbytes,
        )
        result = prune_normal(bound, stats)
        may, entirely = result.may_match, result.all_match
        if merged is not None:
            by_partition = prune_normal(bound, PartitionsOnly(stats, _partition_ids(schema)))
            may = np.where(merged, by_partition.may_match, may)
            entirely = np.where(merged, by_partition.all_match, entirely)
        places = np.flatnonzero(may if live is None else may & live)
        return Selection(part, places, entirely[places])

    def _keep(
        self, entries: Entries, schema_id: int, column_id: int, make: Callable[[], PreparedColumn]
    ) -> PreparedColumn:
        return kept(self._cache, (entries, schema_id, column_id), make, lambda column: column.memory_bytes)


def _partition_ids(schema: Schema) -> frozenset[int]:
    return frozenset(field.id for field in schema.partition_fields)


def _taken(one: Selection, wanted: pa.Schema, schema: Schema) -> pa.RecordBatch:
    """Statistics that no entry of the part has are null."""
    places = None if len(one.places) == one.part.size else one.places  # all of them: nothing is copied
    arrays = [
        pa.array(one.matches) if field == MATCHES else output_column(one.part, places, field, schema)
        for field in wanted
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)
