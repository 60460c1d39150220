"""Adding, changing and dropping more partitions than fit into one transaction: all at once, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lakemark_core.errors import AlreadyExists, LakemarkError, PartitionNotFound, StoreConflict, Unavailable
from lakemark_proto.store.v1.warehouse_pb2 import HivePartitionRecord
from lakemark_server.catalog import partition_batches, warehouse_partitions
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.catalog.warehouse_partitions import WarehousePartitions
from lakemark_server.catalog.warehouse_records import PENDING_HEAD, HiveTable, Partition, Values, new_partition
from lakemark_server.catalog.warehouse_tables import TableChange, TableDefinition
from lakemark_server.kv import CommitUnknownResult, Store, Transaction, buffer, open_store
from lakemark_server.store import store_format
from lakemark_server.store.keyspace import COLUMN_STATISTICS, PARTITIONS, PENDING_PARTITIONS
from lakemark_server.verify.store import verify
from tests.lakes import Clock

COUNT = 6
SMALL = [10] * COUNT
LARGE = [300_000] * (COUNT - 1) + [430_000]  # in several pieces each
VALUES: list[Values] = [(f"{at:02}",) for at in range(COUNT)]
KINDS = ["add", "alter", "drop"]
STATISTICS = {"a": b"what is known of it"}

State = list[tuple[Values, bytes]]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(buffer, "TRANSACTION_BYTES_MAX", 1_000_000)
    opened = open_store(f"sqlite:///{tmp_path}/store.db")
    store_format.ensure(opened)
    yield opened
    opened.close()


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes small partitions split into as many transactions as large ones."""
    monkeypatch.setattr(warehouse_partitions, "BATCH_BYTES_MAX", 2_400)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def definition(place: Path, name: str, hive: bytes) -> TableDefinition:
    columns = [("p", "string")]
    return TableDefinition(
        name, hive, "MANAGED_TABLE", f"file:{place}/{name}", owns_data=True, partition_columns=columns
    )


class World:
    """A table, and one request that changes more of its partitions than one transaction takes."""

    def __init__(
        self, store: Store, clock: Clock, place: Path, kind: str, name: str = "t", sizes: Sequence[int] = SMALL
    ) -> None:
        self.store, self.clock, self.place, self.kind, self.sizes = store, clock, place, kind, sizes
        self.catalog = Catalog(store, str(place), clock=clock)
        self.catalog.ensure_default_database()
        self.warehouse = Warehouse(self.catalog)
        self.table = self.warehouse.tables.create(
            self.catalog.get_database("hive", "default"),
            definition(place, name, b"old"),
        )
        kept = row(self.table, "kept", b"kept", 10)
        self.warehouse.partitions.add(self.table, [kept, *(self.rows(b"old") if kind != "add" else ())])
        if kind != "add":
            self.warehouse.statistics.put(self.table, "p=00", STATISTICS)
        self.before, self.after = self.expected(done=False), self.expected(done=True)
        assert self.states() == [self.before] * 4

    def rows(self, mark: bytes) -> list[Partition]:
        return [row(self.table, values[0], mark, size) for values, size in zip(VALUES, self.sizes, strict=True)]

    def expected(self, *, done: bool) -> State:
        there = {"add": done, "alter": True, "cascade": True, "drop": not done}[self.kind]
        mark = b"old" if self.kind == "drop" or not done else b"new"
        kept = b"newt" if self.kind == "cascade" and done else b"kept"
        return [(values, mark) for values in VALUES if there] + [(("kept",), kept)]

    def run(self, partitions: WarehousePartitions) -> None:
        if self.kind == "add":
            assert partitions.add(self.table, self.rows(b"new")) == self.rows(b"new")
        elif self.kind == "alter":
            new = {one.values: one for one in self.rows(b"new")}
            partitions.alter(self.table, {values: lambda old: new[old.values] for values in reversed(VALUES)})
        elif self.kind == "cascade":
            new_definition = definition(self.place, self.table.name, b"new")
            self.warehouse.tables.alter(
                *("hive", "default", self.table.name),
                lambda _: TableChange(self.table.database, new_definition),
                lambda before, after: lambda old: old._replace(head=after.record.hive + old.head[3:]),
            )
        else:
            wanted = VALUES[::-1]
            with pytest.MonkeyPatch.context() as patch:  # few keys would fit into one transaction
                patch.setattr(
                    warehouse_partitions, "_bytes_of_key", lambda values: 524 if self.sizes is SMALL else 200_000
                )
                dropped = partitions.drop(self.table, wanted, delete_data=True, if_exists=False)
            assert [one.values for one in dropped] == wanted

    def states(self) -> list[State]:
        """The partitions by every way of reading, in a new process and through the caches of this one."""
        fresh = Warehouse(self.catalog).partitions
        names = [*VALUES, ("kept",)]
        loaded = [fresh.named(self.table, names), fresh.first(self.table, (), 100) or []]
        loaded += [fresh.all(self.table).rows, self.warehouse.partitions.all(self.table).rows]  # type: ignore[list-item]
        return [[(one.values, one.head[:4].rstrip(b".")) for one in rows] for rows in loaded]

    def state(self) -> State:
        first, *others = self.states()
        assert others == [first] * 3
        return first

    def hive(self) -> bytes:
        return self.warehouse.tables.get("hive", "default", self.table.name).record.hive

    def left_over(self) -> int:
        """Keys that exist only while a batch is pending."""
        return len(self.store.read(lambda tx: tx.get_range(*PENDING_PARTITIONS.range(self.table.table_id))))


