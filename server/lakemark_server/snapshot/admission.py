"""What file entries must satisfy before they are staged. Pure; columns in, columns out, no loop over files.

The layout is fixed (docs/files.md): ``<instant>/[<partition path>/]<slice directory>/<file>``. A directory holds one
file and never changes, because an engine without Lakemark's client reads whole directories.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidArgument, InvalidFile
from lakemark.types import Schema, parse_partition_name, partition_value_from_string
from lakemark_server.snapshot.arrow import strings, texts
from lakemark_server.snapshot.entries import FORMATS, name_of_partition, statistics_ids

PATH_CHARS_MAX: Final = 1_024
ROWS_MAX: Final = 1 << 48

Hashes: TypeAlias = npt.NDArray[np.uint64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Strings: TypeAlias = pa.StringArray


def admit(batch: pa.RecordBatch, schema: Schema, instant: int, location: str) -> tuple[pa.RecordBatch, Hashes]:
    """The entries with relative paths and file groups filled in, and a hash of each slice directory, sorted.

    Raises InvalidFile that names the first offending file.
    """
    if not batch.num_rows:
        return batch, np.empty(0, np.uint64)
    paths = _relative(strings(batch, "path"), location)
    _check_paths(paths, instant, location)
    directories = pc.replace_substring_regex(paths, r"/[^/]*$", "")
    hashes = directory_hashes(directories)
    if len(np.unique(hashes)) < len(hashes):
        _raise_duplicate(paths, directories)
    _check_numbers(batch)
    _check_kinds(batch)
    _check_partitions(batch, schema)
    _check_statistics(batch, schema)
    groups = pc.coalesce(strings(batch, "file_group"), pc.replace_substring_regex(directories, r"^.*/", ""))
    if "" in texts(pc.unique(groups)):
        raise InvalidFile("a file has an empty file_group; leave the column null to have the directory's name")
    columns = {name: batch.column(name) for name in batch.schema.names} | {"path": paths, "file_group": groups}
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema), np.sort(hashes)


def directory_hashes(directories: Strings) -> Hashes:
    """64 bits of BLAKE2 of each; only compared within one instant."""
    digest = hashlib.blake2b
    data = b"".join(digest((text or "").encode(), digest_size=8).digest() for text in directories.to_pylist())
    return np.frombuffer(data, np.uint64)


def _relative(paths: Strings, location: str) -> Strings:
    """Full URIs below the table's location lose it; others stay, and are refused by ``_check_paths``."""
    prefix = location.rstrip("/") + "/"
    below = pc.starts_with(paths, prefix)
    if not pc.any(below).as_py():
        return paths
    return cast(Strings, pc.if_else(below, pc.utf8_slice_codeunits(paths, len(prefix)), paths))


def _refuse_if(mask: Mask, paths: Strings, message: Callable[[str], str]) -> None:
    if mask.any():
        path = paths[int(np.argmax(mask))].as_py() or ""
        raise InvalidFile(message(path), path=path)


def _numpy(mask: pa.BooleanArray) -> Mask:
    """Null is false."""
    return mask.fill_null(False).to_numpy(zero_copy_only=False)


def _check_paths(paths: Strings, instant: int, location: str) -> None:
    place = f"{location}/{instant}/"
    _refuse_if(
        ~_numpy(pc.starts_with(paths, f"{instant}/")),
        paths,
        lambda path: f"file {path!r} is outside the place of instant {instant}: files must lie under {place}",
    )
    strange = _numpy(pc.match_substring_regex(paths, r"(^|/)(\.{0,2})(/|$)|[\x00-\x1f]|[?#]"))
    _refuse_if(
        strange | (pc.utf8_length(paths).to_numpy() > PATH_CHARS_MAX),
        paths,
        lambda path: (
            f"path {path[:200]!r} is not legal: no empty parts, no '.' or '..', no control characters, '?' or "
            f"'#', at most {PATH_CHARS_MAX} characters"
        ),
    )
    _refuse_if(
        _numpy(pc.match_substring_regex(paths, r"/[._][^/]*$")),
        paths,
        lambda path: f"file {path!r} begins with '.' or '_': engines take such files for hidden and do not read them",
    )
    _refuse_if(
        ~_numpy(pc.match_substring_regex(paths, "/.*/")),
        paths,
        lambda path: f"file {path!r} needs a directory of its own: <instant>/[<partition path>/]<file group>/<file>",
    )


