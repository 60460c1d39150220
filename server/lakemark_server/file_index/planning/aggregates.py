"""Counts, sizes and bounds of the files of a plan, from metadata alone; in total or by partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from lakemark_core.types import Field, Schema, is_floating
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.file_index.arrow import AnyArray, one_array
from lakemark_server.file_index.entries.columns import TRUNCATED, is_cut
from lakemark_server.file_index.planning.compact import MATCHES
from lakemark_server.file_index.planning.merge_on_read import merged_on_read
from lakemark_server.file_index.planning.planner import Plan
from lakemark_server.file_index.pruning.statistics import partition_values_by_name

ALL: Final = "all"
PAGE_FILES: Final = 100_000
_DELTA: Final = pa.scalar(pb.DELTA, pa.uint8())
_KNOWN: Final = ("min_known", "max_known", "nulls_known", "nans_known", "whole")


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Bounds of the values that are neither null nor NaN; None means unknown."""

    field: Field
    min: Any
    max: Any
    null_count: int | None
    nan_count: int | None
    cut: bool = False  # a bound may have been truncated, so it need not be a value


@dataclass(frozen=True, slots=True)
class Group:
    """The files of one partition; ``partition`` is "" if all files are one group."""

    partition: str
    files: int
    rows: int
    bytes: int
    columns: tuple[ColumnBounds, ...]


def aggregate(plan: Plan, fields: Sequence[Field], *, by_partition: bool) -> tuple[list[Group], bool]:
    """The groups in order of their partitions, and whether their numbers are exact.

    They are not exact if a file has rows that the predicate does not select, or is merged with others when it is read;
    or if a bound need not be a value: text may have been truncated, NaN lies outside the bounds, and statistics may be
    missing.
    """
    ids = [field.id for field in fields]
    pages = [plan.page(at, PAGE_FILES, ids) for at in range(0, max(plan.files, 1), PAGE_FILES)]
    files = pa.Table.from_batches(pages)
    merged = _has_deltas(files)
    if merged and merged_on_read(plan.snapshot) is None:
        # They keep deletes that no row is left to take out: there is nothing to merge.
        files, merged = files.filter(pc.not_equal(files.column("kind"), _DELTA)), False
    schema = plan.snapshot.schema
    known = [
        _of_partitions(files, field, schema) if schema.is_partition(field.name) else _with_known(files, field)
        for field in fields
    ]
    table = pa.table(
        {
            "partition": files.column("partition") if by_partition else pa.array([ALL] * files.num_rows, pa.string()),
            "rows": files.column("row_count"),
            "bytes": files.column("size_bytes"),
            **{name: column for columns in known for name, column in columns.items()},
        }
    )
    wanted: list[Any] = [("rows", "count"), ("rows", "sum"), ("bytes", "sum")]
    for field in fields:
        wanted += [(f"min.{field.id}", "min"), (f"max.{field.id}", "max")]
        wanted += [(f"{kind}.{field.id}", "min") for kind in _KNOWN]
        wanted += [(f"nulls.{field.id}", "sum"), (f"nans.{field.id}", "sum")]
    grouped: Any = table.group_by("partition", use_threads=False).aggregate(wanted).sort_by("partition")
    groups = [_group(row, fields, by_partition=by_partition) for row in grouped.to_pylist()]
    if not groups and not by_partition:
        groups = [Group("", 0, 0, 0, tuple(ColumnBounds(field, None, None, 0, None) for field in fields))]
    entirely = pc.all(cast(Any, files.column(MATCHES.name)), min_count=0).as_py()
    return groups, bool(entirely) and not merged and all(map(_is_exact, groups))


def _has_deltas(files: pa.Table) -> bool:
    return bool(pc.any(pc.equal(cast(Any, files.column("kind")), _DELTA)).as_py())


def _with_known(files: pa.Table, field: Field) -> dict[str, AnyArray]:
    """A column's statistics, and for each file whether they are complete. A file of nulls has no bounds."""
    rows, nulls = one_array(files.column("row_count")), one_array(files.column(f"null_count.{field.id}"))
    all_null: Any = pc.equal(nulls, rows).fill_null(False)
    low, high = one_array(files.column(f"min.{field.id}")), one_array(files.column(f"max.{field.id}"))
    nans: AnyArray = pa.array([0] * files.num_rows, pa.int64())
    if is_floating(field.type):
        nans = one_array(files.column(f"nan_count.{field.id}"))
    whole: Any = pa.array([True] * files.num_rows, pa.bool_())
    if is_cut(field):
        truncated = one_array(files.column(f"{TRUNCATED}.{field.id}"))
        uncut: Any = pc.equal(truncated, pa.scalar(0, pa.uint8()))
        whole = pc.or_(uncut.fill_null(False), all_null)
    return {
        f"whole.{field.id}": whole,
        f"min.{field.id}": low,
        f"max.{field.id}": high,
        f"min_known.{field.id}": pc.or_(low.is_valid(), all_null),
        f"max_known.{field.id}": pc.or_(high.is_valid(), all_null),
        f"nulls.{field.id}": nulls,
        f"nulls_known.{field.id}": nulls.is_valid(),
        f"nans.{field.id}": nans,
        f"nans_known.{field.id}": pc.or_(nans.is_valid(), all_null),
    }


def _of_partitions(files: pa.Table, field: Field, schema: Schema) -> dict[str, AnyArray]:
    """The same for a partition column. Each file has one value, which its partition's name tells and which is never
    NaN."""
    names: Any = one_array(files.column("partition")).dictionary_encode()
    values: Any = partition_values_by_name(names.dictionary.to_pylist(), field, schema).take(names.indices)
    rows = one_array(files.column("row_count"))
    always: AnyArray = pa.array([True] * files.num_rows, pa.bool_())
    return {
        f"min.{field.id}": values,
        f"max.{field.id}": values,
        f"nulls.{field.id}": cast(Any, pc).if_else(values.is_null(), rows, 0),
        f"nans.{field.id}": pa.array([0] * files.num_rows, pa.int64()),
        **{f"{kind}.{field.id}": always for kind in _KNOWN},
    }


def _group(row: dict[str, Any], fields: Sequence[Field], *, by_partition: bool) -> Group:
    columns = [
        ColumnBounds(
            field,
            row[f"min.{field.id}_min"] if row[f"min_known.{field.id}_min"] else None,
            row[f"max.{field.id}_max"] if row[f"max_known.{field.id}_min"] else None,
            row[f"nulls.{field.id}_sum"] if row[f"nulls_known.{field.id}_min"] else None,
            (row[f"nans.{field.id}_sum"] or 0) if row[f"nans_known.{field.id}_min"] else None,
            cut=not row[f"whole.{field.id}_min"],
        )
        for field in fields
    ]
    partition = row["partition"] if by_partition else ""
    return Group(partition, row["rows_count"], row["rows_sum"], row["bytes_sum"], tuple(columns))


def _is_exact(group: Group) -> bool:
    return all(
        not column.cut
        and column.null_count is not None
        and column.nan_count == 0
        and ((column.min is not None and column.max is not None) or column.null_count == group.rows)
        for column in group.columns
    )
