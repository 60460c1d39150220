"""Rows of planned files, read with pyarrow, for results that fit in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from lakemark.files import DataFile, groups_of, without_settled_deletes
from lakemark.reading.filters import to_arrow_filter
from lakemark.reading.merge import merge_rows
from lakemark.reading.plan import Plan, require_no_deltas
from lakemark_core.errors import FailedPrecondition, InvalidArgument, InvalidFile, Unavailable
from lakemark_core.evolution import sources_of
from lakemark_core.evolution.arrow import as_column
from lakemark_core.expressions import TRUE, Expr, bind, columns_of, normalize, parse_predicate
from lakemark_core.merge_sql import DELTA_FIELDS
from lakemark_core.storage import again, join, open_location, storage_error
from lakemark_core.table_kind import TableKind
from lakemark_core.types import Field, Schema, schema_to_arrow, to_arrow

THREADS: Final = 8


def read_plan(plan: Plan, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of the planned files that satisfy the plan's predicate. Raises as ``Client.read``."""
    schema, tables = scan_plan(plan, columns)
    return pa.concat_tables([schema.empty_table(), *tables])


def scan_plan(plan: Plan, columns: Sequence[str] | None = None) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """The same rows in parts, and their schema: a file is read when its part is near, and forgotten after it.

    File groups with deltas come last, merged, in one part. What is wrong with the request is raised here, and what is
    wrong with a file by the iterator.
    """
    schema = plan.schema
    if columns is not None and not columns:
        raise InvalidArgument("no columns are named: None reads all of them, and Client.aggregate counts rows")
    wanted = [schema.field(name) for name in columns] if columns is not None else list(schema.columns)
    return _read(plan, without_settled_deletes(plan.files()), wanted, _predicate(plan.predicate, schema))


def read_files(plan: Plan, files: Sequence[DataFile]) -> pa.Table:
    """All rows of some files of the plan, which are whole file groups where there are deltas. Raises as
    ``read_plan``."""
    schema, tables = _read(plan, without_settled_deletes(files), plan.schema.columns, TRUE)
    return pa.concat_tables([schema.empty_table(), *tables])


def _read(
    plan: Plan, files: Sequence[DataFile], wanted: Sequence[Field], predicate: Expr
) -> tuple[pa.Schema, Iterator[pa.Table]]:
    schema = plan.schema
    needed = {path.path[0].lower() for path in columns_of(predicate)} | {field.name.lower() for field in wanted}
    changed = groups_of(file for file in files if file.kind == "delta")
    kind = plan.kind() if changed else TableKind()
    if changed:
        needed |= {name.lower() for name in (*kind.key, kind.ordering_column)}
    fields = [field for field in schema.columns if field.name.lower() in needed]
    keep = None if predicate == TRUE else to_arrow_filter(predicate, schema)
    system, root = open_location(plan.location)
    if changed and not kind.buckets:
        require_no_deltas(files, plan.version)
    sources = {file.schema_id: sources_of(fields, plan.file_schema(file).data_columns) for file in files}
    settled: list[DataFile] = []
    unmerged: list[DataFile] = []
    for file in files:
        (unmerged if changed.touch(file.partition, file.file_group) else settled).append(file)
    whole = partial(_read_file, system=system, root=root, fields=fields, schema=schema, keep=keep)

    def read(file: DataFile, merged: bool) -> pa.Table:
        return whole(file, sources[file.schema_id], merged)

    def tables() -> Iterator[pa.Table]:
        with ThreadPoolExecutor(THREADS) as pool:
            yield from _ahead(pool, partial(read, merged=False), settled)
            if unmerged:
                parts = list(pool.map(partial(read, merged=True), unmerged))
                yield _merged(unmerged, parts, fields, schema, kind, keep)

    names = [field.name for field in wanted]
    result = pa.schema([schema_to_arrow(schema).field(name) for name in names])
    return result, (table.select(names) for table in tables())