def row(table: HiveTable, value: str, mark: bytes, size: int) -> Partition:
    head = mark.ljust(4, b".").ljust(size, b"x")
    return new_partition(table, (value,), f"{table.record.location}/p={value}", head, b"", located=True)


@pytest.fixture
def world(store: Store, clock: Clock, tmp_path: Path, kind: str, small_parts: None) -> World:
    return World(store, clock, tmp_path / "warehouse", kind)


class DiedError(BaseException):
    """The process died: nothing handles this error."""


class Transactions:
    """Counts the transactions of a store, and makes one of them fail."""

    def __init__(self, store: Store, fail_at: int = -1, fault: str = "") -> None:
        self._plain = store.transact
        self.count, self._fail_at, self._fault = 0, fail_at, fault

    def __call__(self, body: Callable[[Transaction], Any], **options: Any) -> Any:
        number, self.count = self.count, self.count + 1
        if number != self._fail_at:
            if self._fault == "dies" and number > self._fail_at >= 0:
                raise DiedError
            return self._plain(body, **options)
        if self._fault in ("dies", "unknown done"):
            self._plain(body, **options)
        if self._fault == "dies":
            raise DiedError
        raise Unavailable("not applied") if self._fault == "fails" else CommitUnknownResult("who knows")


def run_with(world: World, transactions: Transactions) -> BaseException | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.store, "transact", transactions)
        try:
            world.run(world.warehouse.partitions)
        except (LakemarkError, DiedError) as error:
            return error
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_sees_a_part(store: Store, clock: Clock, tmp_path: Path, kind: str) -> None:
    """Checked after each transaction. None is larger than FoundationDB recommends."""
    world = World(store, clock, tmp_path, kind, sizes=LARGE)
    seen: list[State] = []
    plain = world.store.transact

    def looking(body: Callable[[Transaction], Any], **options: Any) -> Any:
        result = plain(body, **options)
        seen.append(world.state())
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.store, "transact", looking)
        world.run(world.warehouse.partitions)
    flips = [at for at in range(1, len(seen)) if seen[at] != seen[at - 1]]
    assert len(flips) == 1
    assert flips[0] > 1
    assert (seen[0], seen[-1]) == (world.before, world.after)
    assert world.left_over() == 0
    assert verify(world.store) == []


