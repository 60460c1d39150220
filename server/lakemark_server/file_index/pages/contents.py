"""Entries of files that were written with one schema: in memory, or in pages of the store that are read on demand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark_core.errors import CorruptStore
from lakemark_core.types import Field, Schema, Type
from lakemark_proto.v1 import types_pb2
from lakemark_server.file_index.arrow import AnyArray, array_bytes, batch_bytes, dictionary, nulls
from lakemark_server.file_index.entries.columns import FIXED, entry_schema, instants_of, statistics_ids
from lakemark_server.file_index.pages.page import Page, PathRuns
from lakemark_server.file_index.pages.runs import Runs, constant, joined, runs_of
from lakemark_server.file_index.pages.source import PageSource
from lakemark_server.file_index.pages.zone_table import ZoneTable, zone_of
from lakemark_server.store.keyspace import BASE_PAGES, BLOCKS

ADDED_VERSION: Final = pa.field("added_version", pa.int64())
SCHEMA_ID: Final = pa.field("schema_id", pa.int32())
REPORTED: Final = FIXED.append(ADDED_VERSION).append(SCHEMA_ID)
"""The columns that readers get of every file, whatever schema they read it with."""
REMOVED_VERSION: Final = pa.field("removed_version", pa.int64())

_DERIVED_BYTES: Final = 4_000  # instants, partitions, zones and REPORTED columns of entries in memory, once computed

Mask = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
PartitionCodes = tuple[npt.NDArray[np.int32], list[str]]


class FileEntries(ABC):
    """Immutable; compared by identity. Every entry has the version that added it."""

    schema: Schema
    size: int
    statistics_ids: frozenset[int]

    @abstractmethod
    def find_column(self, name: str, *, keep: bool = True) -> AnyArray | None:
        """A column of ``entry_schema``, or ``added_version``; None if no entry has it.

        ``keep``: whether the cache keeps a decoded column.
        """

    def column(self, name: str, *, keep: bool = True) -> AnyArray:
        """A column that every entry has. Raises CorruptStore."""
        array = self.find_column(name, keep=keep)
        if array is None:
            raise CorruptStore(f"file entries lack the column {name!r}")
        return array

    def told(self) -> pa.RecordBatch:
        """The REPORTED columns."""
        arrays: list[AnyArray] = []
        for field in REPORTED:
            if field == SCHEMA_ID:
                arrays.append(pa.array(np.full(self.size, self.schema.schema_id, np.int32)))
            else:
                array = self.find_column(field.name, keep=False)
                arrays.append(nulls(self.size, field.type) if array is None else array)
        return pa.RecordBatch.from_arrays(arrays, schema=REPORTED)

    def runs(self, name: str) -> Runs:
        """A column that every entry has, as runs of equal values. Not cached."""
        return runs_of(self.column(name, keep=False))

    def path_runs(self) -> PathRuns:
        """The pieces of all paths, as runs of equal values. Not cached."""
        pieces: Any = pc.call_function(
            "split_pattern", [self.column("path", keep=False)], pc.SplitPatternOptions("/", max_splits=2, reverse=True)
        )
        above, directory, file_name = (
            runs_of(pc.call_function("list_element", [pieces, pa.scalar(at)])) for at in range(3)
        )
        return PathRuns(above, directory, file_name)

    @property
    @abstractmethod
    def partition_codes(self) -> PartitionCodes:
        """The index of each entry's partition name, and the names."""

    @property
    @abstractmethod
    def instants(self) -> Integers:
        """The instant that wrote each file, from the name of its directory; -1 if that is not a number."""

    @property
    @abstractmethod
    def instant_range(self) -> tuple[int, int]:
        """The least and the greatest instant."""

    @property
    @abstractmethod
    def has_deltas(self) -> bool:
        """Whether any entry is a delta, dead ones included."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """How much memory the entries take themselves, without what caches keep of them."""

    @abstractmethod
    def added_by(self, version: int) -> FileEntries:
        """The same files as if another version had added them."""

    def page_with(self, first: int, last: int) -> tuple[FileEntries, int] | None:
        """The entries of the one page that covers the places ``first`` to ``last``, and the place where it begins.

        None if several pages cover them, or if all entries are on one page.
        """
        return None

    @cached_property
    def name(self) -> Hashable:
        """The key of these entries in caches, which then need not keep the entries themselves alive."""
        return object()

    @cached_property
    def zones(self) -> dict[tuple[int, Type], tuple[Any, ...]]:
        """The zones computed so far (see ``pruning.zones``), by column id and the type that the reader's schema has."""
        return {}

    zone_table: ZoneTable | None = None
    """The zones of the base that has these entries; theirs are in the row ``zone_row_number``."""
    zone_row_number: int = 0

    def known_zone(self, field: Field) -> tuple[Any, Any, int | None, int | None] | None:
        """Low, high, nulls and NaNs of a column, in the type of the files' schema; None if they must be computed."""
        return None

    def known_total(self, name: str) -> int | None:
        """The sum of an integer column; None if it must be computed."""
        return None

    def batch(self) -> pa.RecordBatch:
        """All columns."""
        wanted = entry_schema(self.schema, self.statistics_ids).append(ADDED_VERSION)
        arrays = []
        for field in wanted:
            array = self.find_column(field.name)
            arrays.append(nulls(self.size, field.type) if array is None else array)
        return pa.RecordBatch.from_arrays(arrays, schema=wanted)


