"""Parts: immutable pieces of a snapshot, which versions share.

A part is a set of entries that were written with one schema, and a mask of those that are alive. Replacing files makes
a new mask and leaves the entries alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lakemark_core.types import Schema
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.file_index.arrow import concat_batches, nulls
from lakemark_server.file_index.entries.bounds import filled
from lakemark_server.file_index.entries.columns import entry_schema, statistics_ids
from lakemark_server.file_index.pages.contents import (
    ADDED_VERSION,
    FileEntries,
    Integers,
    Mask,
    MemoryEntries,
    PartitionCodes,
)

# Large enough to amortize the overhead of numpy calls, small enough that whole parts can be skipped.
PART_FILES_MAX: Final = 8_192


@dataclass(frozen=True, eq=False)
class Part:
    """``live`` is None if all entries are alive."""

    entries: FileEntries
    live: Mask | None = None

    @property
    def schema(self) -> Schema:
        """The schema that the files were written with."""
        return self.entries.schema

    @property
    def size(self) -> int:
        """How many entries the part has, dead ones included."""
        return self.entries.size

    @cached_property
    def files(self) -> int:
        """How many entries are alive."""
        return self.size if self.live is None else int(self.live.sum())

    @property
    def partition_codes(self) -> PartitionCodes:
        """The index of each entry's partition name, and the names."""
        return self.entries.partition_codes

    @property
    def own_bytes(self) -> int:
        """How much memory the part takes without its entries."""
        return 200 + (0 if self.live is None else self.live.nbytes)

    @property
    def memory_bytes(self) -> int:
        """How much memory the part takes with its entries."""
        return self.entries.memory_bytes + self.own_bytes

    def column(self, name: str) -> pa.Array[Any]:
        """A column that every entry has. Raises CorruptStore."""
        return self.entries.column(name)

    @property
    def live_places(self) -> Integers | None:
        """The places of live entries; None if all are alive."""
        return None if self.live is None else np.flatnonzero(self.live)

    def live_mask(self) -> Mask:
        """A flag for each entry: whether it is alive."""
        return np.ones(self.size, np.bool_) if self.live is None else self.live

    def live_entries(self) -> pa.RecordBatch:
        """The live entries with all columns."""
        batch = self.entries.batch()
        return batch if self.live is None else batch.filter(pa.array(self.live))

    def bases_of_buckets(self) -> tuple[Integers, Integers]:
        """The places of live base files of a single bucket of an extendible index, and these buckets."""
        numbers = self.entries.find_column("bucket")
        if numbers is None:  # no file of this part is of a single bucket
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        buckets = filled(numbers, 0).to_numpy().astype(np.int64)
        places = np.flatnonzero(self.live_mask() & (self.column("kind").to_numpy() != pb.DELTA) & (buckets > 0))
        return places, buckets[places]

    def total(self, name: str) -> int:
        """The sum of an integer column over the live entries."""
        known = self.entries.known_total(name) if self.live is None else None
        if known is not None:
            return known
        values = self.column(name).to_numpy()
        return int(values.sum() if self.live is None else values[self.live].sum())

    def masked(self, mask: Mask) -> Part | None:
        """The part with those of its live entries that the mask has; None if there are none."""
        live = mask if self.live is None else self.live & mask
        count = np.count_nonzero(live)
        if not count:
            return None
        return self if count == self.files else Part(self.entries, live)

    def only(self, places: Integers) -> Part | None:
        """The part with those of its live entries that are at these places; None if there are none."""
        mask = np.zeros(self.size, np.bool_)
        mask[places] = True
        return self.masked(mask)

    def without(self, partitions: frozenset[str]) -> Part | None:
        """The part without the files of these partitions; None if nothing is left."""
        codes, names = self.partition_codes
        gone = np.array([name in partitions for name in names], np.bool_)
        return self.masked(~gone[codes]) if gone.any() else self

    def added_by(self, version: int) -> Part:
        """The same files as if another version had added them."""
        return Part(self.entries.added_by(version), self.live)


def in_memory(batch: pa.RecordBatch, schema: Schema) -> Part:
    """A part of these entries, which have ``added_version``."""
    return Part(MemoryEntries(batch, schema))


def appended(parts: Sequence[Part], added: Sequence[Part]) -> list[Part]:
    """The parts with further ones at the end.

    Small neighbours in memory are merged: each entry moves O(log n) times, so ten thousand one-file commits do not
    become ten thousand parts. Files of different schemas never share a part.
    """
    parts = list(parts)
    for part in _grouped(added):
        parts.append(part)
        while len(parts) > 1:
            last, before = parts[-1], parts[-2]
            if not _alike(before, last) or before.files > 2 * last.files or before.files + last.files > PART_FILES_MAX:
                break
            merged = concat([before.live_entries(), last.live_entries()], last.schema)
            parts[-2:] = [in_memory(merged, last.schema)]
    return parts


def _alike(part: Part, other: Part) -> bool:
    memory = isinstance(part.entries, MemoryEntries) and isinstance(other.entries, MemoryEntries)
    return memory and part.schema.schema_id == other.schema.schema_id


def _grouped(added: Sequence[Part]) -> Iterator[Part]:
    """Merges neighbours in memory that fit into one part; stored ones stay as they are."""
    group: list[pa.RecordBatch] = []
    files = 0
    last: Part | None = None
    for part in added:
        if last is not None and not _alike(last, part):
            yield in_memory(concat(group, last.schema), last.schema)
            group, files, last = [], 0, None
        if not isinstance(part.entries, MemoryEntries):
            yield part
            continue
        batch = part.live_entries()
        for start in range(0, batch.num_rows, PART_FILES_MAX):
            piece = batch.slice(start, PART_FILES_MAX)
            if group and files + piece.num_rows > PART_FILES_MAX:
                yield in_memory(concat(group, part.schema), part.schema)
                group, files = [], 0
            last = part
            group.append(piece)
            files += piece.num_rows
    if last is not None:
        yield in_memory(concat(group, last.schema), last.schema)


def concat(batches: Sequence[pa.RecordBatch], schema: Schema) -> pa.RecordBatch:
    """One batch with the statistics columns of all of them, in the schema's types; missing values are null."""
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
