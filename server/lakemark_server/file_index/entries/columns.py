"""File entries as Arrow columns: what is staged, stored, folded, planned and sent.

One row is one data file. Columns (docs/files.md):

=====================  ==================  ====================================================================
path                   string              relative to the table's location
size_bytes, row_count  int64
file_group             string              the file's group; files of one group replace or follow each other
kind                   uint8               ``SliceKind``: 1 base, 2 delta
format                 string              "parquet"
partition              string              its name, ``month=1/origin=JFK``; "" in an unpartitioned table
base_instant           int64               for a delta: the instant of the base file under it
bucket                 int32, null         bucket of the primary key's hash
min.N, max.N           type of column N    bounds of column id N; null: unknown
null_count.N           int64               null: unknown
nan_count.N            int64               floating columns only; null: unknown
truncated.N            uint8               texts and bytes only; 1: min was cut, 2: max; null: one may have been
=====================  ==================  ====================================================================

Statistics columns are there only if a file of the block has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark_core.errors import InvalidArgument, InvalidFile
from lakemark_core.messages.values import partition_from_proto, value_from_proto
from lakemark_core.types import (
    ColumnValue,
    Field,
    Schema,
    is_floating,
    is_nested,
    may_be_cut,
    name_of_partition,
    to_arrow,
)
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.file_index.arrow import AnyArray, take, texts

_FIXED_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("path", pa.string()),
    pa.field("size_bytes", pa.int64()),
    pa.field("row_count", pa.int64()),
    pa.field("file_group", pa.string()),
    pa.field("kind", pa.uint8()),
    pa.field("format", pa.string()),
    pa.field("partition", pa.string()),
    pa.field("base_instant", pa.int64()),
    pa.field("bucket", pa.int32()),
]
FIXED: Final = pa.schema(_FIXED_FIELDS)
REQUIRED: Final = frozenset({"path", "size_bytes", "row_count", "partition"})
STATISTICS: Final = ("min", "max", "null_count", "nan_count")
TRUNCATED: Final = "truncated"
MIN_CUT, MAX_CUT = 1, 2
_STATISTICS_NAME: Final = re.compile(r"(?:min|max|null_count|nan_count|truncated)\.([1-9][0-9]{0,9})")
_INSTANT: Final = re.compile(r"[0-9]{1,18}")
_DIGITS_MAX: Final = 18
_FEW: Final = 16
_NAMES_KEPT_MAX: Final = 200
PARTITIONS_KNOWN_MAX: Final = 10_000
FORMATS: Final = frozenset({"parquet"})
_KINDS: Final = frozenset(pb.SliceKind.values())


def statistics_type(kind: str, field: Field) -> pa.DataType:
    """The type of the column ``<kind>.<field id>``."""
    if kind == TRUNCATED:
        return pa.uint8()
    return to_arrow(field.type) if kind in ("min", "max") else pa.int64()


def is_cut(field: Field) -> bool:
    """Whether writers may truncate the column's bounds."""
    return may_be_cut(field.type)


def has_bounds(field: Field) -> bool:
    """Whether the column can have bounds."""
    return not is_nested(field.type)


def entry_schema(schema: Schema, statistics_ids: Iterable[int]) -> pa.Schema:
    """All columns of entries with statistics on these column ids, which the schema must know."""
    return _entry_schema(schema, frozenset(statistics_ids))


@lru_cache(maxsize=256)
def _entry_schema(schema: Schema, statistics_ids: frozenset[int]) -> pa.Schema:
    fields = list(FIXED)
    for column_id in sorted(statistics_ids):
        field = schema.find_id(column_id)
        if field is None:
            continue
        kinds = STATISTICS if is_floating(field.type) else (*STATISTICS[:3], *((TRUNCATED,) if is_cut(field) else ()))
        fields += [pa.field(f"{kind}.{column_id}", statistics_type(kind, field)) for kind in kinds]
    return pa.schema(fields)


def instants_of(paths: AnyArray) -> npt.NDArray[np.int64]:
    """The instants that wrote these files, from the beginning of their paths; -1 where there is none."""
    if len(paths) > _FEW:
        length = str(paths[0]).find("/")
        heads, marks = pc.utf8_slice_codeunits(paths, 0, length), pc.utf8_slice_codeunits(paths, length, length + 1)
        # Instants are milliseconds since 1970: they have 13 digits until the year 2286.
        alike = pc.and_(pc.equal(marks, pa.scalar("/")), pc.utf8_is_digit(heads))
        if 0 < length <= _DIGITS_MAX and alike.false_count == 0:
            return np.asarray(heads.cast(pa.int64()).to_numpy(), np.int64)
    heads_of = (path.partition("/")[0] for path in texts(paths))
    return np.array([int(head) if _INSTANT.fullmatch(head) else -1 for head in heads_of], np.int64)


def keep_deletes(kinds: AnyArray, base_instants: AnyArray, paths: AnyArray) -> npt.NDArray[np.bool_]:
    """Which entries are deltas with deletes that the base files of their instant have seen: compactions write them.

    They change no row unless other deltas come to lie beside them. The three columns of the entries are told.
    """
    kept = np.zeros(len(paths), np.bool_)
    places = np.flatnonzero(kinds.to_numpy() == pb.DELTA)
    if len(places):
        kept[places] = base_instants.to_numpy()[places] == instants_of(take(paths, places))
    return kept


