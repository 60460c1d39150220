"""DuckLake as a peer: a catalog in a DuckDB file, created by the extension, whose tables are then filled directly.

The extension is DuckDB's own signed binary, from a package; nothing is downloaded when it is loaded. No call only
plans, so a query is started, and it fails at the first data file, which does not exist. By then the list of files is
complete.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb
import duckdb_extension_ducklake
import pyarrow as pa

from benchmarks.dataset import APPENDS, COLUMNS, FILE_ROWS, PARTITION_COLUMN, Dataset
from benchmarks.peers.timer import Work, hot_commits, main, milliseconds, seconds

RUNS: Final = 5
_TYPES: Final = {
    "bigint": "BIGINT",
    "timestamp": "TIMESTAMPTZ",
    "double": "DOUBLE",
    "int": "INTEGER",
    "string": "VARCHAR",
}
_PARTITION_ID: Final = len(COLUMNS) + 1


def plan(work: Work) -> dict[str, Any]:
    dataset = Dataset(work.files, work.partitions)
    place = work.generated("ducklake", dataset, _generate)
    cold_ms = round(seconds(lambda: _planned_anew(place, dataset)) * 1e3, 3)
    with _attached(place) as connection:
        _planned(connection, dataset)
        selective_ms = milliseconds(lambda: _planned(connection, dataset), RUNS)

        def listed() -> None:
            assert connection.sql("FROM ducklake_list_files('lake', 't')").to_arrow_table().num_rows == dataset.files

        listing_s = round(seconds(listed), 3)
    return {"selective_cold_ms": cold_ms, "selective_loaded_ms": selective_ms, "full_listing_s": listing_s}


def commit(work: Work) -> dict[str, Any]:
    """Inserts of one row, which DuckLake keeps in the catalog itself ("inlined"): its cheapest commit."""
    with work.scratch() as scratch:
        _create(scratch)
        with _attached(scratch) as connection:

            def writer(_: int) -> Callable[[], object]:
                cursor = connection.cursor()
                row = "INSERT INTO lake.t VALUES (1, now(), 1.0, 1, 'a', 1)"
                return lambda: cursor.execute(row)

            return {"hot": hot_commits(writer, duckdb.TransactionException)}


def _planned_anew(place: Path, dataset: Dataset) -> None:
    with _attached(place) as connection:
        _planned(connection, dataset)


def _planned(connection: duckdb.DuckDBPyConnection, dataset: Dataset) -> None:
    try:
        connection.execute(f"SELECT count(amount) FROM lake.t WHERE {dataset.selection.sql}").fetchall()
    except duckdb.IOException as error:
        wanted = f"/{PARTITION_COLUMN}={dataset.selection.partition}/"
        if wanted not in str(error):
            raise
    else:
        raise AssertionError("the query found data files")


@contextmanager
def _attached(place: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    extension = next(Path(duckdb_extension_ducklake.__path__[0]).rglob("ducklake.duckdb_extension"))
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        connection.execute(f"LOAD '{extension}'")
        connection.execute(f"ATTACH 'ducklake:{place}/catalog.ducklake' AS lake (DATA_PATH '{place}/data')")
        yield connection


def _create(place: Path) -> None:
    columns = ", ".join(f'"{name}" {_TYPES[kind]}' for name, kind in COLUMNS)
    with _attached(place) as connection:
        connection.execute(f"CREATE TABLE lake.t ({columns}, {PARTITION_COLUMN} INTEGER)")
        connection.execute(f"ALTER TABLE lake.t SET PARTITIONED BY ({PARTITION_COLUMN})")


def _generate(place: Path, dataset: Dataset) -> None:
    _create(place)
    with duckdb.connect(str(place / "catalog.ducklake")) as catalog:
        catalog.execute("SET TimeZone = 'UTC'")
        table_id, partition_id, snapshot_id, schema_version, next_catalog_id = catalog.execute(
            "SELECT ducklake_table.table_id, partition_id, snapshot_id, schema_version, next_catalog_id"
            " FROM ducklake_table, ducklake_partition_info, ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1"
        ).fetchall()[0]
        for number in range(APPENDS):
            entries = dataset.append(number)
            first = number * entries.num_rows
            snapshot_id += 1
            ids = pa.array(range(first, first + entries.num_rows), pa.int64())
            catalog.register("entries", entries.append_column("file_id", ids))
            catalog.execute("BEGIN")
            _fill(catalog, table_id, partition_id, snapshot_id)
            catalog.execute(
                "INSERT INTO ducklake_snapshot VALUES (?, now(), ?, ?, ?)",
                [snapshot_id, schema_version, next_catalog_id, first + entries.num_rows],
            )
            catalog.execute(
                "INSERT INTO ducklake_snapshot_changes VALUES (?, ?, NULL, NULL, NULL)",
                [snapshot_id, f"inserted_into_table:{table_id}"],
            )
            catalog.execute("COMMIT")
            catalog.unregister("entries")
        _fill_table_statistics(catalog, table_id)
    shutil.rmtree(place / "data", ignore_errors=True)


def _fill(catalog: duckdb.DuckDBPyConnection, table_id: int, partition_id: int, snapshot_id: int) -> None:
    """Writes the rows of an append's files. Like files of DuckLake, each has bounds of the partition column."""
    catalog.execute(
        f"INSERT INTO ducklake_data_file SELECT file_id, {table_id}, {snapshot_id}, NULL, NULL, path, true, 'parquet',"
        f" row_count, size_bytes, 1000, file_id * {FILE_ROWS}, {partition_id}, NULL, NULL, NULL FROM entries"
    )
    catalog.execute(f"INSERT INTO ducklake_file_partition_value SELECT file_id, {table_id}, 0, p::VARCHAR FROM entries")
    bounds = [
        (n, f'"min.{n}"', f'"max.{n}"', "false" if kind == "double" else "NULL")
        for n, (_, kind) in enumerate(COLUMNS, 1)
    ]
    for column, low, high, nan in [*bounds, (_PARTITION_ID, "p", "p", "NULL")]:
        catalog.execute(
            f"INSERT INTO ducklake_file_column_stats SELECT file_id, {table_id}, {column}, 1000, row_count, 0,"
            f" {low}::VARCHAR, {high}::VARCHAR, {nan}, NULL FROM entries"
        )


def _fill_table_statistics(catalog: duckdb.DuckDBPyConnection, table_id: int) -> None:
    catalog.execute(
        "INSERT INTO ducklake_table_stats SELECT table_id, sum(record_count), sum(record_count), sum(file_size_bytes)"
        " FROM ducklake_data_file GROUP BY table_id"
    )
    types = [*(_TYPES[kind] for _, kind in COLUMNS), "INTEGER"]
    for column, kind in enumerate(types, 1):
        catalog.execute(
            f"INSERT INTO ducklake_table_column_stats SELECT {table_id}, {column}, false, any_value(contains_nan),"
            f" min(min_value::{kind})::VARCHAR, max(max_value::{kind})::VARCHAR, NULL"
            f" FROM ducklake_file_column_stats WHERE column_id = {column}"
        )


if __name__ == "__main__":
    main("ducklake", "duckdb", {"plan": plan, "commit": commit})
