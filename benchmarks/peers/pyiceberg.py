"""PyIceberg as a peer: a format 2 table in an SQLite catalog, appended to through its own ``fast_append``.

Every append leaves one manifest, so there are 100. With clustered data a partition filter leaves one of them to read;
with scattered data it leaves all. The clustered layout is the best that PyIceberg can get.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, PrimitiveType, StringType, TimestamptzType

from benchmarks.dataset import APPENDS, COLUMNS, FILE_ROWS, PARTITION_COLUMN, Dataset
from benchmarks.peers.timer import APPEND_RUNS, APPENDED_FILES, Work, hot_commits, main, milliseconds, seconds

RUNS: Final = 5
TABLE: Final = "bench.planned"
_TYPES: Final[dict[str, PrimitiveType]] = {
    "bigint": LongType(),
    "timestamp": TimestamptzType(),
    "double": DoubleType(),
    "int": IntegerType(),
    "string": StringType(),
}
_PARTITION_ID: Final = len(COLUMNS) + 1


def plan(work: Work) -> dict[str, Any]:
    clustered = Dataset(work.files, work.partitions)
    scattered = Dataset(work.files, work.partitions, scattered=True)
    places = {data: work.generated("iceberg", data, _generate) for data in (clustered, scattered)}

    def planned(table: Table, dataset: Dataset) -> None:
        count = sum(1 for _ in table.scan(row_filter=dataset.selection.sql).plan_files())
        assert count == dataset.selected_files, count

    loaded = _open(places[clustered])
    result = {
        "selective_cold_ms": milliseconds(lambda: planned(_open(places[clustered]), clustered), 1),
        "selective_loaded_ms": milliseconds(lambda: planned(loaded, clustered), RUNS),
        "selective_scattered_ms": milliseconds(lambda: planned(_open(places[scattered]), scattered), 1),
    }

    def listed() -> None:
        assert len(list(loaded.scan().plan_files())) == clustered.files

    result["full_listing_s"] = round(seconds(listed), 3)
    return result


def commit(work: Work) -> dict[str, Any]:
    dataset = Dataset(work.files, work.partitions)
    place = work.generated("iceberg", dataset, _generate)
    with work.scratch() as scratch:
        shutil.copy(place / "catalog.db", scratch)
        table = _open(scratch)
        with table.transaction() as transaction:  # the generated table stays as it is
            transaction.set_properties({"write.metadata.path": str(scratch / "metadata")})
        later = [dataset.later(number, APPENDED_FILES) for number in range(APPEND_RUNS)]
        turns = iter(later)
        append_ms = milliseconds(lambda: _append(table, next(turns)), APPEND_RUNS)
        hot = _hot(scratch / "hot", dataset)
    return {"append_ms": append_ms, "hot": hot}


def _hot(place: Path, dataset: Dataset) -> dict[str, float]:
    place.mkdir()
    _create(place)
    entries = dataset.later(0, 1)

    def writer(_: int) -> Callable[[], None]:
        catalog = _catalog(place)  # each its own, as separate processes would have
        return lambda: _append(catalog.load_table(TABLE), entries)

    # PyIceberg itself retries up to four times, with a warning each time, before it raises.
    retries = _Counting()
    logger = logging.getLogger("pyiceberg.table")
    logger.addHandler(retries)
    logger.propagate = False
    figures = hot_commits(writer, CommitFailedException)
    figures["client_retries"] += retries.records
    return figures


class _Counting(logging.Handler):
    """Counts instead of writing."""

    def __init__(self) -> None:
        super().__init__()
        self.records = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.records += 1


def _generate(place: Path, dataset: Dataset) -> None:
    table = _create(place)
    for number in range(APPENDS):
        _append(table, dataset.append(number))


def _create(place: Path) -> Table:
    catalog = _catalog(place)
    catalog.create_namespace("bench")
    fields = [NestedField(number, name, _TYPES[kind]) for number, (name, kind) in enumerate(COLUMNS, 1)]
    fields.append(NestedField(_PARTITION_ID, PARTITION_COLUMN, IntegerType()))
    spec = PartitionSpec(PartitionField(_PARTITION_ID, 1000, IdentityTransform(), PARTITION_COLUMN))
    return catalog.create_table(TABLE, Schema(*fields), partition_spec=spec, properties={"format-version": "2"})


def _catalog(place: Path) -> SqlCatalog:
    return SqlCatalog("bench", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")


def _open(place: Path) -> Table:
    return _catalog(place).load_table(TABLE)


def _append(table: Table, entries: pa.Table) -> None:
    """An append of metadata alone, with the least work possible."""
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in _data_files(table, entries):
            append.append_data_file(file)


def _data_files(table: Table, entries: pa.Table) -> Iterator[DataFile]:
    """Files with bounds, value counts and null counts of the five columns."""
    ids = range(1, len(COLUMNS) + 1)
    lows, highs = ([_bytes(entries.column(f"{side}.{id_}")) for id_ in ids] for side in ("min", "max"))
    counts, nulls = dict.fromkeys(ids, FILE_ROWS), dict.fromkeys(ids, 0)
    base = table.location()
    for path, size, p, *bounds in zip(
        *(entries.column(name).to_pylist() for name in ("path", "size_bytes", "p")), *lows, *highs, strict=True
    ):
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{base}/data/{path}",
            file_format=FileFormat.PARQUET,
            partition=Record(p),
            record_count=FILE_ROWS,
            file_size_in_bytes=size,
            value_counts=counts,
            null_value_counts=nulls,
            nan_value_counts={3: 0},
            lower_bounds=dict(zip(ids, bounds[: len(ids)], strict=True)),
            upper_bounds=dict(zip(ids, bounds[len(ids) :], strict=True)),
        )
        file.spec_id = 0
        yield file


def _bytes(column: Any) -> list[bytes]:
    """Bounds in Iceberg's single-value serialization: little-endian numbers, text as UTF-8."""
    if pa.types.is_string(column.type):
        return [text.encode() for text in column.to_pylist()]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values = column.to_numpy()
    width, raw = values.dtype.itemsize, values.tobytes()
    return [raw[at : at + width] for at in range(0, len(raw), width)]


if __name__ == "__main__":
    main("pyiceberg", "pyiceberg", {"plan": plan, "commit": commit})
