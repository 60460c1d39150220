"""Checks file entries before they are staged. Pure: batches in, batches out.

Most commits bring few files, where one call into Arrow costs more than a loop over all texts. So texts are checked by
Python, numbers and bounds by column.

The layout is fixed (docs/files.md): ``<instant>/[<partition path>/]<slice directory>/<file>``. A directory holds one
file and never changes, because an engine without Lakemark's client reads whole directories.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark_core.errors import InvalidArgument, InvalidFile
from lakemark_core.table_kind import TableKind
from lakemark_core.types import Schema, name_of_partition, partition_texts, values_of_partition
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.file_index.arrow import replaced, texts
from lakemark_server.file_index.entries.bounds import filled, flags
from lakemark_server.file_index.entries.columns import FORMATS, statistics_ids

PATH_CHARS_MAX: Final = 1_024
GROUP_CHARS_MAX: Final = 255
ROWS_MAX: Final = 1 << 48
LEGAL_NAMES_MAX: Final = 10_000
NO_KEY: Final = TableKind()
_ILLEGAL_CHARACTER: Final = re.compile(r"[\x00-\x1f?#]")
_ILLEGAL_IN_GROUP: Final = re.compile(r"[\x00-\x1f/]")
_EMPTY_OR_DOTS: Final = frozenset({"", ".", ".."})

Hashes: TypeAlias = npt.NDArray[np.uint64]
Mask: TypeAlias = npt.NDArray[np.bool_]


def validate(
    batch: pa.RecordBatch,
    schema: Schema,
    instant: int,
    location: str,
    *,
    deltas_allowed: bool = False,
    kind: TableKind = NO_KEY,
) -> tuple[pa.RecordBatch, Hashes]:
    """The entries with relative paths and file groups filled in, and the sorted hashes of their slice directories.

    ``deltas_allowed``: whether the operation may add delta files. ``kind``: of the table. Raises
    InvalidFile that names the first offending file.
    """
    if not batch.num_rows:
        return batch, np.empty(0, np.uint64)
    paths, groups, directories = check(batch, schema, [instant] * batch.num_rows, location, deltas_allowed, kind)
    batch = replaced(batch, "path", paths)
    batch = replaced(batch, "file_group", groups)
    return batch, np.sort(directory_hashes(directories))


def check(
    batch: pa.RecordBatch,
    schema: Schema,
    instants: Sequence[int],
    location: str,
    deltas_allowed: bool,
    kind: TableKind = NO_KEY,
) -> tuple[list[str], list[str], list[str]]:
    """The relative path, the file group and the slice directory of each entry.

    ``instants`` has the instant that wrote each entry. Raises InvalidFile that names the first offending file.
    """
    below = location.rstrip("/") + "/"
    # Full URIs below the table's location become relative; others stay as they are and are refused.
    paths = [path.removeprefix(below) for path in texts(batch.column("path"))]
    for path, instant in zip(paths, instants, strict=True):
        _check_path(path, instant, location)
    directories = [path.rpartition("/")[0] for path in paths]
    if len(set(directories)) < len(directories):
        _raise_duplicate(paths, directories)
    _check_not_nested(paths, directories)
    _check_numbers(batch, paths)
    _check_kinds(batch, paths, deltas_allowed=deltas_allowed)
    _check_partitions(batch, paths, schema, kind)
    _check_statistics(batch, paths, schema)
    groups = _groups(batch, directories)
    if kind.buckets:
        _check_buckets(batch, paths, groups, kind)
    return paths, groups, directories


def directory_hashes(directories: Sequence[str]) -> Hashes:
    """64 bits of the BLAKE2 hash of each; compared within one instant only."""
    digest = hashlib.blake2b
    return np.frombuffer(b"".join(digest(text.encode(), digest_size=8).digest() for text in directories), np.uint64)


def directories_above(paths: Sequence[str]) -> set[str]:
    """Every directory between an instant's own directory and the slice directories of its files."""
    directories: set[str] = set()
    for above in {path.rpartition("/")[0].rpartition("/")[0] for path in paths}:
        place = above
        while "/" in place and place not in directories:
            directories.add(place)
            place = place.rpartition("/")[0]
    return directories


def _groups(batch: pa.RecordBatch, directories: Sequence[str]) -> list[str]:
    """The file groups that the writer named, else the names of the directories."""
    named = batch.column("file_group").to_pylist()
    if "" in named:
        raise InvalidFile("a file has an empty file_group; leave the column null to have the directory's name")
    _check_groups({str(group) for group in named if group is not None})
    return [
        directory.rpartition("/")[2] if group is None else str(group)
        for group, directory in zip(named, directories, strict=True)
    ]