@pytest.mark.parametrize("fault", ["dies", "fails", "unknown done", "unknown lost"])
@pytest.mark.parametrize("kind", [*KINDS, "cascade"])
def test_whatever_happens_at_any_transaction(
    store: Store, clock: Clock, tmp_path: Path, small_parts: None, kind: str, fault: str
) -> None:
    """The request took effect as a whole or not at all, its answer is true, and repeating it is correct."""
    plain = Transactions(store)
    assert run_with(World(store, clock, tmp_path, kind), plain) is None
    assert plain.count >= 4
    # The parts, the one that makes it so, and then one for all that was added, or for each part and the end. Before and
    # after the files of dropped partitions are deleted there is one more.
    parts = plain.count - 2 if kind == "add" else (plain.count - 2 - 2 * (kind == "drop")) // 2
    for at in range(plain.count):
        world = World(store, clock, tmp_path, kind, f"t{at}")
        error = run_with(world, Transactions(store, at, fault))
        found = world.state()
        assert found in (world.before, world.after), (at, error)
        done = found == world.after
        assert done == (at > parts or (at == parts and fault in ("dies", "unknown done"))), (at, error)
        assert world.hive() == (b"new" if done and kind == "cascade" else b"old")
        assert (error is None) == (done and fault != "dies"), (at, error)
        assert verify(store) == [], at
        if not isinstance(error, DiedError):
            assert done or world.left_over() == 0
        clock.advance(partition_batches.STALE_MS + 1)
        again(world, done)
        partition_batches.finish_abandoned(store, clock())
        assert world.left_over() == 0
        assert world.state() == world.after
        statistics = store.read(lambda tx, world=world: tx.get_range(*COLUMN_STATISTICS.range(world.table.table_id)))  # type: ignore[misc]
        assert len(statistics) == (kind in ("alter", "cascade"))
        assert verify(store) == []


def again(world: World, done: bool) -> None:
    """The same request, in a new process."""
    partitions = Warehouse(world.catalog).partitions
    if done and world.kind in ("add", "drop"):
        with pytest.raises(AlreadyExists if world.kind == "add" else PartitionNotFound):
            world.run(partitions)
    else:
        world.run(partitions)


@pytest.mark.parametrize("kind", KINDS)
def test_the_sweeper_settles_what_was_left(
    store: Store, clock: Clock, tmp_path: Path, small_parts: None, kind: str
) -> None:
    plain = Transactions(store)
    assert run_with(World(store, clock, tmp_path, kind), plain) is None
    for at in range(plain.count - 1 - 2 * (kind == "drop")):  # then files are deleted
        world = World(store, clock, tmp_path, kind, f"t{at}")
        run_with(world, Transactions(store, at, "dies"))
        found = world.state()
        assert partition_batches.finish_abandoned(store, clock()) == 0, "its writer may be alive"
        clock.advance(partition_batches.STALE_MS + 1)
        assert partition_batches.finish_abandoned(store, clock()) == 1
        assert world.state() == found
        assert world.left_over() == 0
        assert partition_batches.finish_abandoned(store, clock()) == 0
        keys = PARTITIONS.range(world.table.table_id)
        stored = store.read(lambda tx, keys=keys: tx.get_range(*keys))  # type: ignore[misc]
        assert len(stored) == len(found)
        records = [HivePartitionRecord.FromString(value[2:]) for _, value in stored]
        assert not any(record.gone or record.HasField("before") for record in records)


@pytest.mark.parametrize("kind", KINDS)
def test_others_who_change_the_same_partitions_meanwhile(world: World, clock: Clock) -> None:
    run_with(world, Transactions(world.store, 1, "dies"))
    other = Warehouse(world.catalog).partitions
    changes: list[Callable[[], Any]] = [
        lambda: other.add(world.table, world.rows(b"more")[:1]),
        lambda: other.alter(world.table, {VALUES[0]: lambda old: old._replace(head=b"more")}),
        lambda: other.drop(world.table, VALUES[:1], delete_data=False, if_exists=False),
        lambda: other.rename(world.table, VALUES[0], lambda old: old._replace(values=("other",), location="p=other")),
    ]
    for change in changes[:1] if world.kind == "add" else changes[1:]:
        with pytest.raises(StoreConflict, match="another request; try again"):
            change()
    assert world.state() == world.before
    clock.advance(partition_batches.STALE_MS + 1)
    if world.kind == "add":
        changes[0]()
    else:
        changes[1]()
    assert (VALUES[0], b"more") in world.state()
    assert world.left_over() == 0


