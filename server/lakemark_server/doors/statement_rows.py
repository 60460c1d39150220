"""The rows of a statement into a table with a key, read part by part in bounded memory, and checked."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from lakemark_core.errors import InvalidArgument, InvalidFile, InvalidSchema
from lakemark_core.evolution.arrow import as_column
from lakemark_core.merge_sql import DELETE
from lakemark_core.parquet.stored import check_stored
from lakemark_core.storage import again
from lakemark_core.table_kind import TableKind
from lakemark_core.types import (
    BINARY,
    Char,
    ColumnValue,
    Field,
    ListOf,
    MapOf,
    Schema,
    Struct,
    Type,
    check_fits,
    is_textual,
    to_arrow,
)

READ_AHEAD: Final = 8
WHOLE_BYTES: Final = 4 << 20
"""A smaller file is read as a whole, and before its turn."""
BATCH_ROWS: Final = 1 << 14
BATCH_BYTES: Final = 8 << 20

_LEGACY: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """What is written of rows into a table with a key and buckets.

    ``schema``: the table's, with which the files were written. ``operation``: UPSERT or DELETE, for deltas; "": base
    files. Rows of a DELETE have ``TableKind.identifying_fields`` alone.
    """

    table: str
    schema: Schema
    kind: TableKind
    operation: str
    instant: int

    @property
    def given(self) -> Schema:
        """The columns that the rows have."""
        if self.operation != DELETE:
            return self.schema
        return self.kind.deletes_schema(self.schema)


class RowReader:
    """Reads the rows of files of one partition, which ``system`` has. ``readers`` read files ahead.

    ``told``: the metadata of the files that were read so far, by key.
    """

    def __init__(self, rows: KeyedRows, system: fs.FileSystem, readers: Executor) -> None:
        self._rows = rows
        self._system = system
        self._readers = readers
        self._columns = relaxed(rows.given).data_columns
        self._texts = {one.name.lower() for one in self._columns if is_textual(one.type) or one.type == BINARY}
        self._key = rows.kind.bucket_fields(rows.schema)
        self._required = _required(rows)
        self.told: dict[bytes, bytes] = {}

    def tables(self, sources: Sequence[str]) -> Iterator[pa.Table]:
        """The rows in parts, each with the data columns that they have, in the table's types."""
        waiting: deque[Future[tuple[pq.ParquetFile, pa.Table | None]]] = deque()
        pending = iter(sources)
        try:
            while True:
                while len(waiting) < READ_AHEAD and (path := next(pending, None)) is not None:
                    waiting.append(self._readers.submit(self._opened, path))
                if not waiting:
                    return
                file, whole = waiting.popleft().result()
                with closing(file):
                    self.told.update(file.metadata.metadata or {})
                    if whole is not None:
                        yield from map(self._typed, pieces(whole))
                        continue
                    for batch in file.iter_batches(batch_size=_batch_rows(file.metadata)):
                        yield from map(self._typed, pieces(pa.Table.from_batches([batch])))
        finally:
            for one in waiting:
                one.add_done_callback(_close)

    def _opened(self, path: str) -> tuple[pq.ParquetFile, pa.Table | None]:
        """A file that fits; its rows, too, if they are few. Raises InvalidSchema, InvalidFile."""

        def read() -> tuple[pq.ParquetFile, pa.Table | None]:
            file = self._file(path)
            texts = self._long_texts(file.metadata)
            if texts:
                with closing(file):
                    # They are small in the file, and in memory as long as they are not decoded.
                    file = self._file(path, metadata=file.metadata, read_dictionary=texts)
            try:
                self._check(file.metadata)
                small = file.metadata.num_rows <= BATCH_ROWS and _decoded_bytes(file.metadata) <= WHOLE_BYTES
                return file, file.read(use_threads=False) if small else None
            except BaseException:
                file.close()
                raise

        try:
            return again(self._system, path, read)
        except pa.ArrowInvalid as error:
            raise InvalidFile(f"{path!r} is not a readable parquet file: {error}", path=path) from error

    def _file(self, path: str, **more: Any) -> pq.ParquetFile:
        # INT96 holds nanoseconds, which reach only from 1677 to 2262; the table's unit has no such limit.
        return pq.ParquetFile(
            path, filesystem=self._system, coerce_int96_timestamp_unit="us", buffer_size=1 << 20, **more
        )

    def _long_texts(self, metadata: pq.FileMetaData) -> list[str]:
        """The columns of which few values may be repeated so often that they are too large decoded."""
        largest: dict[str, int] = {}
        for group in (metadata.row_group(at) for at in range(metadata.num_row_groups)):
            for column in (group.column(at) for at in range(group.num_columns)):
                if column.path_in_schema.lower() in self._texts and column.has_dictionary_page:
                    size_bytes = group.num_rows * column.total_uncompressed_size
                    largest[column.path_in_schema] = max(size_bytes, largest.get(column.path_in_schema, 0))
        return [name for name, size_bytes in largest.items() if size_bytes > BATCH_BYTES]

    def _check(self, metadata: pq.FileMetaData) -> None:
        rows = self._rows
        reasons = check_fits(rows.given, metadata.schema.to_arrow_schema()) or check_stored(rows.given, metadata)
        told = metadata.metadata or {}
        if any(name in told for name in _LEGACY):
            reasons.append(
                "days or instants are written in the calendar of Spark 2: set "
                "spark.sql.parquet.datetimeRebaseModeInWrite and int96RebaseModeInWrite to CORRECTED"
            )
        if reasons:
            raise InvalidSchema(f"the rows do not fit {rows.table}: {'; '.join(reasons)}", table=rows.table)

    def _typed(self, table: pa.Table) -> pa.Table:
        by_name = {name.lower(): name for name in table.column_names}
        key = {one.name for one in self._key}
        columns: dict[str, pa.ChunkedArray[Any]] = {}
        for one in self._columns:
            stored = by_name.get(one.name.lower())
            if stored is None:
                columns[one.name] = pa.chunked_array([pa.nulls(table.num_rows, cast(Any, to_arrow(one.type)))])
                continue
            column = as_column(table.column(stored), one.type, one.type)
            if isinstance(one.type, Char) and one.name in key:
                column = cast(Any, pc).utf8_rpad(column, one.type.length)
            columns[one.name] = column
        for one in self._required:
            if columns[one.name].null_count:
                why = "is NOT NULL" if not one.nullable else "puts changes in order"
                raise InvalidArgument(
                    f"column '{one.name}' of {self._rows.table} {why}, and the statement has rows without a value in it"
                )
        for one in self._key:
            if columns[one.name].null_count:
                raise _null_key(self._rows.table, one)
        return pa.table(columns)