def _check_groups(groups: set[str]) -> None:
    # All at once: checking each on its own takes longer than everything else that is done with them.
    if len(max(groups, key=len, default="")) <= GROUP_CHARS_MAX and not _ILLEGAL_IN_GROUP.search(" ".join(groups)):
        return
    for group in sorted(groups):
        if len(group) > GROUP_CHARS_MAX or _ILLEGAL_IN_GROUP.search(group):
            raise InvalidFile(
                f"file_group {group[:100]!r} is not legal: at most {GROUP_CHARS_MAX} characters, no '/' and no control "
                "characters"
            )


def _check_path(path: str, instant: int, location: str) -> None:
    if not path.startswith(f"{instant}/"):
        raise InvalidFile(
            f"file {path!r} is outside the place of instant {instant}: files must lie under {location}/{instant}/",
            path=path,
        )
    parts = path.split("/")
    if _ILLEGAL_CHARACTER.search(path) or len(path) > PATH_CHARS_MAX or not _EMPTY_OR_DOTS.isdisjoint(parts):
        raise InvalidFile(
            f"path {path[:200]!r} is not legal: no empty parts, no '.' or '..', no control characters, '?' or "
            f"'#', at most {PATH_CHARS_MAX} characters",
            path=path,
        )
    if parts[-1].startswith((".", "_")):
        raise InvalidFile(
            f"file {path!r} begins with '.' or '_': engines take such files for hidden and do not read them", path=path
        )
    if len(parts) < 3:
        raise InvalidFile(
            f"file {path!r} needs a directory of its own: <instant>/[<partition path>/]<file group>/<file>", path=path
        )


def _check_not_nested(paths: Sequence[str], directories: Sequence[str]) -> None:
    """Directories of one depth, which is what writers make, cannot lie in each other."""
    if len({directory.count("/") for directory in directories}) < 2:
        return
    nested = directories_above(paths).intersection(directories)
    for path in paths if nested else ():
        outer = next(
            (above for above in nested if path.startswith(f"{above}/") and path.rpartition("/")[0] != above), None
        )
        if outer is not None:
            raise InvalidFile(
                f"file {path!r} lies below directory {outer!r}, which holds another file; each file needs a directory "
                "of its own, because engines read whole directories",
                path=path,
            )