@pytest.mark.parametrize("kind", ["alter", "drop"])
def test_partitions_of_a_batch_that_is_done_and_not_settled_can_be_changed(world: World, clock: Clock) -> None:
    plain = Transactions(world.store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_batches, "settle", _die)
        run_with(world, plain)
    assert world.state() == world.after
    other = Warehouse(world.catalog).partitions
    more = row(world.table, "00", b"more", 10)
    if world.kind == "alter":
        other.alter(world.table, {VALUES[0]: lambda _: more})
        assert len(other.drop(world.table, VALUES[1:2], delete_data=False, if_exists=False)) == 1
    else:
        other.add(world.table, [more])
        assert world.warehouse.statistics.get(world.table, ["p=00"], ["a"]) == {}
        world.warehouse.statistics.put(world.table, "p=00", {"a": b"new"})
    found = world.state()
    assert (VALUES[0], b"more") in found
    clock.advance(partition_batches.STALE_MS + 1)
    assert partition_batches.finish_abandoned(world.store, clock()) == 1
    assert world.state() == found
    if world.kind == "drop":
        assert world.warehouse.statistics.get(world.table, ["p=00"], ["a"]) == {"p=00": [b"new"]}


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_was_taken_back_cannot_be_completed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    complete = WarehousePartitions._complete

    def too_late(self: WarehousePartitions, table: HiveTable, batch: int, *args: Any) -> None:
        partition_batches.take_back(world.store, table.table_id, batch)
        complete(self, table, batch, *args)

    monkeypatch.setattr(WarehousePartitions, "_complete", too_late)
    with pytest.raises(StoreConflict, match="taken back"):
        world.run(world.warehouse.partitions)
    assert world.state() == world.before


@pytest.mark.parametrize("kind", ["alter", "drop"])
def test_what_one_partition_fails_fails_all(world: World) -> None:
    partitions = world.warehouse.partitions
    wanted: list[Values] = [*VALUES, ("x",)]
    run: dict[str, Callable[[], Any]] = {
        "alter": lambda: partitions.alter(world.table, {values: lambda old: old for values in wanted}),
        "drop": lambda: partitions.drop(world.table, wanted, delete_data=True, if_exists=False),
    }
    with pytest.raises(PartitionNotFound, match="p=x"):
        run[world.kind]()
    assert world.state() == world.before


@pytest.mark.parametrize("kind", KINDS)
def test_small_requests_are_one_transaction(store: Store, clock: Clock, tmp_path: Path, kind: str) -> None:
    world = World(store, clock, tmp_path, kind)
    partitions = world.warehouse.partitions
    transactions = Transactions(world.store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.store, "transact", transactions)
        partitions.add(world.table, [row(world.table, f"small {at}", b"old", 1_000) for at in range(300)])
        small: list[Values] = [(f"small {at}",) for at in range(300)]
        partitions.alter(world.table, {values: lambda old: old._replace(head=b"new") for values in small})
        partitions.drop(world.table, small, delete_data=True, if_exists=False)
    assert transactions.count == 5, "and two when the files are deleted"
    assert world.left_over() == 0
    assert world.state() == world.before


@pytest.mark.parametrize("kind", ["alter"])
def test_a_reader_beside_it_never_sees_a_part(world: World) -> None:
    """Changes back and forth, adds and drops, while a reader reads all the time."""
    stop = threading.Event()
    wrong: list[State] = []
    whole = [[(values, mark) for values in VALUES] for mark in (b"old", b"new")]
    allowed = [[*one, (("kept",), b"kept")] for one in [*whole, []]]
    reads = 0

    def read() -> None:
        nonlocal reads
        while not stop.is_set():
            wrong.extend(state for state in world.states() if state not in allowed)
            reads += 1

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for kind in ("alter", "drop", "add", "drop", "add"):
            world.kind = kind
            world.run(world.warehouse.partitions)
    finally:
        stop.set()
        reader.join()
    assert not wrong
    assert reads > 1


@pytest.mark.parametrize("kind", ["alter", "drop"])
def test_verify_finds_a_batch_that_was_lost(world: World) -> None:
    run_with(world, Transactions(world.store, 1, "dies"))
    heads = PENDING_PARTITIONS.range(world.table.table_id, PENDING_HEAD)
    world.store.transact(lambda tx: tx.clear_range(*heads))
    (problem,) = verify(world.store)
    assert "default.t: partitions are in batch" in problem


def test_a_table_is_dropped_in_the_middle(store: Store, clock: Clock, tmp_path: Path, small_parts: None) -> None:
    for kind in KINDS:
        world = World(store, clock, tmp_path, kind, kind)
        run_with(world, Transactions(store, 1, "dies"))
        world.warehouse.tables.drop("hive", "default", kind, delete_data=True)
        assert world.left_over() == 0
        assert verify(store) == []
        with suppress(LakemarkError):
            partition_batches.finish_abandoned(store, clock() + partition_batches.STALE_MS + 1)
        assert verify(store) == []


def _die(*_: object, **__: object) -> None:
    raise DiedError
