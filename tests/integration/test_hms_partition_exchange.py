"""Partitions that change their table, through the Metastore protocol."""

from pathlib import Path

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import MetaException

from lakemark_server.catalog import left_directories
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.kv import Store
from lakemark_server.verify import verify
from tests.integration.conftest import Client
from tests.integration.hms_objects import partition, path, table

KEYS = "y int, m int"


@pytest.fixture
def two(client: Client) -> Client:
    """A client of ``default.s`` with the partitions 1/1, 1/2, 2/1, each with a file, and the empty ``default.t``."""
    for name in ("s", "t"):
        client.create_table(table(name, keys=KEYS))
    for values in (["1", "1"], ["1", "2"], ["2", "1"]):
        client.add_partition(partition(values, of="s"))
        (directory(client, "s", values) / "file").write_text("/".join(values))
    return client


def directory(client: Client, name: str, values: list[str]) -> Path:
    return path(client.get_partition("default", name, values).sd.location)


def exchange(client: Client, spec: dict[str, str], source: str = "s", target: str = "t") -> list[str]:
    """Names of partitions as they are answered."""
    found = client.exchange_partitions(spec, "default", source, "default", target)
    assert {one.tableName for one in found} == {target}
    return ["/".join(one.values) for one in found]


def names(client: Client, name: str) -> list[str]:
    return [found.replace("y=", "").replace("m=", "") for found in client.get_partition_names("default", name, -1)]


def test_partitions_move_with_their_files(two: Client, warehouse: Path, store: Store) -> None:
    assert exchange(two, {"y": "1"}) == ["1/1", "1/2"]
    assert (names(two, "s"), names(two, "t")) == (["2/1"], ["1/1", "1/2"])
    moved = two.get_partition("default", "t", ["1", "2"])
    assert moved.sd.location == f"file:{warehouse}/t/y=1/m=2"
    assert (path(moved.sd.location) / "file").read_text() == "1/2"
    assert not (warehouse / "s" / "y=1").exists()
    assert (warehouse / "s" / "y=2" / "m=1" / "file").exists()
    two.exchange_partition({"y": "2", "m": "1"}, "default", "s", "default", "t")
    assert (names(two, "s"), len(names(two, "t"))) == ([], 3)
    assert exchange(two, {"y": "1"}, "t", "s") == ["1/1", "1/2"]
    assert verify(store) == []


def test_the_case_of_partition_columns_does_not_matter(two: Client) -> None:
    assert exchange(two, {"y": "1", "M": "2"}) == ["1/2"]
    assert (names(two, "s"), names(two, "t")) == (["1/1", "2/1"], ["1/2"])
    assert exchange(two, {"Y": "2", "m": ""}) == ["2/1"]


def test_what_cannot_be_exchanged_stays(two: Client) -> None:
    two.create_table(table("other", cols="a int", keys=KEYS))
    two.create_table(table("keys", keys="y int"))
    two.add_partition(partition(["1", "2"], of="t"))
    for spec, target, text in (
        ({"y": "1"}, "t", "Partition already exists: y=1/m=2"),
        ({"y": "7"}, "t", "has no partition with the values"),
        ({}, "t", "must give values for the first of"),
        ({"nosuch": "1"}, "t", "must give values"),
        ({"m": "1"}, "t", r"for the first of \[y, m\]"),
        ({"y": "1", "M": "2", "m": "1"}, "t", "one for each"),
        ({"y": "1", "month": "2"}, "t", "for nothing else: it gives .*month"),
        ({"y": "1", "month": ""}, "t", "for nothing else"),
        ({"Y": "", "M": "2"}, "t", "must give values for the first"),
        ({"y": "1"}, "s", "with itself"),
        ({"y": "1"}, "other", "different columns"),
        ({"y": "1"}, "keys", "different columns"),
        ({"y": "1"}, "none", "none table not found"),
    ):
        with pytest.raises(MetaException, match=text):
            exchange(two, spec, "s", target)
    assert names(two, "s") == ["1/1", "1/2", "2/1"]
    for values in (["1", "1"], ["1", "2"], ["2", "1"]):
        assert (directory(two, "s", values) / "file").read_text() == "/".join(values)


