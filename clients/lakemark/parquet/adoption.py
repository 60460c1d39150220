"""Parquet files that exist already, copied into a lake table's layout.

They are not linked: rewriting an original in place would change what a version holds.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from lakemark.files import DataFile
from lakemark.parquet.footers import describe_metadata
from lakemark.parquet.writer import Staging, WrittenFiles
from lakemark_core.errors import InvalidArgument, InvalidFile, InvalidSchema
from lakemark_core.parquet.footers import read_footer
from lakemark_core.parquet.stored import check_stored
from lakemark_core.storage import has_directories, join, open_location, storage_error
from lakemark_core.types import (
    ColumnValue,
    Schema,
    check_fits,
    in_column_order,
    name_of_partition,
    parse_partition_name,
    partition_field_value,
)


def adopt_files(paths: Sequence[Path], writer: Staging, partition: Mapping[str, str] | None = None) -> WrittenFiles:
    """Brings local files below the writer's location, each into a directory of its own; they are not staged yet.

    The partition of each file is ``partition``, else what its path says (``…/month=1/origin=JFK/x.parquet``). All files
    are checked before the first one is taken, also for what plain Spark could not read. Raises InvalidFile,
    InvalidSchema, InvalidArgument.
    """
    schema = writer.schema
    local = fs.LocalFileSystem()
    checked: list[tuple[Path, DataFile]] = []
    instant = writer.location.rstrip("/").rpartition("/")[2]
    first: pa.Schema | None = None
    for path in _once(paths):
        metadata, _ = read_footer(str(path.absolute()), local)
        footer = describe_metadata(metadata, schema)
        reasons = check_fits(schema, footer.schema) or check_stored(schema, metadata)
        if reasons:
            raise InvalidSchema(f"{path} does not fit {writer.table}: {'; '.join(reasons)}", path=str(path))
        first = first or footer.schema
        values = _values_given(partition, schema) if partition else _values_of_path(path, writer)
        group = str(uuid4())
        place = join(instant, name_of_partition(values, schema), group, path.name)
        entry = DataFile(place, path.stat().st_size, footer.rows, values, footer.statistics, group)
        checked.append((path, entry))
    if first is None:
        raise InvalidArgument("no files are given")
    system, location = open_location(writer.location)
    for path, entry in checked:
        _bring(path, join(location.rpartition("/")[0], entry.path), system)
    return WrittenFiles([entry for _, entry in checked], first)


def _once(paths: Sequence[Path]) -> Sequence[Path]:
    """Raises InvalidArgument for a file that is given twice: its rows would be in the table twice."""
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise InvalidArgument(f"{path} is given twice")
        seen.add(path.resolve())
    return paths


def _values_given(partition: Mapping[str, str], schema: Schema) -> tuple[ColumnValue, ...]:
    texts = in_column_order(partition, schema.partition_columns)
    if texts is None:
        wanted = ", ".join(schema.partition_columns) or "the table has none"
        raise InvalidArgument(f"{', '.join(partition)}: these are not the partition columns: {wanted}")
    return _values(texts, schema)


def _values_of_path(path: Path, writer: Staging) -> tuple[ColumnValue, ...]:
    columns = writer.schema.partition_columns
    told = {
        key.lower(): text
        for part in path.absolute().parts[:-1]
        if "=" in part.lstrip("=")
        for key, text in parse_partition_name(part)
        if writer.schema.is_partition(key)
    }
    texts = in_column_order(told, columns)
    if texts is None:
        missing = [column for column in columns if column.lower() not in told]
        raise InvalidArgument(
            f"the path of {path} does not tell its partition of {writer.table}: give {', '.join(missing)} with "
            "--partition column=value, or put it below directories such as month=1"
        )
    return _values(texts, writer.schema)


def _values(texts: Sequence[str], schema: Schema) -> tuple[ColumnValue, ...]:
    return tuple(partition_field_value(text, field) for text, field in zip(texts, schema.partition_fields, strict=True))


def _bring(path: Path, target: str, system: fs.FileSystem) -> None:
    """Raises InvalidFile, StorageRefused, StorageUnavailable."""
    try:
        if has_directories(system):
            system.create_dir(target.rpartition("/")[0], recursive=True)
        if isinstance(system, fs.LocalFileSystem):
            shutil.copyfile(path, target)
            return
        with path.open("rb") as source, system.open_output_stream(target) as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    except OSError as error:
        if not has_directories(system):
            raise storage_error(f"{path} cannot be brought to {target}", system, target, error) from error
        raise InvalidFile(f"{path} cannot be brought to {target}: {error}", path=str(path)) from error