def _required(rows: KeyedRows) -> list[Field]:
    """The columns of files that have a value in every row, beside those of the key."""
    required = rows.kind.required_fields(rows.schema)
    if rows.operation == DELETE:
        required = [one for one in required if one.name.lower() == rows.kind.ordering_column.lower()]
    return [one for one in required if not rows.schema.is_partition(one.name)]


def check_partition(rows: KeyedRows, partition: tuple[ColumnValue, ...]) -> None:
    """Raises InvalidArgument if a partition column has no value: the key has all of them."""
    for one, value in zip(rows.schema.partition_fields, partition, strict=True):
        if value is None:
            raise _null_key(rows.table, one, empty=is_textual(one.type))


def _null_key(table: str, column: Field, *, empty: bool = False) -> InvalidArgument:
    kind = "a null or an empty text" if empty else "a null"
    return InvalidArgument(
        f"the statement has rows with {kind} in column '{column.name}', which belongs to the key of {table}: a null "
        "equals nothing, so such rows would be inserted again each time; filter them, or give them a value"
    )


def relaxed(schema: Schema) -> Schema:
    """The same columns, which may all be null, with everything in them."""
    columns = tuple(Field(one.id, one.name, _relaxed_type(one.type)) for one in schema.columns)
    return Schema(columns, schema.partition_columns, schema.schema_id)


def _relaxed_type(column_type: Type) -> Type:
    match column_type:
        case Struct(fields):
            return Struct(tuple(Field(one.id, one.name, _relaxed_type(one.type)) for one in fields))
        case ListOf(element, element_id):
            return ListOf(_relaxed_type(element), element_id, True)
        case MapOf(key, value, key_id, value_id):
            return MapOf(_relaxed_type(key), _relaxed_type(value), key_id, value_id, True)
    return column_type


def _decoded_bytes(metadata: pq.FileMetaData) -> int:
    """How large the rows are, encoded and not compressed."""
    return sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))


def _batch_rows(metadata: pq.FileMetaData) -> int:
    a_row = max(1, _decoded_bytes(metadata) // max(1, metadata.num_rows))
    return max(1, min(BATCH_ROWS, BATCH_BYTES // a_row))


def pieces(table: pa.Table) -> Iterator[pa.Table]:
    """The rows of a table in slices, of which each has at most ``BATCH_BYTES`` of texts once they are decoded, or one
    row. Texts within structs and lists are not counted."""
    sizes = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            sizes += np.concatenate([_decoded_lengths(chunk) for chunk in column.chunks] or [sizes[:0]])
    ends = np.cumsum(sizes)
    start = 0
    while start < table.num_rows:
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + BATCH_BYTES, side="right")))
        yield table.slice(start, end - start)
        start = end


def _decoded_lengths(chunk: Any) -> npt.NDArray[np.int64]:
    """How many bytes each value has; 0: null."""
    lengths: Any = pc.binary_length(chunk.dictionary)
    taken: Any = lengths.take(chunk.indices)
    return np.asarray(taken.fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _close(future: Future[tuple[pq.ParquetFile, pa.Table | None]]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result()[0].close()