class MemoryEntries(FileEntries):
    """A few entries in memory, as one batch."""

    def __init__(self, batch: pa.RecordBatch, schema: Schema) -> None:
        self.schema = schema
        self.size = batch.num_rows
        self._batch = batch

    @cached_property
    def statistics_ids(self) -> frozenset[int]:  # type: ignore[override]
        return frozenset(statistics_ids(self._batch.schema.names))

    def find_column(self, name: str, *, keep: bool = True) -> AnyArray | None:
        at = self._batch.schema.get_field_index(name)
        return None if at < 0 else self._batch.column(at)

    def told(self) -> pa.RecordBatch:
        return self._told

    @cached_property
    def _told(self) -> pa.RecordBatch:
        return super().told()

    @cached_property
    def partition_codes(self) -> PartitionCodes:
        return dictionary(self._batch.column("partition"))

    @cached_property
    def instants(self) -> Integers:
        return instants_of(self._batch.column("path"))

    @cached_property
    def instant_range(self) -> tuple[int, int]:
        return int(self.instants.min()), int(self.instants.max())

    @cached_property
    def has_deltas(self) -> bool:
        return bool((self._batch.column("kind").to_numpy() == types_pb2.DELTA).any())

    @cached_property
    def memory_bytes(self) -> int:
        return batch_bytes(self._batch) + 12 * self.size + _DERIVED_BYTES

    def added_by(self, version: int) -> FileEntries:
        at = self._batch.schema.get_field_index(ADDED_VERSION.name)
        plain = self._batch if at < 0 else self._batch.remove_column(at)
        return MemoryEntries(with_version(plain, version), self.schema)

    def batch(self) -> pa.RecordBatch:
        return self._batch


def with_version(batch: pa.RecordBatch, version: int) -> pa.RecordBatch:
    """The batch with an ``added_version`` column."""
    versions: AnyArray = pa.array(np.full(batch.num_rows, version, np.int64))
    return pa.RecordBatch.from_arrays([*batch.columns, versions], schema=_with_version(batch.schema))


@lru_cache(maxsize=256)
def _with_version(schema: pa.Schema) -> pa.Schema:
    """The schema with ``added_version``. Cached, so that all entries of a schema share one object."""
    return schema.append(ADDED_VERSION)


@dataclass(frozen=True, slots=True)
class PageRef:
    """A page in the store: a block of a commit (``owner`` is the instant) or a page of a base (``owner`` is its id).

    ``added_version`` holds for all entries of the page; 0: each entry has its own.
    """

    table_id: int
    owner: int
    number: int
    entries: int
    added_version: int = 0
    block: bool = False

    @property
    def key(self) -> bytes:
        """The key of the page in the store."""
        return (BLOCKS if self.block else BASE_PAGES).key(self.table_id, self.owner, self.number)


class Summary(NamedTuple):
    """What a base knows of stored entries without reading them."""

    statistics_ids: frozenset[int]
    instant_range: tuple[int, int]
    has_deltas: bool
    zones: ZoneTable
    row: int


