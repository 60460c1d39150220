"""A snapshot: the live files of one version, as immutable parts that versions share.

Versions are folded in order: each takes away what it replaced and adds its own entries. A part is a block of entries
with a mask of those still alive; adding never touches the parts before, replacing makes new masks. Small neighbouring
parts are merged as they come (each entry moves O(log n) times), so that ten thousand one-file commits do not become ten
thousand parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.types import Schema
from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_proto.v1 import timeline_pb2
from lakemark_server.snapshot.arrow import concat_batches, dictionary, nulls
from lakemark_server.snapshot.entries import entry_schema, statistics_ids

# Large enough that numpy's cost for a call does not count, small enough to be skipped as a whole.
PART_FILES_MAX: Final = 8_192
ADDED_VERSION: Final = pa.field("added_version", pa.int64())

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Part:
    """Entries in the order of their versions; ``live`` is None if all are alive."""

    entries: pa.RecordBatch
    live: Mask | None = None

    @cached_property
    def files(self) -> int:
        return self.entries.num_rows if self.live is None else int(self.live.sum())

    @cached_property
    def zones(self) -> dict[int, tuple[Any, ...]]:
        """What ``snapshot.zones`` has found out, by column id; entries never change."""
        return {}

    @cached_property
    def partition_codes(self) -> tuple[npt.NDArray[np.int32], list[str]]:
        """Per entry the index of its partition's name, and the names."""
        return dictionary(self.entries.column("partition"))

    def column(self, name: str) -> pa.Array[Any]:
        return self.entries.column(name)

    def live_entries(self) -> pa.RecordBatch:
        return self.entries if self.live is None else self.entries.filter(pa.array(self.live))

    def total(self, name: str) -> int:
        """Sum of an integer column over the live entries."""
        values = self.column(name).to_numpy()
        return int(values.sum() if self.live is None else values[self.live].sum())

    def without(self, partitions: frozenset[str]) -> Part | None:
        """The part after these partitions were replaced; None if nothing is left."""
        codes, names = self.partition_codes
        gone = np.array([name in partitions for name in names], np.bool_)
        if not gone.any():
            return self
        live = ~gone[codes] if self.live is None else self.live & ~gone[codes]
        return Part(self.entries, live) if live.any() else None


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The files of one version. ``record`` is None for version 0, which holds nothing."""

    version: int
    schema: Schema
    parts: tuple[Part, ...] = ()
    record: VersionRecord | None = None

    @cached_property
    def files(self) -> int:
        return sum(part.files for part in self.parts)

    @cached_property
    def rows(self) -> int:
        return sum(part.total("row_count") for part in self.parts)

    @cached_property
    def size_bytes(self) -> int:
        return sum(part.total("size_bytes") for part in self.parts)

    @cached_property
    def memory_bytes(self) -> int:
        return sum(part.entries.nbytes for part in self.parts) + 2_000

    @cached_property
    def derived(self) -> dict[str, object]:
        """Small things that others made from the snapshot, by a name of theirs; it never changes."""
        return {}

    def entries(self) -> pa.RecordBatch:
        """All live entries in one batch."""
        return concat([part.live_entries() for part in self.parts], self.schema)


def empty(schema: Schema) -> Snapshot:
    return Snapshot(0, schema)


def fold(
    base: Snapshot, versions: Sequence[tuple[VersionRecord, Sequence[pa.RecordBatch]]], schema: Schema
) -> Snapshot:
    """``base`` with the following versions, each with the entries that it added, applied in order."""
    parts = list(base.parts)
    pending: list[pa.RecordBatch] = []
    record = base.record
    for record, added in versions:
        if record.operation in (timeline_pb2.OVERWRITE_TABLE, timeline_pb2.OVERWRITE_PARTITIONS):
            parts = _replace(_appended(parts, pending, schema), record)
            pending = []
        pending += [_with_version(batch, record.version) for batch in added if batch.num_rows]
    parts = _appended(parts, pending, schema)
    version = record.version if record is not None else 0
    return Snapshot(version, schema, tuple(parts), record)


def _replace(parts: list[Part], record: VersionRecord) -> list[Part]:
    if record.operation == timeline_pb2.OVERWRITE_TABLE:
        return []
    replaced = frozenset(record.partitions)
    kept = (part.without(replaced) for part in parts)
    return [part for part in kept if part is not None]


def _with_version(entries: pa.RecordBatch, version: int) -> pa.RecordBatch:
    column = pa.array(np.full(entries.num_rows, version, np.int64))
    return entries.append_column(ADDED_VERSION, column)


def _appended(parts: list[Part], added: list[pa.RecordBatch], schema: Schema) -> list[Part]:
    parts = list(parts)
    for group in _grouped(added):
        parts.append(Part(concat(group, schema)))
        while len(parts) > 1:
            last, before = parts[-1], parts[-2]
            if before.files > 2 * last.files or before.files + last.files > PART_FILES_MAX:
                break
            parts[-2:] = [Part(concat([before.live_entries(), last.live_entries()], schema))]
    return parts


def _grouped(added: Sequence[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Neighbours that fit into one part together."""
    group: list[pa.RecordBatch] = []
    files = 0
    for batch in added:
        for start in range(0, batch.num_rows, PART_FILES_MAX):
            piece = batch.slice(start, PART_FILES_MAX)
            if group and files + piece.num_rows > PART_FILES_MAX:
                yield group
                group, files = [], 0
            group.append(piece)
            files += piece.num_rows
    if group:
        yield group


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
        arrays.append(nulls(batch.num_rows, field.type) if at < 0 else batch.column(at).cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)