def test_a_directory_in_the_way_moves_nothing(two: Client, warehouse: Path) -> None:
    stranger = warehouse / "t" / "y=1" / "m=2" / "precious"
    stranger.parent.mkdir(parents=True)
    stranger.touch()
    with pytest.raises(MetaException, match="exists already"):
        exchange(two, {"y": "1"})
    assert (names(two, "s"), names(two, "t")) == (["1/1", "1/2", "2/1"], [])
    assert (directory(two, "s", ["1", "1"]) / "file").exists()
    assert stranger.exists()
    stranger.unlink()
    assert exchange(two, {"y": "1"}) == ["1/1", "1/2"]


def test_the_empty_directory_of_a_partition_that_is_there_stays(two: Client) -> None:
    two.add_partition(partition(["1", "2"], of="t"))
    with pytest.raises(MetaException, match="Partition already exists"):
        exchange(two, {"y": "1"})
    assert directory(two, "t", ["1", "2"]).is_dir()


def test_a_partition_in_a_directory_of_another_name_is_not_exchanged(two: Client, warehouse: Path) -> None:
    two.add_partition(partition(["3", "1"], of="s", location=f"file:{warehouse}/s/custom"))
    with pytest.raises(MetaException, match=r"has another directory .*custom"):
        exchange(two, {"y": "3"})


def test_files_that_somebody_else_reads_stay(two: Client, warehouse: Path) -> None:
    read = f"file:{warehouse}/s/y=1/m=2"
    two.create_table(table("reader", location=read, parameters={"EXTERNAL": "TRUE"}, kind="EXTERNAL_TABLE"))
    with pytest.raises(MetaException, match=r"cannot be moved: .*reader has its directory there"):
        exchange(two, {"y": "1"})
    assert names(two, "s") == ["1/1", "1/2", "2/1"]
    assert (path(read) / "file").exists()
    assert exchange(two, {"y": "2"}) == ["2/1"]


def test_files_of_external_tables_stay_where_they_are(two: Client, tmp_path: Path) -> None:
    two.create_table(
        table("e", keys=KEYS, location=f"file:{tmp_path}/e", parameters={"EXTERNAL": "TRUE"}, kind="EXTERNAL_TABLE")
    )
    two.add_partition(partition(["9", "9"], of="e"))
    (tmp_path / "e" / "y=9" / "m=9" / "file").touch()
    assert exchange(two, {"y": "9"}, "e", "t") == ["9/9"]
    assert directory(two, "t", ["9", "9"]) == tmp_path / "e" / "y=9" / "m=9"
    two.drop_partition("default", "t", ["9", "9"], True)
    assert (tmp_path / "e" / "y=9" / "m=9" / "file").exists()


@pytest.mark.parametrize("dies_at", range(4))
def test_a_process_that_dies_over_it_loses_nothing(
    two: Client, catalog: Catalog, store: Store, dies_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies before its transaction ``dies_at``: one closes the directories, one moves the partitions, one opens."""
    warehouse = Warehouse(catalog)
    source, target = (warehouse.tables.get("hive", "default", name) for name in ("s", "t"))
    rows = warehouse.partitions.named(source, [("1", "1"), ("1", "2")])
    plain, count = store.transact, 0

    def transact(body, **options):  # type: ignore[no-untyped-def]
        nonlocal count
        count += 1
        if count > dies_at:
            raise KeyboardInterrupt
        return plain(body, **options)

    monkeypatch.setattr(store, "transact", transact)
    if dies_at < 3:
        with pytest.raises(KeyboardInterrupt):
            warehouse.partitions.exchange(source, target, rows)
    else:
        warehouse.partitions.exchange(source, target, rows)
    monkeypatch.undo()
    left_directories.finish(store, catalog.clock() + left_directories.LEFT_MS + 1)
    happened = dies_at >= 2
    there = "t" if happened else "s"
    assert names(two, there)[:2] == ["1/1", "1/2"]
    for values in (["1", "1"], ["1", "2"]):
        assert (directory(two, there, values) / "file").read_text() == "/".join(values)
    assert verify(store) == []
    two.add_partition(partition(["1", "3"], of="s"))  # nothing is closed any more
    assert exchange(two, {"y": "1"}, there, "s" if happened else "t")[0] == "1/1"
