"""Statistics of data files, read from their parquet footers without reading rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from lakemark.files import ColumnStatistics, DataFile
from lakemark_core.errors import InvalidFile
from lakemark_core.parquet.footers import FooterStatistics, read_footer, statistics_of
from lakemark_core.storage import open_location
from lakemark_core.types import ColumnValue, Schema


@dataclass(frozen=True, slots=True)
class Footer:
    """The number of rows, the Arrow schema and the statistics in a file's footer."""

    rows: int
    schema: pa.Schema
    statistics: tuple[ColumnStatistics, ...]


def describe(
    path: str,
    schema: Schema,
    *,
    root: str,
    partition: Sequence[ColumnValue] = (),
    filesystem: fs.FileSystem | None = None,
    file_group: str = "",
) -> DataFile:
    """The entry of a parquet file that exists.

    ``path`` is the file's location, ``root`` the table's; both are paths of ``filesystem`` if one is given, else URIs
    or local paths. Raises InvalidFile: not below ``root``, not there, not parquet.
    """
    if filesystem is None:
        filesystem, path = open_location(path)
        root = open_location(root)[1]
    if not path.startswith(root.rstrip("/") + "/"):
        raise InvalidFile(f"file {path!r} does not lie below the table's location {root!r}", path=path)
    metadata, size = read_footer(path, filesystem)
    footer = describe_metadata(metadata, schema)
    relative = path.removeprefix(root.rstrip("/") + "/")
    return DataFile(relative, size, footer.rows, tuple(partition), footer.statistics, file_group)


def describe_metadata(metadata: pq.FileMetaData, schema: Schema) -> Footer:
    """Statistics for the columns of ``schema``, which are found by name, whatever their case.

    Fields of structs are included; elements of lists and maps are not. A value that is missing is unknown.
    """
    statistics = tuple(_as_of_file(one) for one in statistics_of(metadata, schema))
    return Footer(metadata.num_rows, metadata.schema.to_arrow_schema(), statistics)


def _as_of_file(known: FooterStatistics) -> ColumnStatistics:
    return ColumnStatistics(
        known.column_id,
        known.low,
        known.high,
        known.null_count,
        known.nan_count,
        known.low_truncated,
        known.high_truncated,
    )
