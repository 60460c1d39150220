"""Changes of warehouse tables that collide with others, or fail half way."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakemark_core import storage
from lakemark_core.errors import (
    AlreadyExists,
    FailedPrecondition,
    LocationTaken,
    TableNotFound,
)
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_server.catalog import left_directories
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.catalog.warehouse_records import HiveTable, Partition, new_partition
from lakemark_server.catalog.warehouse_tables import TableChange, TableDefinition, moves_with_its_name
from lakemark_server.kv import CommitUnknownResult, Store, open_store
from lakemark_server.ownership.tenures import LEFT_MS


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


def test_a_rename_is_undone_although_somebody_has_made_the_old_directory_again(
    warehouse: Warehouse, table: HiveTable, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that asks nobody: what it wrote stays, and everything else comes back."""
    for name in ("file", "p=1/file", "p=2/deep/file"):
        (place / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "t" / name).write_text("old")
    move = storage.begin_move

    def meanwhile(source: str, target: str, may_go_on: Callable[[], None]) -> storage.Move:
        moved = move(source, target, may_go_on)
        (place / "t" / "p=1").mkdir(parents=True)
        (place / "t" / "p=1" / "new").write_text("new")
        warehouse.tables.create(table.database, TableDefinition("u", b"", "VIRTUAL_VIEW", "", owns_data=False))
        return moved

    monkeypatch.setattr(storage, "begin_move", meanwhile)
    change = TableChange(table.database, definition("u", place), moves=True)
    with pytest.raises(AlreadyExists):
        warehouse.tables.alter("hive", "default", "t", lambda _: change)
    files = sorted(str(one.relative_to(place)) for one in place.rglob("*") if one.is_file())
    assert files == ["t/file", "t/p=1/file", "t/p=1/new", "t/p=2/deep/file"]
    assert not (place / "u").exists()


def test_a_rename_whose_process_died_is_undone_although_the_old_directory_is_there_again(
    warehouse: Warehouse, table: HiveTable, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "t" / "file").write_text("old")
    move = storage.begin_move

    def dies(source: str, target: str, may_go_on: Callable[[], None]) -> storage.Move:
        move(source, target, may_go_on)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(storage, "begin_move", dies)
        change = TableChange(table.database, definition("u", place), moves=True)
        with pytest.raises(KeyboardInterrupt):
            warehouse.tables.alter("hive", "default", "t", lambda _: change)
    (place / "t").mkdir()
    (place / "t" / "new").write_text("new")
    left_directories.finish(warehouse.catalog.store, warehouse.catalog.clock() + LEFT_MS + 1)
    assert sorted(one.name for one in (place / "t").iterdir()) == ["file", "new"]
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
        warehouse.tables.truncate(made)
    assert (place / "e" / "file").exists()


def test_a_partition_takes_no_directory_along_that_it_only_reads(
    warehouse: Warehouse, table: HiveTable, tmp_path: Path
) -> None:
    precious = tmp_path / "elsewhere" / "precious"
    precious.parent.mkdir()
    precious.touch()
    outside = new_partition(table, ("1",), f"file:{precious.parent}", b"head", b"", located=True)
    warehouse.partitions.add(table, [outside])
    with pytest.raises(FailedPrecondition, match="the partition reads its directory, which it does not own"):
        warehouse.partitions.rename(table, ("1",), lambda _: row(table, "2"))
    warehouse.partitions.drop(table, [("1",)], delete_data=True, if_exists=False)
    assert precious.exists()


def full(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "precious").touch()
    return directory / "precious"


def test_a_truncation_empties_no_directory_that_a_partition_only_reads(
    warehouse: Warehouse, table: HiveTable, tmp_path: Path
) -> None:
    precious = full(tmp_path / "elsewhere")
    outside = new_partition(table, ("1",), f"file:{precious.parent}", b"head", b"", located=True)
    warehouse.partitions.add(table, [outside, row(table, "2")])
    file = full(Path(f"{table.record.location.removeprefix('file:')}/p=2"))
    with pytest.raises(FailedPrecondition, match=r"default\.t cannot be truncated: the partition reads its directory"):
        warehouse.tables.truncate(table, warehouse.partitions.all(table).rows)
    assert precious.exists()
    assert file.exists(), "all or nothing"
    warehouse.tables.truncate(table, [row(table, "2")])
    assert not file.exists()


def test_partitions_that_start_from_another_directory_are_owned_only_there(
    warehouse: Warehouse, tmp_path: Path, place: Path
) -> None:
    """The table was made elsewhere, on data that it does not own, and moved into the warehouse later."""
    database = warehouse.catalog.get_database("hive", "default")
    elsewhere = tmp_path / "elsewhere"
    table = warehouse.tables.create(database, definition("t", elsewhere))
    warehouse.partitions.add(table, [row(table, "1")])
    precious = full(elsewhere / "t" / "p=1")
    warehouse.tables.alter("hive", "default", "t", lambda old: TableChange(old.database, definition("t", place)))
    table = warehouse.tables.get("hive", "default", "t")
    assert table.record.owns_data
    with pytest.raises(FailedPrecondition, match="cannot be truncated: it lies outside"):
        warehouse.tables.truncate(table, warehouse.partitions.all(table).rows)
    assert not moves_with_its_name(table), "its partitions would stay behind"
    warehouse.partitions.drop(table, [("1",)], delete_data=True, if_exists=False)
    assert precious.exists()


def test_a_partition_in_its_table_by_another_name_takes_no_sibling_along(
    warehouse: Warehouse, table: HiveTable, place: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(place)
    warehouse.partitions.add(table, [row(table, "1")])
    alias = new_partition(table, ("2",), f"file:{tmp_path}/link/t/p=1", b"head", b"", located=True)
    warehouse.partitions.add(table, [alias])
    precious = full(place / "t" / "p=1")
    for value in ("2", "1"):
        warehouse.partitions.drop(table, [(value,)], delete_data=True, if_exists=False)
        assert precious.exists() is (value == "2")


def test_a_table_is_not_dropped_while_it_is_emptied(
    warehouse: Warehouse, table: HiveTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name would be free, and what is made there would be emptied."""

    def dropped_meanwhile(*_: object) -> None:
        with pytest.raises(LocationTaken, match="is being emptied; try again in a moment"):
            warehouse.tables.drop("hive", "default", "t", delete_data=True)

    monkeypatch.setattr(storage, "empty_directory", dropped_meanwhile)
    warehouse.tables.truncate(table)
    warehouse.tables.drop("hive", "default", "t", delete_data=True)


def test_a_renamed_table_keeps_its_place_in_the_directory_of_its_former_database(warehouse: Warehouse) -> None:
    catalog = warehouse.catalog
    first, second = (catalog.create_database(DatabaseRecord(name=name)) for name in ("a", "b"))
    custom = TableDefinition("t", b"", "MANAGED_TABLE", f"{first.location}/custom", owns_data=True)
    warehouse.tables.create(first, custom)
    warehouse.tables.alter("hive", "a", "t", lambda _: TableChange(second, custom))
    assert warehouse.tables.get("hive", "b", "t").record.owns_data
    warehouse.tables.drop("hive", "b", "t", delete_data=True)
    assert not Path(custom.location.removeprefix("file:")).exists()
