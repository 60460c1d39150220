"""Partitions cached in memory and updated by what changed."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_server.catalog import partition_changes, partition_sets
from lakemark_server.catalog.partition_sets import PartitionSets
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.catalog.warehouse_records import HiveTable, Partition, new_partition
from lakemark_server.catalog.warehouse_tables import TableDefinition
from lakemark_server.kv import Store, open_store
from tests.work import counted


class Clock:
    now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/store.db")
    yield opened
    opened.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog(store: Store, tmp_path: Path, clock: Clock) -> Catalog:
    made = Catalog(store, str(tmp_path / "warehouse"), clock)
    made.ensure_default_database()
    return made


@pytest.fixture
def warehouse(catalog: Catalog) -> Warehouse:
    return Warehouse(catalog)


def make_table(warehouse: Warehouse, name: str = "t") -> HiveTable:
    database: DatabaseRecord = warehouse.catalog.get_database("hive", "default")
    definition = TableDefinition(
        name, b"table", "MANAGED_TABLE", "", owns_data=True, partition_columns=[("p", "string")]
    )
    return warehouse.tables.create(database, definition)


def row(table: HiveTable, value: str, head: bytes = b"head") -> Partition:
    return new_partition(table, (value,), "", head, b"", located=False)


def values(sets: PartitionSets, table: HiveTable) -> list[tuple[str, bytes]]:
    return [(one.values[0], one.head) for one in sets.get(table.table_id).rows]


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["add", "drop", "alter", "look"]), st.sampled_from("abcdef")), max_size=25
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS)
def test_memory_is_always_what_is_stored(
    warehouse: Warehouse, store: Store, clock: Clock, operations: list[tuple[str, str]]
) -> None:
    table = make_table(warehouse, f"t{warehouse.catalog.table_ids.next()}")
    sets = PartitionSets(store, clock)  # as another process would have them
    model: dict[str, bytes] = {}
    for step, (operation, value) in enumerate(operations):
        clock.now_ms += 1_000
        head = f"head{step}".encode()
        if operation == "add" and value not in model:
            warehouse.partitions.add(table, [row(table, value, head)])
            model[value] = head
        elif operation == "drop":
            warehouse.partitions.drop(table, [(value,)], delete_data=False, if_exists=True)
            model.pop(value, None)
        elif operation == "alter" and value in model:
            warehouse.partitions.alter(table, {(value,): lambda old, head=head: old._replace(head=head)})  # type: ignore[misc]
            model[value] = head
        elif operation == "look":
            assert values(sets, table) == sorted(model.items())
    assert values(sets, table) == sorted(model.items())


def test_a_small_change_reads_only_what_changed(
    warehouse: Warehouse, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(warehouse)
    warehouse.partitions.add(table, [row(table, str(at)) for at in range(50)])
    sets = PartitionSets(store, clock)
    assert len(values(sets, table)) == 50
    monkeypatch.setattr(PartitionSets, "_load", None)
    warehouse.partitions.add(table, [row(table, "new")])
    warehouse.partitions.drop(table, [("7",)], delete_data=False, if_exists=False)
    assert len(values(sets, table)) == 50
    assert sets.get(table.table_id).index()["new",] == 49


def test_what_was_seen_a_while_ago_is_not_read_again(warehouse: Warehouse, store: Store, clock: Clock) -> None:
    table = make_table(warehouse)
    sets = PartitionSets(store, clock)
    assert values(sets, table) == []

    def after_changes(count: int) -> int:
        """Makes ten changes per second. Returns how many rows the last read needed."""
        for _ in range(count):
            clock.now_ms += 100
            warehouse.partitions.add(table, [row(table, f"{clock.now_ms}")])
            with counted(store) as work:
                sets.get(table.table_id)
        return work.rows

    assert after_changes(100) == after_changes(300) == partition_changes.NEAR_MS // 100 + 2
    assert len(values(sets, table)) == 400


def test_what_comes_late_is_found_by_a_second_look(warehouse: Warehouse, store: Store, clock: Clock) -> None:
    """A process whose clock is half a minute slow writes its records between older ones."""
    table = make_table(warehouse)
    behind = Clock()
    behind.now_ms = clock.now_ms - partition_changes.OVERLAP_MS // 2
    sets = PartitionSets(store, clock)
    assert values(sets, table) == []
    other = Warehouse(Catalog(store, warehouse.catalog.warehouse, behind))
    for step in range(3):
        clock.now_ms += 1_000
        behind.now_ms += 1_000
        (other if step == 1 else warehouse).partitions.add(table, [row(table, f"{step}")])
        with mock.patch.object(PartitionSets, "_load", None):
            assert len(values(sets, table)) == step + 1


@pytest.mark.parametrize("pause_ms", [1_000, partition_changes.KEPT_MS * 2])
def test_a_long_pause_or_clocks_that_disagree_cost_time_not_truth(
    warehouse: Warehouse, store: Store, clock: Clock, pause_ms: int
) -> None:
    table = make_table(warehouse)
    warehouse.partitions.add(table, [row(table, "a")])
    behind = Clock()
    behind.now_ms -= 3_600_000
    ahead = Clock()
    ahead.now_ms += 3_600_000
    all_sets = [PartitionSets(store, one) for one in (clock, behind, ahead)]
    for sets in all_sets:
        assert len(values(sets, table)) == 1
    for step in range(4):
        clock.now_ms += pause_ms
        warehouse.partitions.add(table, [row(table, f"n{step}")])
        for sets in all_sets:
            assert len(values(sets, table)) == step + 2


def test_many_changes_at_once_are_not_named(warehouse: Warehouse, store: Store, clock: Clock) -> None:
    table = make_table(warehouse)
    sets = PartitionSets(store, clock)
    assert values(sets, table) == []
    warehouse.partitions.add(table, [row(table, f"{at:05}") for at in range(partition_changes.NAMED_MAX + 1)])
    assert len(values(sets, table)) == partition_changes.NAMED_MAX + 1


def test_pages_may_end_within_a_partition(
    warehouse: Warehouse, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_sets, "_PAGE", 5)
    table = make_table(warehouse)
    sizes = [10, 10, 10, 250_000, 10, 350_000, 10, 10, 150_000, 10]
    for at, size in enumerate(sizes):
        warehouse.partitions.add(table, [row(table, str(at), bytes(size))])
    assert [len(head) for _, head in values(PartitionSets(store, clock), table)] == sizes


def test_the_cache_is_bounded(warehouse: Warehouse, store: Store, clock: Clock) -> None:
    first, second = make_table(warehouse, "a"), make_table(warehouse, "b")
    for table in (first, second):
        warehouse.partitions.add(table, [row(table, str(at), bytes(1_000)) for at in range(10)])
    sets = PartitionSets(store, clock, bytes_max=15_000)
    for table in (first, second, first):
        assert len(values(sets, table)) == 10
    assert (sets.holds(first.table_id), sets.holds(second.table_id)) == (True, False)


def test_pages_are_all_partitions_in_order_whatever_changes_while_they_are_read(
    warehouse: Warehouse, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_sets, "_PAGE", 3)
    table = make_table(warehouse)
    warehouse.partitions.add(table, [row(table, f"p{number:02}") for number in range(10)])
    sets = PartitionSets(store, clock)
    pages_read: list[int] = []

    def make(rows: Sequence[Partition]) -> list[str]:
        pages_read.append(len(rows))
        if len(pages_read) == 2:  # one before what was read, one in it, one after all
            warehouse.partitions.add(table, [row(table, "a"), row(table, "p011"), row(table, "z")])
            warehouse.partitions.drop(table, [("p02",), ("p08",)], delete_data=False, if_exists=False)
        return [one.values[0] for one in rows]

    wanted = ["a", "p00", "p01", "p011", *(f"p{number:02}" for number in (3, 4, 5, 6, 7, 9)), "z"]
    read = sets.pages(table.table_id, make)
    assert [name for page in read for name in page] == wanted
    assert len(read) > 3
    assert max(pages_read) < 10
    assert not sets.holds(table.table_id)


def test_pages_of_a_table_without_partitions(warehouse: Warehouse, store: Store, clock: Clock) -> None:
    sets = PartitionSets(store, clock)
    assert sum(sets.pages(make_table(warehouse).table_id, len)) == 0


def test_a_table_too_large_for_memory_is_not_kept(warehouse: Warehouse, store: Store, clock: Clock) -> None:
    table = make_table(warehouse)
    warehouse.partitions.add(table, [row(table, str(number)) for number in range(10)])
    size_bytes = sum(one.size_bytes for one in PartitionSets(store, clock).get(table.table_id).rows)
    enough, too_little = (PartitionSets(store, clock, size_bytes - less) for less in (0, 1))
    kept = enough.get_if_kept(table.table_id)
    assert kept is not None
    assert len(kept.rows) == 10
    assert too_little.get_if_kept(table.table_id) is None
    with counted(store) as work:
        assert too_little.get_if_kept(table.table_id) is None
    assert work.reads == 0, "that it is too large is known"
    warehouse.partitions.drop(table, [(str(number),) for number in range(8)], delete_data=False, if_exists=False)
    assert sum(too_little.pages(table.table_id, len)) == 2
    kept = too_little.get_if_kept(table.table_id)
    assert kept is not None, "it has shrunk"
    assert len(kept.rows) == 2
