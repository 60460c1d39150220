"""Changes of warehouse tables that meet others, or fail half way."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakemark.errors import (
    AlreadyExists,
    FailedPrecondition,
    PartitionNotFound,
    StoreConflict,
    TableNotFound,
    Unavailable,
)
from lakemark_server.catalog import partition_batches
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.catalog.warehouse_partitions import WarehousePartitions
from lakemark_server.catalog.warehouse_records import HiveTable, Partition, new_partition
from lakemark_server.catalog.warehouse_tables import TableChange, TableDefinition
from lakemark_server.keyspace import PARTITIONS, PENDING_PARTITIONS
from lakemark_server.kv import CommitUnknownResult, Store, Transaction, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/store.db")
    yield opened
    opened.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


@pytest.fixture
def warehouse(store: Store, place: Path) -> Warehouse:
    catalog = Catalog(store, str(place))
    catalog.ensure_default_database()
    return Warehouse(catalog)


def definition(name: str, place: Path, hive: bytes = b"table") -> TableDefinition:
    columns = [("p", "string")]
    return TableDefinition(
        name, hive, "MANAGED_TABLE", f"file:{place}/{name}", owns_data=True, partition_columns=columns
    )


@pytest.fixture
def table(warehouse: Warehouse, place: Path) -> HiveTable:
    return warehouse.tables.create(warehouse.catalog.get_database("hive", "default"), definition("t", place))


def row(table: HiveTable, value: str, head: bytes = b"head") -> Partition:
    return new_partition(table, (value,), f"{table.record.location}/p={value}", head, b"", located=True)


def test_a_decision_is_made_again_when_the_table_was_changed_meanwhile(
    warehouse: Warehouse, table: HiveTable, place: Path
) -> None:
    seen: list[bytes] = []

    def change(old: HiveTable) -> TableChange:
        if not seen:
            warehouse.tables.alter(
                "hive", "default", "t", lambda _: TableChange(table.database, definition("t", place, b"between"))
            )
        seen.append(old.record.hive)
        return TableChange(table.database, definition("t", place, old.record.hive + b"+mine"))

    warehouse.tables.alter("hive", "default", "t", change)
    assert seen == [b"table", b"between"]
    assert warehouse.tables.get("hive", "default", "t").record.hive == b"between+mine"


def test_a_rename_that_comes_second_puts_the_directory_back(
    warehouse: Warehouse, table: HiveTable, place: Path
) -> None:
    (place / "t" / "file").write_text("x")
    first = True

    def change(_: HiveTable) -> TableChange:
        nonlocal first
        if first:
            first = False
            warehouse.tables.create(table.database, TableDefinition("u", b"", "VIRTUAL_VIEW", "", owns_data=False))
        return TableChange(table.database, definition("u", place), moves=True)

    with pytest.raises(AlreadyExists):
        warehouse.tables.alter("hive", "default", "t", change)
    assert (place / "t" / "file").read_text() == "x"
    assert not (place / "u").exists()


def test_partitions_of_a_dropped_table_cannot_be_added_or_changed(warehouse: Warehouse, table: HiveTable) -> None:
    warehouse.partitions.add(table, [row(table, "1")])
    warehouse.tables.drop("hive", "default", "t", delete_data=True)
    with pytest.raises(TableNotFound):
        warehouse.partitions.add(table, [row(table, "2")])
    with pytest.raises(TableNotFound):
        warehouse.partitions.drop(table, [("1",)], delete_data=True, if_exists=True)
    with pytest.raises(TableNotFound):
        warehouse.statistics.put(table, "", {"a": b"x"})
    assert not Path(table.record.location.removeprefix("file:")).exists()


def test_a_large_request_that_fails_in_its_second_part_is_taken_back(
    warehouse: Warehouse, table: HiveTable, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = WarehousePartitions._add_part
    calls: list[int] = []

    def failing(self: WarehousePartitions, *args: Any) -> list[Partition]:
        calls.append(len(args[3]))
        if len(calls) > 1:
            raise Unavailable("the store went away")
        return add(self, *args)

    monkeypatch.setattr(WarehousePartitions, "_add_part", failing)
    rows = [row(table, str(at), bytes(90_000)) for at in range(60)]
    with pytest.raises(Unavailable):
        warehouse.partitions.add(table, rows)
    assert 0 < calls[0] < 60
    assert warehouse.partitions.all(table).rows == []
    assert list((place / "t").iterdir()) == []
    assert warehouse.partitions.add(table, rows[:1]) == rows[:1]


def test_a_large_request_is_there_all_at_once(warehouse: Warehouse, table: HiveTable, store: Store) -> None:
    """Seen by every way of reading, after each of its transactions."""
    rows = [row(table, f"{at:02}", bytes(90_000)) for at in range(30)]
    names = [one.values for one in rows]
    seen: list[tuple[int, ...]] = []
    plain = store.transact

    def looking(body: Callable[[Transaction], Any], **options: Any) -> Any:
        result = plain(body, **options)
        fresh = Warehouse(warehouse.catalog).partitions
        seen.append(
            (
                len(fresh.named(table, names)),
                len(fresh.first(table, (), 100) or ()),
                len(fresh.all(table).rows),
                len(warehouse.partitions.all(table).rows),
            )
        )
        return result

    warehouse.partitions.all(table)
    store.transact = looking  # type: ignore[method-assign]
    warehouse.partitions.add(table, rows)
    assert len(seen) > 3
    assert seen[:-1] == [(0, 0, 0, 0)] * (len(seen) - 1)
    assert seen[-1] == (30, 30, 30, 30)
    assert [one._replace(batch=0) for one in warehouse.partitions.named(table, names)] == rows
    with pytest.raises(AlreadyExists):
        warehouse.partitions.add(table, rows[:1])


def test_what_a_process_that_died_had_added_is_taken_back_by_the_next(
    store: Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = 1_000_000
    catalog = Catalog(store, str(place), clock=lambda: now_ms)
    catalog.ensure_default_database()
    warehouse = Warehouse(catalog)
    table = warehouse.tables.create(catalog.get_database("hive", "default"), definition("t", place))
    rows = [row(table, f"{at:02}", bytes(90_000)) for at in range(30)]
    with monkeypatch.context() as died:
        died.setattr(WarehousePartitions, "_complete", _die)
        died.setattr(partition_batches, "take_back", _die)
        with pytest.raises(Unavailable):
            warehouse.partitions.add(table, rows)
    assert warehouse.partitions.all(table).rows == []
    assert warehouse.partitions.drop(table, [("00",)], delete_data=True, if_exists=True) == []
    with pytest.raises(StoreConflict, match="another request"):
        warehouse.partitions.add(table, rows[:1])
    now_ms += partition_batches.STALE_MS + 1
    assert warehouse.partitions.add(table, rows[:1]) == rows[:1]
    assert warehouse.partitions.all(table).rows == rows[:1]
    assert store.read(lambda tx: tx.get_range(*PENDING_PARTITIONS.range())) == []
    assert len(store.read(lambda tx: tx.get_range(*PARTITIONS.range()))) == 1


def test_a_batch_that_was_taken_back_cannot_be_completed(
    warehouse: Warehouse, table: HiveTable, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = WarehousePartitions._complete

    def too_late(self: WarehousePartitions, table: HiveTable, batch: int, tx: Transaction) -> None:
        partition_batches.take_back(store, table.table_id, batch)
        complete(self, table, batch, tx)

    monkeypatch.setattr(WarehousePartitions, "_complete", too_late)
    with pytest.raises(StoreConflict, match="taken back"):
        warehouse.partitions.add(table, [row(table, f"{at:02}", bytes(90_000)) for at in range(30)])
    assert warehouse.partitions.all(table).rows == []


def _die(*_: object) -> None:
    raise Unavailable("nothing more happens here")


def test_many_partitions_are_dropped_in_several_transactions_and_checked_before(
    warehouse: Warehouse, table: HiveTable
) -> None:
    rows = [row(table, f"{at:04}") for at in range(1_200)]
    names = [one.values for one in rows]
    warehouse.partitions.add(table, rows)
    with pytest.raises(PartitionNotFound):
        warehouse.partitions.drop(table, [*names, ("x",)], delete_data=True, if_exists=False)
    assert len(warehouse.partitions.all(table).rows) == 1_200
    assert len(warehouse.partitions.drop(table, names, delete_data=True, if_exists=False)) == 1_200
    assert warehouse.partitions.all(table).rows == []


def test_after_an_unknown_outcome_directories_stay(
    warehouse: Warehouse, table: HiveTable, place: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise CommitUnknownResult("who knows")

    monkeypatch.setattr(store, "transact", unknown)
    with pytest.raises(CommitUnknownResult):
        warehouse.partitions.add(table, [row(table, "1")])
    assert (place / "t" / "p=1").is_dir()


def test_an_external_table_is_not_truncated(warehouse: Warehouse, place: Path) -> None:
    own = TableDefinition("e", b"", "EXTERNAL_TABLE", f"file:{place}/e", owns_data=False)
    made = warehouse.tables.create(warehouse.catalog.get_database("hive", "default"), own)
    (place / "e" / "file").write_text("x")
    with pytest.raises(FailedPrecondition, match="external"):
        warehouse.tables.truncate(made, [made.record.location])
    assert (place / "e" / "file").exists()
