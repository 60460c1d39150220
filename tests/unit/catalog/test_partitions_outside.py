"""Many partitions outside of their table's directory: each notes its place, which is much of what is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.catalog.warehouse_records import Partition, new_partition
from lakemark_server.catalog.warehouse_tables import TableDefinition
from lakemark_server.kv import buffer
from lakemark_server.kv.sqlite.store import SqliteStore

COUNT = 500


def test_they_are_added_moved_and_dropped_in_one_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "TRANSACTION_BYTES_MAX", 1_000_000)
    store = SqliteStore(tmp_path / "kv.db")
    catalog = Catalog(store, str(tmp_path / "warehouse"))
    catalog.ensure_default_database()
    warehouse = Warehouse(catalog)
    table = warehouse.tables.create(
        catalog.get_database("hive", "default"),
        TableDefinition(
            "t", b"table", "EXTERNAL_TABLE", f"file:{tmp_path}/t", owns_data=False, partition_columns=[("p", "string")]
        ),
    )

    def row(number: int, directory: str) -> Partition:
        location = f"file:{tmp_path}/{directory}/{'x' * 150}/p={number}"
        return new_partition(table, (str(number),), location, b"head", b"", located=True)

    def moved(number: int) -> Callable[[Partition], Partition]:
        return lambda old: row(number, "second")

    warehouse.partitions.add(table, [row(number, "first") for number in range(COUNT)])
    warehouse.partitions.alter(table, {(str(number),): moved(number) for number in range(COUNT)})
    rows = warehouse.partitions.all(table).rows
    assert {one.location for one in rows} == {row(number, "second").location for number in range(COUNT)}
    wanted = [one.values for one in rows]
    assert len(warehouse.partitions.drop(table, wanted, delete_data=False, if_exists=False)) == COUNT
    assert not warehouse.partitions.all(table).rows
    store.close()
