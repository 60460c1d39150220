"""Zones: statistics of all files of a part together, so that whole parts can be skipped.

A zone reads like the statistics of one file with the rows of all files of the part, so the rules of pruning apply
unchanged (small materialized aggregates, Moerkotte 1998). A column is aggregated when a predicate first asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark_core.types import Field, Schema, is_floating, to_arrow
from lakemark_server.file_index.arrow import AnyArray
from lakemark_server.file_index.entries.bounds import flags
from lakemark_server.file_index.entries.columns import STATISTICS
from lakemark_server.file_index.entries.file_stats import ColumnStats, FileStats, PreparedStats
from lakemark_server.file_index.pages.zone_table import KINDS, ZoneTable
from lakemark_server.file_index.parts.evolution import converted, statistic
from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_server.file_index.parts.part import Part
from lakemark_server.file_index.pruning.statistics import StatisticsById, partition_values_by_name


class Zone(NamedTuple):
    """The zone of one column in one part; None means unknown."""

    low: Any
    high: Any
    nulls: int | None
    nans: int | None


def zones(snapshot: Snapshot) -> PreparedStats:
    """One entry for each part of the snapshot. Kept with the snapshot."""
    return snapshot.derived(_PreparedZones, lambda: _prepared(snapshot))


class _PreparedZones(PreparedStats):
    """The zones of a snapshot's parts, ready for pruning."""


def _prepared(snapshot: Snapshot) -> _PreparedZones:
    rows = np.array([_rows(part) for part in snapshot.parts], np.int64)
    return _PreparedZones(FileStats(rows, _Zones(snapshot.parts, snapshot.schema)))


class _Zones(StatisticsById):
    """The zones of a snapshot's parts, an entry for each part."""

    def __init__(self, parts: tuple[Part, ...], schema: Schema) -> None:
        super().__init__(schema)
        self._parts = parts

    def of(self, field: Field) -> ColumnStats:
        pieces = []
        for table, group in groupby(self._parts, lambda part: part.entries.zone_table):
            parts = list(group)
            known = None if table is None else _known_zones(parts, field, table)
            pieces.append(known or _computed_zones(parts, field, self._schema))
        if len(pieces) == 1:
            return ColumnStats(*pieces[0])
        return ColumnStats(*(pa.concat_arrays(arrays) for arrays in zip(*pieces, strict=True)))


class ZoneArrays(NamedTuple):
    """A column's zones, an entry for each part; null is unknown."""

    low: AnyArray
    high: AnyArray
    nulls: AnyArray
    nans: AnyArray


def _computed_zones(parts: Sequence[Part], field: Field, schema: Schema) -> ZoneArrays:
    computed = [_zone(part, field, schema) for part in parts]
    bounds = to_arrow(field.type)
    return ZoneArrays(
        pa.array([zone.low for zone in computed], bounds),
        pa.array([zone.high for zone in computed], bounds),
        pa.array([zone.nulls for zone in computed], pa.int64()),
        pa.array([zone.nans for zone in computed], pa.int64()),
    )


def _known_zones(parts: Sequence[Part], field: Field, table: ZoneTable) -> ZoneArrays | None:
    """The zones of several parts from the index of a base; None if it does not have the column."""
    written = table.schema.find_id(field.id)
    if written is None:
        return None
    rows = np.array([part.entries.zone_row_number for part in parts], np.int64)
    low, high, nulls_, nans = (table.values(f"{kind}.{field.id}", rows) for kind in KINDS)
    if low is None or high is None or nulls_ is None or nans is None:
        return None
    wanted = to_arrow(field.type)
    if low.type != wanted:
        low, high = converted(low, wanted), converted(high, wanted)
        if is_floating(field.type) and not is_floating(written.type):
            nans = pa.array(np.zeros(len(rows), np.int64))
    return ZoneArrays(low, high, nulls_, nans)


def _zone(part: Part, field: Field, schema: Schema) -> Zone:
    key = field.id, field.type
    zone = part.entries.zones.get(key)
    if zone is None:
        zone = _known_zone(part, field)
        if zone is None:
            zone = partition_zone(part, field, schema) if schema.is_partition(field.name) else column_zone(part, field)
        part.entries.zones[key] = zone
    return Zone(*zone)


def _known_zone(part: Part, field: Field) -> Zone | None:
    """The zone from the index of a base, in the type of the reader's schema; None if it does not have the column."""
    known = part.entries.known_zone(field)
    written = part.schema.find_id(field.id)
    if known is None or written is None:
        return None
    have, wanted = to_arrow(written.type), to_arrow(field.type)
    low, high, nulls, nans = known
    if have != wanted:
        low, high = (converted(pa.array([bound], have), wanted)[0].as_py() for bound in (low, high))
        if is_floating(field.type) and not is_floating(written.type):
            nans = 0
    return Zone(low, high, nulls, nans)


def column_zone(part: Part, field: Field) -> Zone:
    """The zone of a column that is not a partition column."""
    low, high, nulls, nans = (statistic(part, kind, field) for kind in STATISTICS)
    # If one file lacks the bound, it is unknown for all, unless that file has only nulls.
    no_values = nulls is not None and np.asarray(pc.greater_equal(nulls, part.column("row_count")).fill_null(False))
    return Zone(
        None if low is None or _lacks(low, no_values) else _value(pc.min(low)),
        None if high is None or _lacks(high, no_values) else _value(pc.max(high)),
        _sum(nulls),
        _sum(nans),
    )


def partition_zone(part: Part, field: Field, schema: Schema) -> Zone:
    """The zone of a partition column, from the names of the partitions."""
    codes, names = part.partition_codes
    values = partition_values_by_name(names, field, schema)
    is_null = np.asarray(values.is_null().to_numpy(zero_copy_only=False), np.bool_)
    rows = part.column("row_count").to_numpy()
    present = values.drop_null()
    low, high = (pc.min(present).as_py(), pc.max(present).as_py()) if len(present) else (None, None)
    return Zone(low, high, int(rows[is_null[codes]].sum()), None)


def _lacks(bounds: AnyArray, no_values: Any) -> bool:
    known = flags(bounds.is_valid())
    if pa.types.is_floating(bounds.type):
        known = known & ~flags(pc.call_function("is_nan", [bounds]))  # NaN bounds nothing
    return not bool(np.all(known | no_values))


def _value(bound: Any) -> Any:
    try:
        return bound.as_py()
    except (OverflowError, ValueError):  # a time that Python cannot represent
        return None


def _rows(part: Part) -> int:
    known = part.entries.known_total("row_count")
    return int(part.column("row_count").to_numpy().sum()) if known is None else known


def _sum(counts: AnyArray | None) -> int | None:
    return None if counts is None or counts.null_count else int(counts.to_numpy().sum())