class StoredEntries(FileEntries):
    """Entries in pages of the store. Columns are decoded on demand and cached separately."""

    def __init__(self, pages: Sequence[PageRef], schema: Schema, source: PageSource, summary: Summary | None = None):
        self.schema = schema
        self.size = sum(page.entries for page in pages)
        self.pages = tuple(pages)
        self._source = source
        self._summary = summary
        if summary:
            self.zone_table, self.zone_row_number = summary.zones, summary.row
        self._name = (pages[0].key, len(pages))

    @cached_property
    def statistics_ids(self) -> frozenset[int]:  # type: ignore[override]
        if self._summary:
            return self._summary.statistics_ids
        ids = frozenset(column_id for page in self._pages() for column_id in statistics_ids(page.names))
        return frozenset(column_id for column_id in ids if self.schema.find_id(column_id) is not None)

    def find_column(self, name: str, *, keep: bool = True) -> AnyArray | None:
        if name == ADDED_VERSION.name and self.pages[0].added_version:
            versions = [page.added_version for page in self.pages]
            return pa.array(np.repeat(np.array(versions, np.int64), [page.entries for page in self.pages]))
        data_type = self._type_of(name)
        if data_type is None:
            return None
        key = (*self._name, name)

        def decoded() -> AnyArray | None:
            return self._decoded(name, data_type)

        return self._source.kept(key, decoded, _array_bytes) if keep else self._source.at_hand(key, decoded)

    def told(self) -> pa.RecordBatch:
        # The pages are those of another version, too, where a restore or a merge brought files back.
        key = (*self._name, self.pages[0].added_version, "#told")
        return self._source.kept(key, super().told, batch_bytes)

    def runs(self, name: str) -> Runs:
        data_type = self._type_of(name)
        if data_type is None:
            raise CorruptStore(f"file entries lack the column {name!r}")
        if name == ADDED_VERSION.name and self.pages[0].added_version:
            return joined([constant(pa.array([page.added_version]), page.entries) for page in self.pages])
        return joined([page.runs(name, data_type) for page in self._pages()])

    def path_runs(self) -> PathRuns:
        by_page = [page.path_runs() for page in self._pages()]
        whole = [paths for paths in by_page if paths is not None]
        if len(whole) < len(by_page):
            return super().path_runs()
        return PathRuns(*(joined(pieces) for pieces in zip(*whole, strict=True)))

    @property
    def partition_codes(self) -> PartitionCodes:
        return self._source.kept((*self._name, "#partition"), self._partition_codes, _codes_bytes)

    def _partition_codes(self) -> PartitionCodes:
        by_page = [page.partition_codes() for page in self._pages()]
        # Pages repeat each other's names: give each name one code for all pages.
        codes, names = dictionary(pa.concat_arrays([names for _, names in by_page]))
        starts = np.cumsum([0, *(len(names) for _, names in by_page[:-1])])
        pages = [codes[start + of_page] for start, (of_page, _) in zip(starts, by_page, strict=True)]
        return np.concatenate(pages), names

    @property
    def instants(self) -> Integers:
        return self._source.kept((*self._name, "#instant"), self._instants, lambda array: array.nbytes)

    def _instants(self) -> Integers:
        by_page = [page.instants() for page in self._pages()]
        if any(instants is None for instants in by_page):
            return instants_of(self.column("path"))
        return np.concatenate([instants for instants in by_page if instants is not None])

    @cached_property
    def instant_range(self) -> tuple[int, int]:
        if self._summary:
            return self._summary.instant_range
        return int(self.instants.min()), int(self.instants.max())

    @cached_property
    def has_deltas(self) -> bool:
        if self._summary:
            return self._summary.has_deltas
        kinds = self.find_column("kind")
        return kinds is not None and bool((kinds.to_numpy() == types_pb2.DELTA).any())

    @property
    def memory_bytes(self) -> int:
        return 1_000 + 200 * len(self.pages)

    def added_by(self, version: int) -> FileEntries:
        pages = [replace(page, added_version=version) for page in self.pages]
        return StoredEntries(pages, self.schema, self._source, self._summary)

    def known_zone(self, field: Field) -> tuple[Any, Any, int | None, int | None] | None:
        return zone_of(field, self._summary.zones, self._summary.row) if self._summary else None

    def known_total(self, name: str) -> int | None:
        return self._summary.zones.value(name, self._summary.row) if self._summary else None

    def zone_row(self) -> dict[str, Any] | None:
        """Totals and zones that a base knows of these entries; None if it knows none."""
        return self._summary.zones.row(self._summary.row) if self._summary else None

    def with_pages(self, pages: Sequence[PageRef]) -> StoredEntries:
        """Entries of the same schema in other pages."""
        return StoredEntries(pages, self.schema, self._source)

    def page_with(self, first: int, last: int) -> tuple[FileEntries, int] | None:
        start = 0
        for page in self.pages if len(self.pages) > 1 else ():
            if first < start + page.entries:
                return (self.with_pages([page]), start) if last < start + page.entries else None
            start += page.entries
        return None

    def removed_versions(self) -> Integers | None:
        """The version that removed each entry, from pages of a base; None if the pages do not have it."""
        versions = self._source.kept(
            (*self._name, REMOVED_VERSION.name), lambda: self._decoded(REMOVED_VERSION.name, pa.int64()), _array_bytes
        )
        return None if versions is None else np.asarray(versions.to_numpy(), np.int64)

    def _type_of(self, name: str) -> pa.DataType | None:
        if name == ADDED_VERSION.name:
            return ADDED_VERSION.type
        known = FIXED if name in FIXED.names else entry_schema(self.schema, self.statistics_ids)
        at = known.get_field_index(name)
        return None if at < 0 else known.field(at).type

    def _decoded(self, name: str, data_type: pa.DataType) -> AnyArray | None:
        columns = [page.column(name, data_type) for page in self._pages()]
        if all(column is None for column in columns):
            return None
        if len(columns) == 1:
            return columns[0]
        filled = [
            nulls(page.entries, data_type) if column is None else column
            for page, column in zip(self.pages, columns, strict=True)
        ]
        return pa.concat_arrays(filled)

    def _pages(self) -> Iterator[Page]:
        return iter(self._source.pages([page.key for page in self.pages]))


def _array_bytes(array: AnyArray | None) -> int:
    return 0 if array is None else array_bytes(array)


def _codes_bytes(codes: PartitionCodes) -> int:
    return 200 + codes[0].nbytes + sum(100 + len(name) for name in codes[1])
