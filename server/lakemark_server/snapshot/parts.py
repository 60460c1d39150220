"""Parts: immutable pieces of a snapshot, which versions share.

A part holds entries that were written with one schema, in the order of their versions, and a mask of those still alive.
Replacing files makes a new mask and leaves the entries alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.types import Schema, Type
from lakemark_proto.v1 import types_pb2
from lakemark_server.snapshot.arrow import concat_batches, dictionary, nulls
from lakemark_server.snapshot.entries import entry_schema, instants_of, statistics_ids

# Large enough that numpy's cost for a call does not count, small enough to be skipped as a whole.
PART_FILES_MAX: Final = 8_192
ADDED_VERSION: Final = pa.field("added_version", pa.int64())

Mask = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Part:
    """``schema`` is the one that the files were written with; ``live`` is None if all entries are alive."""

    entries: pa.RecordBatch
    schema: Schema
    live: Mask | None = None

    @property
    def size(self) -> int:
        """How many entries, dead ones included."""
        return self.entries.num_rows

    @cached_property
    def files(self) -> int:
        return self.size if self.live is None else int(self.live.sum())

    @cached_property
    def zones(self) -> dict[tuple[int, Type], tuple[Any, ...]]:
        """What ``snapshot.zones`` has found out, by column id and the type it is read with; entries never change."""
        return {}

    @cached_property
    def partition_codes(self) -> tuple[npt.NDArray[np.int32], list[str]]:
        """Per entry the index of its partition's name, and the names."""
        return dictionary(self.entries.column("partition"))

    @cached_property
    def instants(self) -> Integers:
        """Per entry the instant that wrote the file: its directory's name; -1 if that is not a number."""
        return instants_of(self.entries.column("path"))

    @cached_property
    def instant_range(self) -> tuple[int, int]:
        return int(self.instants.min()), int(self.instants.max())

    @cached_property
    def has_deltas(self) -> bool:
        """Dead ones included."""
        return bool((self.column("kind").to_numpy() == types_pb2.DELTA).any())

    @cached_property
    def statistics_ids(self) -> frozenset[int]:
        return frozenset(statistics_ids(self.entries.schema.names))

    def column(self, name: str) -> pa.Array[Any]:
        return self.entries.column(name)

    def find_column(self, name: str) -> pa.Array[Any] | None:
        """None if no entry has it."""
        at = self.entries.schema.get_field_index(name)
        return None if at < 0 else self.entries.column(at)

    @property
    def live_places(self) -> Integers | None:
        """None if all are alive."""
        return None if self.live is None else np.flatnonzero(self.live)

    def live_mask(self) -> Mask:
        return np.ones(self.size, np.bool_) if self.live is None else self.live

    def live_entries(self) -> pa.RecordBatch:
        return self.entries if self.live is None else self.entries.filter(pa.array(self.live))

    def total(self, name: str) -> int:
        """Sum of an integer column over the live entries."""
        values = self.column(name).to_numpy()
        return int(values.sum() if self.live is None else values[self.live].sum())

    def masked(self, mask: Mask) -> Part | None:
        """With only those entries alive that were and that the mask has; None if there are none."""
        live = mask if self.live is None else self.live & mask
        count = np.count_nonzero(live)
        if not count:
            return None
        return self if count == self.files else Part(self.entries, self.schema, live)

    def without(self, partitions: frozenset[str]) -> Part | None:
        """The part after these partitions were replaced; None if nothing is left."""
        codes, names = self.partition_codes
        gone = np.array([name in partitions for name in names], np.bool_)
        return self.masked(~gone[codes]) if gone.any() else self


def appended(parts: list[Part], added: Sequence[tuple[Schema, pa.RecordBatch]]) -> list[Part]:
    """The parts with further entries (which have their versions) at the end.

    Small neighbours are merged as they come: each entry moves O(log n) times, so that ten thousand one-file commits do
    not become ten thousand parts. Files of different schemas do not share a part.
    """
    parts = list(parts)
    for schema, group in _grouped(added):
        parts.append(Part(concat(group, schema), schema))
        while len(parts) > 1:
            last, before = parts[-1], parts[-2]
            if before.schema.schema_id != last.schema.schema_id or before.files > 2 * last.files:
                break
            if before.files + last.files > PART_FILES_MAX:
                break
            parts[-2:] = [Part(concat([before.live_entries(), last.live_entries()], last.schema), last.schema)]
    return parts


def _grouped(added: Sequence[tuple[Schema, pa.RecordBatch]]) -> Iterator[tuple[Schema, list[pa.RecordBatch]]]:
    """Neighbours that fit into one part together."""
    group: list[pa.RecordBatch] = []
    files = 0
    of: Schema | None = None
    for schema, batch in added:
        for start in range(0, batch.num_rows, PART_FILES_MAX):
            piece = batch.slice(start, PART_FILES_MAX)
            if of and group and (files + piece.num_rows > PART_FILES_MAX or of.schema_id != schema.schema_id):
                yield of, group
                group, files = [], 0
            of = schema
            group.append(piece)
            files += piece.num_rows
    if of and group:
        yield of, group


def concat(batches: Sequence[pa.RecordBatch], schema: Schema) -> pa.RecordBatch:
    """One batch with the statistics columns of all of them, in the schema's types; missing ones are null."""
    if len(batches) == 1:
        return batches[0]
    ids = set().union(*(statistics_ids(batch.schema.names) for batch in batches)) if batches else set()
    wanted = entry_schema(schema, ids).append(ADDED_VERSION)
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=wanted)
    if any(batch.schema != wanted for batch in batches):
        batches = [_widened(batch, wanted) for batch in batches]
    return concat_batches(batches)


def _widened(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    arrays: list[pa.Array[Any]] = []
    for field in wanted:
        at = batch.schema.get_field_index(field.name)
        arrays.append(nulls(batch.num_rows, field.type) if at < 0 else batch.column(at))
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)