def _raise_duplicate(paths: Sequence[str], directories: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for directory, path in zip(directories, paths, strict=True):
        other = seen.get(directory)
        if other == path:
            raise InvalidFile(f"file {path!r} is given twice", path=path)
        if other is not None:
            raise InvalidFile(
                f"directory {directory!r} holds several files ({other!r}, {path!r} …); each file needs a directory of "
                "its own, because engines read whole directories",
                path=path,
            )
        seen[directory] = path


def _refuse_if(bad: Mask, paths: Sequence[str], problem: str) -> None:
    if bad.any():
        path = paths[int(np.argmax(bad))]
        raise InvalidFile(f"file {path!r}: {problem}", path=path)


def _check_numbers(batch: pa.RecordBatch, paths: Sequence[str]) -> None:
    for name in ("size_bytes", "row_count"):
        numbers = batch.column(name).to_numpy()
        _refuse_if((numbers < 0) | (numbers > ROWS_MAX), paths, f"{name} is negative or absurdly large")
    buckets = batch.column("bucket")
    if buckets.null_count < len(buckets):
        _refuse_if(filled(buckets, 0).to_numpy() < 0, paths, "bucket is negative; null says that there is none")


def _check_buckets(batch: pa.RecordBatch, paths: Sequence[str], groups: Sequence[str], table: TableKind) -> None:
    """A plan for a key leaves out files of other buckets, and deltas are merged within a group: both must be right."""
    kinds, buckets = batch.column("kind").to_pylist(), batch.column("bucket").to_pylist()
    for path, group, kind, bucket in zip(paths, groups, kinds, buckets, strict=True):
        if bucket is None:
            # Nobody could tell with which files it shares keys: a change of one would leave its old row there.
            legal = table.buckets_of(0)[-1]
            problem = (
                f"{'a delta' if kind == pb.DELTA else 'a base file'} in a table with buckets names the bucket of its "
                "keys: write one file for each bucket and partition, with the number and its file group, such as "
                f"{legal} and {table.group_name(legal)!r}; lakemark_spark writes such files"
            )
        else:
            problem = table.why_no_bucket(bucket)
            if not problem and group != table.group_name(bucket):
                problem = (
                    f"bucket {bucket} is file group {table.group_name(bucket)!r} of its partition, and not {group!r}"
                )
        if not problem:
            continue
        raise InvalidFile(f"file {path!r}: {problem}", path=path)


def _check_kinds(batch: pa.RecordBatch, paths: Sequence[str], *, deltas_allowed: bool) -> None:
    kinds, formats, groups, instants = (
        batch.column(name).to_pylist() for name in ("kind", "format", "file_group", "base_instant")
    )
    for path, kind, group, base_instant in zip(paths, kinds, groups, instants, strict=True):
        if kind == pb.DELTA:
            _check_delta(path, group, base_instant, allowed=deltas_allowed)
        elif kind != pb.BASE:
            raise InvalidFile(f"file {path!r}: kind {kind} is neither base (1) nor delta (2)", path=path)
        elif base_instant:
            raise InvalidFile(f"file {path!r}: only a delta has a base_instant; this is a base file", path=path)
    for path, format_ in zip(paths, formats, strict=True):
        if format_ not in FORMATS:
            raise InvalidFile(f"file {path!r}: the format is not one of {', '.join(sorted(FORMATS))}", path=path)


def _check_delta(path: str, group: str | None, base_instant: int | None, *, allowed: bool) -> None:
    if not allowed:
        raise InvalidFile(f"file {path!r}: this operation adds base files only; deltas come with upserts", path=path)
    if group is None:
        raise InvalidFile(f"file {path!r}: a delta must name the file_group that it belongs to", path=path)
    if base_instant is None or base_instant < 0:
        raise InvalidFile(
            f"file {path!r}: base_instant of a delta is the instant of the base file under it, or 0 if there is none",
            path=path,
        )


def _check_partitions(batch: pa.RecordBatch, paths: Sequence[str], schema: Schema, kind: TableKind) -> None:
    key = tuple(field.name for field in kind.key_fields(schema))
    names, legal = texts(batch.column("partition")), _legal_names(schema, key)
    for name in set(names) - legal:
        try:
            check_partition_name(name, schema, key)
        except InvalidArgument as error:
            path = paths[names.index(name)]
            raise InvalidFile(f"file {path!r}: {error.message}", path=path) from error
        if len(legal) < LEGAL_NAMES_MAX:
            legal.add(name)


@lru_cache(maxsize=64)
def _legal_names(schema: Schema, key: tuple[str, ...]) -> set[str]:
    """Names of partitions that passed the check. Most commits write to partitions that earlier commits wrote to."""
    return set()


def check_partition_name(name: str, schema: Schema, key: Sequence[str] = ()) -> None:
    """Raises InvalidArgument unless ``name`` has exactly the table's partition columns, with values of their types, and
    none of them is a null in a column of the ``key``."""
    columns = schema.partition_columns
    if partition_texts(name, columns) is None:
        shape = "/".join(f"{column}=…" for column in columns) or "empty, since the table has no partition columns"
        raise InvalidArgument(f"partition {name!r} does not fit the table; it must be {shape}")
    values = values_of_partition(name, schema)
    canonical = name_of_partition(values, schema)
    if canonical != name:
        raise InvalidArgument(f"partition {name!r} must be written {canonical!r}: one partition has one name")
    for column, value in zip(columns, values, strict=True):
        if value is None and column in key:
            raise InvalidArgument(
                f"partition {name!r} is that of rows with a null in column {column!r}, which belongs to the table's "
                "key: a null identifies no row"
            )


def _check_statistics(batch: pa.RecordBatch, paths: Sequence[str], schema: Schema) -> None:
    names = batch.schema.names
    for column_id in statistics_ids(names):
        low, high = batch.column(f"min.{column_id}"), batch.column(f"max.{column_id}")
        if pa.types.is_floating(low.type):
            _check_not_nan(low, high, paths, f"column {_named(column_id, schema)}")
        if not pa.types.is_nested(low.type):
            inverted = pc.call_function("greater", [low, high])
            if inverted.true_count:
                problem = f"min of column {_named(column_id, schema)} is greater than its max"
                _refuse_if(flags(inverted), paths, problem)
    _check_counts(batch, [name for name in names if name.startswith(("null_count.", "nan_count."))], paths, schema)


def _check_not_nan(low: pa.Array[Any], high: pa.Array[Any], paths: Sequence[str], column: str) -> None:
    """Bounds must not be NaN: comparisons with NaN would keep or skip files by chance."""
    for name, bounds in (("min", low), ("max", high)):
        if bounds.null_count < len(bounds):
            nan = np.isnan(filled(bounds, 0).to_numpy())
            problem = f"{name} of {column} is NaN; bounds are of the values that are neither null nor NaN, or null"
            _refuse_if(nan, paths, problem)


def _check_counts(batch: pa.RecordBatch, names: Sequence[str], paths: Sequence[str], schema: Schema) -> None:
    """Checks all of these columns at once: for few files each call costs as much as for many."""
    if not names:
        return
    counts = np.array([filled(batch.column(name), 0).to_numpy() for name in names])
    rows = batch.column("row_count").to_numpy()
    if counts.min() < 0 or (counts > rows).any():
        bad = (counts < 0) | (counts > rows)
        first = int(np.argmax(bad.any(axis=1)))
        kind, _, column_id = names[first].partition(".")
        problem = f"{kind} of column {_named(int(column_id), schema)} is not between 0 and the file's row count"
        _refuse_if(bad[first], paths, problem)


def _named(column_id: int, schema: Schema) -> str:
    field = schema.find_id(column_id)
    return repr(field.name) if field else repr(str(column_id))
