"""Rows that a statement wrote become files of buckets: changes by key (deltas), or base files.

Spark writes files that span the buckets of a partition, without the columns that deltas have. Here they are written
again, one file for each bucket. Rows pass through in bounded memory: they are gathered up to a size, put in the order
of their buckets, and appended to the files of these. Whether a key occurs twice is told by the hashes of all keys,
which stay in memory, four bytes each; only keys whose hash occurs twice are looked at again.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from lakemark_core.errors import InvalidArgument, InvalidFile, LimitExceeded
from lakemark_core.evolution.arrow import as_column
from lakemark_core.merge_sql import COLUMNS, DELTA_FIELDS, INSTANT, OPERATION
from lakemark_core.storage import has_directories, storage_error
from lakemark_core.table_kind import TableKind
from lakemark_core.types import ColumnValue, is_floating, schema_to_arrow, to_arrow
from lakemark_server.doors.key_hashes import Hashes, buckets_of, hashes_of
from lakemark_server.doors.statement_rows import BATCH_ROWS, KeyedRows, RowReader, check_partition, relaxed

GATHERED_BYTES: Final = 64 << 20
"""So many bytes of rows are gathered before they are appended to their files."""
FILES_AT_ONCE: Final = 32
"""So many files are written at once; of more buckets the rows are read several times."""
READS_MAX: Final = 32
ROWS_MAX: Final = 50_000_000
"""Of a partition: their hashes are in memory."""
SUSPECTS_MAX: Final = 100_000
"""So many keys with hashes that occur twice are compared at once."""

_SPARK_VERSION: Final = b"org.apache.spark.version"


@dataclass(frozen=True, slots=True)
class BucketFile:
    """A file that was written. ``nans``: how many there are in each column of floating point, by id; of base files."""

    name: str
    partition: tuple[ColumnValue, ...]
    bucket: int
    nans: dict[int, int]


@dataclass(slots=True)
class _Open:
    """A file that is written, one row group after the other."""

    sink: pa.NativeFile
    writer: Any
    nans: dict[int, int] = field(default_factory=dict)

    def close(self) -> None:
        try:
            self.writer.close()
        finally:
            self.sink.close()


class _TooManyFilesError(Exception):
    """The rows do not fit into memory, and have more buckets than files are written at once."""


def write_bucket_files(
    rows: KeyedRows,
    partition: tuple[ColumnValue, ...],
    sources: Sequence[str],
    place: str,
    system: fs.FileSystem,
    readers: Executor,
) -> list[BucketFile]:
    """Writes the rows of a partition's files, in the directory ``place``; paths are those of ``system``.

    One file for each bucket that has rows. Raises InvalidSchema, InvalidFile for rows that do not fit; InvalidArgument
    for a key that has a null or occurs twice, with an example; LimitExceeded; Unavailable, StorageRefused.
    """
    check_partition(rows, partition)
    try:
        if has_directories(system):
            system.create_dir(place, recursive=True)
        one_pass = _Pass(rows, partition, place, system, readers)
        try:
            return one_pass.write(sources, None)
        except _TooManyFilesError:
            numbers = _numbers(rows.kind)
            parts = [numbers[at : at + FILES_AT_ONCE] for at in range(0, len(numbers), FILES_AT_ONCE)]
        if len(parts) > READS_MAX:
            raise LimitExceeded(
                f"the statement has too many rows for the {len(numbers)} buckets of a partition of {rows.table}; with "
                "several statements of fewer rows, or with lakemark_spark, it can be done"
            )
        return [one for part in parts for one in one_pass.write(sources, part)]
    except pa.ArrowInvalid as error:
        raise InvalidFile(f"the rows for {rows.table} cannot be read: {error}", table=rows.table) from error
    except OSError as error:
        raise storage_error(f"rows of {rows.table} cannot be written again", system, place, error) from error


class _Pass:
    """Writes the rows of a partition, or those of some of its buckets, by one look at them."""

    def __init__(
        self,
        rows: KeyedRows,
        partition: tuple[ColumnValue, ...],
        place: str,
        system: fs.FileSystem,
        readers: Executor,
    ) -> None:
        self._rows = rows
        self._partition = partition
        self._place = place
        self._system = system
        self._reader = RowReader(rows, system, readers)
        self._key = rows.kind.bucket_fields(rows.schema)
        self._names = [one.name for one in self._key]
        self._written = _arrow_schema(rows)
        self._open: dict[int, _Open] = {}

    def write(self, sources: Sequence[str], buckets: Sequence[int] | None) -> list[BucketFile]:
        """``buckets``: those of which rows are written; None: all. Raises _TooManyFilesError if these are too many."""
        many = len(_numbers(self._rows.kind)) > FILES_AT_ONCE if buckets is None else False
        hashes: list[Hashes] = []
        rows = 0
        gathered: list[tuple[pa.Table, Hashes]] = []
        files: list[BucketFile] = []
        size = 0
        with ExitStack() as stack:
            stack.callback(self._abandon)
            for table, keys in self._keyed(sources, buckets):
                if not len(keys):
                    continue
                hashes.append(keys)
                rows += len(keys)
                if rows > ROWS_MAX:
                    raise LimitExceeded(
                        f"the statement has more than {ROWS_MAX} rows for a partition of {self._rows.table}: cut it "
                        "into several, or use lakemark_spark"
                    )
                gathered.append((table, keys))
                size += table.nbytes
                if size >= GATHERED_BYTES:
                    if many:
                        raise _TooManyFilesError
                    self._append(gathered)
                    gathered, size = [], 0
            files += self._append(gathered, last=True)
            files += [self._closed(bucket) for bucket in sorted(self._open)]
        self._check_repeated(hashes, files)
        return files

    def _keyed(self, sources: Sequence[str], buckets: Sequence[int] | None) -> Iterator[tuple[pa.Table, Hashes]]:
        """The rows with the hashes of their keys."""
        for table in self._reader.tables(sources):
            keys = self._hashes(table)
            if buckets is None:
                yield table, keys
            else:
                among = np.isin(buckets_of(keys, self._rows.kind), buckets)
                yield table.filter(pa.array(among)), keys[among]

    def _append(self, gathered: Sequence[tuple[pa.Table, Hashes]], *, last: bool = False) -> list[BucketFile]:
        """``last``: nothing comes after it, so that a file is closed before the next one is opened."""
        if not gathered:
            return []
        rows = pa.concat_tables([table for table, _ in gathered])
        buckets = buckets_of(np.concatenate([keys for _, keys in gathered]), self._rows.kind)
        order = np.argsort(buckets, kind="stable")
        rows = self._whole(rows.take(order))
        numbers, starts = np.unique(buckets[order], return_index=True)
        ends = [*starts[1:].tolist(), rows.num_rows]
        files: list[BucketFile] = []
        for bucket, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
            part = rows.slice(start, end - start)
            if bucket not in self._open:
                sink = self._system.open_output_stream(self._path(bucket))
                self._open[bucket] = _Open(sink, pq.ParquetWriter(sink, self._as_from_spark()))
            one = self._open[bucket]
            one.writer.write_table(part)
            if not self._rows.operation:
                for column in self._rows.schema.data_columns:
                    if is_floating(column.type):
                        nans = pc.sum(pc.call_function("is_nan", [part.column(column.name)])).as_py() or 0
                        one.nans[column.id] = one.nans.get(column.id, 0) + nans
            if last:
                files.append(self._closed(bucket))
        return files

    def _whole(self, rows: pa.Table) -> pa.Table:
        """With all columns that the files have."""
        count = rows.num_rows
        arrays: dict[str, Any] = {name: rows.column(name) for name in rows.column_names}
        if self._rows.operation:
            values = {OPERATION: self._rows.operation, INSTANT: self._rows.instant, COLUMNS: None}
            for one in DELTA_FIELDS:
                arrays[one.name] = pa.repeat(pa.scalar(values[one.name], cast(Any, to_arrow(one.type))), count)
        columns = [
            arrays[name] if name in arrays else pa.nulls(count, self._written.field(name).type)
            for name in self._written.names
        ]
        return pa.Table.from_arrays(columns, schema=self._written)

    def _as_from_spark(self) -> pa.Schema:
        """With the release of Spark that wrote the rows.

        It tells Spark that days before 1582 are what they seem to be.
        """
        version = self._reader.told.get(_SPARK_VERSION)
        return self._written if version is None else self._written.with_metadata({_SPARK_VERSION: version})

    def _closed(self, bucket: int) -> BucketFile:
        one = self._open.pop(bucket)
        one.close()
        return BucketFile(posixpath.basename(self._path(bucket)), self._partition, bucket, one.nans)

    def _abandon(self) -> None:
        """Nothing is left open after an error; the files are deleted by the caller."""
        while self._open:
            _, one = self._open.popitem()
            with suppress(OSError, pa.ArrowException):
                one.close()

    def _path(self, bucket: int) -> str:
        kind = self._rows.operation or "base"
        return posixpath.join(self._place, f"{kind}-{self._rows.kind.group_name(bucket)}.parquet")

    def _hashes(self, table: pa.Table) -> Hashes:
        return hashes_of([cast(Any, table.column(name).combine_chunks()) for name in self._names], self._key)

    def _check_repeated(self, hashes: Sequence[Hashes], files: Sequence[BucketFile]) -> None:
        """Raises InvalidArgument if two rows have one key. Rows of one key have one hash, and so one bucket."""
        every = np.concatenate(hashes) if hashes else np.empty(0, np.uint32)
        every.sort()
        twice = np.unique(every[1:][every[1:] == every[:-1]])
        if not len(twice):
            return
        suspected = set(buckets_of(twice, self._rows.kind).tolist())
        for file in files:
            if file.bucket in suspected:
                self._compare(self._path(file.bucket), twice)

    def _compare(self, path: str, twice: Hashes) -> None:
        suspects: list[pa.Table] = []
        count, limit = 0, SUSPECTS_MAX
        with closing(pq.ParquetFile(path, filesystem=self._system, buffer_size=1 << 20)) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=self._names):
                table = self._typed_key(pa.Table.from_batches([batch]))
                among = table.filter(pa.array(np.isin(self._hashes(table), twice)))
                suspects.append(among)
                count += among.num_rows
                if count > limit:  # twice as many each time, or many keys with one hash take the square of their number
                    self._require_distinct(suspects)
                    limit *= 2
        self._require_distinct(suspects)

    def _typed_key(self, table: pa.Table) -> pa.Table:
        return pa.table({one.name: as_column(table.column(one.name), one.type, one.type) for one in self._key})

    def _require_distinct(self, suspects: Sequence[pa.Table]) -> None:
        keys = pa.concat_tables(suspects) if suspects else None
        if keys is None or not keys.num_rows:
            return
        counted: Any = keys.group_by(self._names, use_threads=False).aggregate([([], "count_all")])
        repeated = counted.filter(cast(Any, pc).greater(counted.column("count_all"), 1))
        if repeated.num_rows:
            example = {name: repeated.column(name)[0].as_py() for name in self._names}
            fields = self._rows.schema.partition_fields
            example |= {one.name: value for one, value in zip(fields, self._partition, strict=True)}
            raise InvalidArgument(
                f"the statement has several rows with one key, as {_json(example)}: which of them {self._rows.table} "
                "is to have is not known; select one of each key (row_number() over a window)"
            )


def _numbers(kind: TableKind) -> Sequence[int]:
    """The buckets into which rows are written."""
    return range(kind.buckets) if kind.directory is None else sorted(kind.directory.leaves)


def _arrow_schema(rows: KeyedRows) -> pa.Schema:
    """Of the files that are written. No column is required in them: in rows of deletes most are null."""
    fields = list(schema_to_arrow(relaxed(rows.schema)))[: len(rows.schema.data_columns)]
    more = DELTA_FIELDS if rows.operation else ()
    return pa.schema([*fields, *(pa.field(one.name, cast(Any, to_arrow(one.type))) for one in more)])


def _json(example: dict[str, ColumnValue]) -> str:
    return json.dumps(example, default=str, ensure_ascii=False)