def statistics_ids(names: Iterable[str]) -> frozenset[int]:
    """The column ids in names like ``min.3``."""
    listed = tuple(names)
    return (_ids_in if len(listed) <= _NAMES_KEPT_MAX else _ids_in.__wrapped__)(listed)


@lru_cache(maxsize=256)
def _ids_in(names: tuple[str, ...]) -> frozenset[int]:
    matches = map(_STATISTICS_NAME.fullmatch, names)
    return frozenset(int(match[1]) for match in matches if match)


def partition_of(values: Sequence[pb.Value], schema: Schema) -> str:
    """The name of the partition with the values of a message. Raises InvalidArgument."""
    return name_of_partition(partition_from_proto(values, schema), schema)


def from_messages(files: Sequence[pb.DataFile], schema: Schema) -> pa.RecordBatch:
    """Protobuf messages as a batch. Raises InvalidFile that names the file and what is wrong with it."""
    partitions = _known_partitions(schema)
    ids: set[int] = set()
    rows = []
    for file in files:
        key = b"".join(value.SerializeToString() + b"\xff" for value in file.partition)
        name = partitions.get(key)
        if name is None or len(file.partition) != len(schema.partition_columns):
            name = _partition(file, schema)
            if len(partitions) >= PARTITIONS_KNOWN_MAX:
                partitions.clear()
            partitions[key] = name
        row = _row(file, name)
        for statistic in file.statistics:
            _add_statistic(row, file, statistic, schema)
            ids.add(statistic.column_id)
        rows.append(row)
    entries = entry_schema(schema, ids)
    try:
        # One conversion for all columns: for few files it costs a third of converting each column.
        return pa.RecordBatch.from_struct_array(cast(pa.StructArray, pa.array(rows, _as_struct(entries))))
    except (pa.ArrowException, OverflowError):
        _raise_misfit(rows, entries)
        raise


@lru_cache(maxsize=256)
def _as_struct(entries: pa.Schema) -> pa.StructType:
    return pa.struct(list(entries))


@lru_cache(maxsize=64)
def _known_partitions(schema: Schema) -> dict[bytes, str]:
    """Partition names by serialized values. Most commits write to partitions that earlier commits wrote to."""
    return {}


def _raise_misfit(rows: Sequence[dict[str, Any]], entries: pa.Schema) -> None:
    for row in rows:
        for field in entries:
            try:
                pa.array([row.get(field.name)], field.type)
            except (pa.ArrowException, OverflowError) as error:
                path = row["path"]
                raise InvalidFile(
                    f"file {path!r}, {field.name}: not a value of type {field.type}: {error}", path=path
                ) from error


def _partition(file: pb.DataFile, schema: Schema) -> str:
    try:
        return partition_of(file.partition, schema)
    except InvalidArgument as error:
        raise InvalidFile(f"file {file.path!r}: {error.message}", path=file.path) from error


def _row(file: pb.DataFile, partition: str) -> dict[str, Any]:
    """The values of a file by column; what the message leaves out is null."""
    if file.kind not in _KINDS:
        raise InvalidFile(f"file {file.path!r}: kind {file.kind} is not known", path=file.path)
    return {
        "path": file.path,
        "size_bytes": file.size_bytes,
        "row_count": file.row_count,
        "file_group": file.file_group or None,
        "kind": file.kind or pb.BASE,
        "format": file.format or "parquet",
        "partition": partition,
        "base_instant": file.base_instant,
        "bucket": file.bucket if file.HasField("bucket") else None,
    }


def _add_statistic(row: dict[str, Any], file: pb.DataFile, statistic: pb.ColumnStatistics, schema: Schema) -> None:
    field = schema.find_id(statistic.column_id)
    if field is None:
        raise InvalidFile(
            f"file {file.path!r} has statistics on column id {statistic.column_id}, which the table does not have",
            path=file.path,
        )
    if f"min.{field.id}" in row:
        raise InvalidFile(f"file {file.path!r} has statistics on column {field.name!r} twice", path=file.path)
    row[f"min.{field.id}"] = _bound(file, statistic, "min", field)
    row[f"max.{field.id}"] = _bound(file, statistic, "max", field)
    if statistic.HasField("null_count"):
        row[f"null_count.{field.id}"] = statistic.null_count
    if is_floating(field.type) and statistic.HasField("nan_count"):
        row[f"nan_count.{field.id}"] = statistic.nan_count
    if is_cut(field):
        row[f"{TRUNCATED}.{field.id}"] = MIN_CUT * statistic.min_truncated | MAX_CUT * statistic.max_truncated


def _bound(file: pb.DataFile, statistic: pb.ColumnStatistics, kind: str, field: Field) -> ColumnValue:
    if not statistic.HasField("min" if kind == "min" else "max"):
        return None
    if not has_bounds(field):
        raise InvalidFile(f"file {file.path!r}: the nested column {field.name!r} cannot have bounds", path=file.path)
    try:
        return value_from_proto(statistic.min if kind == "min" else statistic.max, field.type)
    except InvalidArgument as error:
        raise InvalidFile(
            f"file {file.path!r}, {kind} of column {field.name!r}: {error.message}", path=file.path
        ) from error