def _raise_duplicate(paths: Strings, directories: Strings) -> None:
    seen: dict[str | None, str] = {}
    for directory, one in zip(directories.to_pylist(), paths.to_pylist(), strict=True):
        path, other = one or "", seen.get(directory)
        if other == path:
            raise InvalidFile(f"file {path!r} is given twice", path=path)
        if other is not None:
            raise InvalidFile(
                f"directory {directory!r} holds several files ({other!r}, {path!r} …); each file needs a directory of "
                "its own, because engines read whole directories",
                path=path,
            )
        seen[directory] = path


def _check_numbers(batch: pa.RecordBatch) -> None:
    paths = strings(batch, "path")
    for name in ("size_bytes", "row_count"):
        numbers = batch.column(name).to_numpy()
        bad = (numbers < 0) | (numbers > ROWS_MAX)
        _refuse_if(bad, paths, partial("file {0!r}: {name} is negative or absurdly large".format, name=name))


def _check_kinds(batch: pa.RecordBatch) -> None:
    paths = strings(batch, "path")
    base = batch.column("kind").fill_null(0).to_numpy() == 1
    _refuse_if(~base, paths, lambda path: f"file {path!r}: this release commits base files only, no deltas")
    known = _numpy(pc.is_in(batch.column("format"), pa.array(sorted(FORMATS))))
    _refuse_if(~known, paths, lambda path: f"file {path!r}: the format is not one of {', '.join(sorted(FORMATS))}")


def _check_partitions(batch: pa.RecordBatch, schema: Schema) -> None:
    names = batch.column("partition")
    for name in pc.unique(names).to_pylist():
        try:
            check_partition_name(name or "", schema)
        except InvalidArgument as error:
            path = strings(batch, "path")[names.index(name).as_py()].as_py() or ""
            raise InvalidFile(f"file {path!r}: {error.message}", path=path) from error


def check_partition_name(name: str, schema: Schema) -> None:
    """Raises InvalidArgument unless ``name`` has exactly the table's partition columns, with values of their types."""
    wanted = [field.name for field in schema.partition_fields]
    pairs = parse_partition_name(name) if name else []
    if [key.lower() for key, _ in pairs] != [one.lower() for one in wanted]:
        shape = "/".join(f"{one}=…" for one in wanted) or "empty, since the table has no partition columns"
        raise InvalidArgument(f"partition {name!r} does not fit the table; it must be {shape}")
    values = [
        partition_value_from_string(text, field.type)
        for field, (_, text) in zip(schema.partition_fields, pairs, strict=True)
    ]
    canonical = name_of_partition(values, schema)
    if canonical != name:
        raise InvalidArgument(f"partition {name!r} must be written {canonical!r}: one partition has one name")


def _check_statistics(batch: pa.RecordBatch, schema: Schema) -> None:
    paths, rows = strings(batch, "path"), batch.column("row_count").to_numpy()
    for column_id in statistics_ids(batch.schema.names):
        field = schema.find_id(column_id)
        name = field.name if field else str(column_id)
        low, high = batch.column(f"min.{column_id}"), batch.column(f"max.{column_id}")
        if not pa.types.is_nested(low.type):
            message = "file {0!r}: min of column {name!r} is greater than its max"
            _refuse_if(_numpy(pc.greater(low, high)), paths, partial(message.format, name=name))
        for kind in ("null_count", "nan_count"):
            at = batch.schema.get_field_index(f"{kind}.{column_id}")
            if at >= 0:
                counts = batch.column(at).fill_null(0).to_numpy()
                message = "file {0!r}: {kind} of column {name!r} is not between 0 and the file's row count"
                _refuse_if((counts < 0) | (counts > rows), paths, partial(message.format, name=name, kind=kind))
