"""Parts: immutable pieces of a snapshot, which versions share.

A part is entries that were written with one schema, and a mask of those still alive. Replacing files makes a new mask
and leaves the entries alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lakemark_core.types import Schema
from lakemark_server.file_index.arrow import concat_batches, nulls
from lakemark_server.file_index.entries.columns import entry_schema, statistics_ids
from lakemark_server.file_index.pages.contents import (
    ADDED_VERSION,
    FileEntries,
    Integers,
    Mask,
    MemoryEntries,
    PartitionCodes,
)

# Large enough that numpy's cost for a call does not count, small enough to be skipped as a whole.
PART_FILES_MAX: Final = 8_192


@dataclass(frozen=True, eq=False)
class Part:
    """``live`` is None if all entries are alive."""

    entries: FileEntries
    live: Mask | None = None

    @property
    def schema(self) -> Schema:
        """That the files were written with."""
        return self.entries.schema

    @property
    def size(self) -> int:
        """How many entries, dead ones included."""
        return self.entries.size

    @cached_property
    def files(self) -> int:
        return self.size if self.live is None else int(self.live.sum())

    @property
    def partition_codes(self) -> PartitionCodes:
        """Per entry the index of its partition's name, and the names."""
        return self.entries.partition_codes

    @property
    def own_bytes(self) -> int:
        """In memory, without the entries."""
        return 200 + (0 if self.live is None else self.live.nbytes)

    @property
    def memory_bytes(self) -> int:
        return self.entries.memory_bytes + self.own_bytes

    def column(self, name: str) -> pa.Array[Any]:
        """One that every entry has. Raises CorruptStore."""
        return self.entries.column(name)

    @property
    def live_places(self) -> Integers | None:
        """None if all are alive."""
        return None if self.live is None else np.flatnonzero(self.live)

    def live_mask(self) -> Mask:
        return np.ones(self.size, np.bool_) if self.live is None else self.live

    def live_entries(self) -> pa.RecordBatch:
        batch = self.entries.batch()
        return batch if self.live is None else batch.filter(pa.array(self.live))

    def total(self, name: str) -> int:
        """Sum of an integer column over the live entries."""
        known = self.entries.known_total(name) if self.live is None else None
        if known is not None:
            return known
        values = self.column(name).to_numpy()
        return int(values.sum() if self.live is None else values[self.live].sum())

    def masked(self, mask: Mask) -> Part | None:
        """With only those entries alive that were and that the mask has; None if there are none."""
        live = mask if self.live is None else self.live & mask
        count = np.count_nonzero(live)
        if not count:
            return None
        return self if count == self.files else Part(self.entries, live)

    def only(self, places: Integers) -> Part | None:
        """With only those entries alive that were and that are at these places; None if there are none."""
        mask = np.zeros(self.size, np.bool_)
        mask[places] = True
        return self.masked(mask)

    def without(self, partitions: frozenset[str]) -> Part | None:
        """The part after these partitions were replaced; None if nothing is left."""
        codes, names = self.partition_codes
        gone = np.array([name in partitions for name in names], np.bool_)
        return self.masked(~gone[codes]) if gone.any() else self

    def added_by(self, version: int) -> Part:
        """The same files as added by another version."""
        return Part(self.entries.added_by(version), self.live)


def in_memory(batch: pa.RecordBatch, schema: Schema) -> Part:
    """Entries with ``added_version``."""
    return Part(MemoryEntries(batch, schema))


def appended(parts: Sequence[Part], added: Sequence[Part]) -> list[Part]:
    """The parts with further ones at the end.

    Small neighbours in memory are merged as they come: each entry moves O(log n) times, so that ten thousand one-file
    commits do not become ten thousand parts. Files of different schemas do not share a part.
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


def _alike(one: Part, other: Part) -> bool:
    memory = isinstance(one.entries, MemoryEntries) and isinstance(other.entries, MemoryEntries)
    return memory and one.schema.schema_id == other.schema.schema_id


def _grouped(added: Sequence[Part]) -> Iterator[Part]:
    """Neighbours in memory that fit into one part together; stored ones as they are."""
    group: list[pa.RecordBatch] = []
    files = 0
    of: Part | None = None
    for part in added:
        if of is not None and not _alike(of, part):
            yield in_memory(concat(group, of.schema), of.schema)
            group, files, of = [], 0, None
        if not isinstance(part.entries, MemoryEntries):
            yield part
            continue
        batch = part.live_entries()
        for start in range(0, batch.num_rows, PART_FILES_MAX):
            piece = batch.slice(start, PART_FILES_MAX)
            if group and files + piece.num_rows > PART_FILES_MAX:
                yield in_memory(concat(group, part.schema), part.schema)
                group, files = [], 0
            of = part
            group.append(piece)
            files += piece.num_rows
    if of is not None:
        yield in_memory(concat(group, of.schema), of.schema)


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