def _ahead(pool: Executor, read: Callable[[DataFile], pa.Table], files: Iterable[DataFile]) -> Iterator[pa.Table]:
    """What ``read`` makes of the files, in their order, at most ``THREADS`` of them before they are asked for."""
    waiting: deque[Future[pa.Table]] = deque()
    for file in files:
        waiting.append(pool.submit(read, file))
        if len(waiting) > THREADS:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _merged(
    files: Sequence[DataFile],
    tables: Sequence[pa.Table],
    fields: Sequence[Field],
    schema: Schema,
    kind: TableKind,
    keep: Any,
) -> pa.Table:
    """The rows of file groups with deltas for which the predicate is true."""
    empty = pa.schema([schema_to_arrow(schema).field(field.name) for field in fields]).empty_table()
    pairs = list(zip(files, tables, strict=True))
    bases = pa.concat_tables([empty, *(table for file, table in pairs if file.kind == "base")])
    log = pa.concat_tables([table for file, table in pairs if file.kind == "delta"])
    rows = merge_rows(bases, log, schema, kind)
    return rows if keep is None else rows.filter(keep)


def _predicate(text: str | None, schema: Schema) -> Expr:
    if text is None:
        return TRUE
    try:
        parsed = parse_predicate(text)
    except ImportError as error:
        raise FailedPrecondition(
            "evaluating a predicate here needs sqlglot: pip install 'lakemark[server]'; a plan does not need it"
        ) from error
    return normalize(bind(parsed, schema))


def _read_file(
    file: DataFile,
    sources: Mapping[int, Field],
    merged: bool,
    *,
    system: fs.FileSystem,
    root: str,
    fields: list[Field],
    schema: Schema,
    keep: Any,
) -> pa.Table:
    """``sources``: by id, ``fields`` in the schema of the file, with other names and types perhaps.

    ``merged``: the rows are not yet those of the table, and those of a delta have ``DELTA_FIELDS``, too.
    """
    path = join(root, file.path)
    more = DELTA_FIELDS if file.kind == "delta" else ()
    names = [source.name.lower() for source in (*sources.values(), *more)]

    def read() -> tuple[pa.Table, dict[str, str]]:
        # INT96 holds nanoseconds, which reach only from 1677 to 2262; the table's unit has no such limit.
        with pq.ParquetFile(path, filesystem=system, coerce_int96_timestamp_unit="us") as parquet:
            by_name = {name.lower(): name for name in parquet.schema_arrow.names}
            return parquet.read(columns=[by_name[name] for name in names if name in by_name]), by_name

    try:
        data, by_name = again(system, path, read)
    except FileNotFoundError as error:
        raise InvalidFile(f"file {path!r} of the plan does not exist", path=path) from error
    except pa.ArrowInvalid as error:
        raise Unavailable(f"file {path!r} cannot be read: {error}", path=path) from error
    except OSError as error:
        raise storage_error(f"file {path!r} cannot be read", system, path, error) from error
    partition = dict(zip((field.name for field in schema.partition_fields), file.partition, strict=True))
    arrays = [_column(field, sources.get(field.id), data, by_name, partition, file.row_count) for field in fields]
    table = pa.Table.from_arrays(
        arrays, schema=pa.schema([schema_to_arrow(schema).field(field.name) for field in fields])
    )
    for field in more:
        table = table.append_column(field.name, data.column(by_name[field.name]))
    return table if keep is None or merged or file.matches_entirely else table.filter(keep)


def _column(
    field: Field,
    source: Field | None,
    data: pa.Table,
    by_name: Mapping[str, str],
    partition: Mapping[str, Any],
    rows: int,
) -> pa.ChunkedArray[Any]:
    arrow_type: Any = to_arrow(field.type)
    if field.name in partition:
        value: Any = pa.scalar(partition[field.name], arrow_type)
        return pa.chunked_array([pa.repeat(value, rows)])
    stored = None if source is None else by_name.get(source.name.lower())
    if source is None or stored is None:
        return pa.chunked_array([pa.nulls(rows, arrow_type)])
    return as_column(data.column(stored), source.type, field.type)
