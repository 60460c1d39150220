"""Whatever is created, moved and dropped wherever: no file is deleted that somebody else has.

Draws catalogs, one of them at any place, their databases, warehouse and lake tables and partitions at locations that
are the same, nested, or the same by another name, and processes that die at any transaction. The model is the disk
itself: each object plants a file in its directory, and what a change may delete are files that no other object
reaches.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lakemark_core import storage
from lakemark_core.errors import LakemarkError
from lakemark_core.types import partition_name
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, LakeTableRecord
from lakemark_proto.v1.catalog_pb2 import LAKE, WAREHOUSE
from lakemark_server.catalog import left_directories, partition_departures
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse import Warehouse
from lakemark_server.catalog.warehouse_records import HiveTable, new_partition
from lakemark_server.catalog.warehouse_tables import (
    TableChange,
    TableDefinition,
    default_location,
    moves_with_its_name,
)
from lakemark_server.kv import Store, open_store
from lakemark_server.ownership.tenures import LEFT_MS
from lakemark_server.verify import verify
from tests.lakes import FLAT, Clock
from tests.lengths import long

DEFINED = "defined"
CATALOGS = ("hive", "other", DEFINED)
DATABASES = ("default", "d", "e")
TABLES = ("t", "u", "v")
IN_MEMORY = "/dev/shm"  # noqa: S108 - a store there need not wait for a disk
VALUES = ("1", "2", "sub")

databases = st.tuples(st.sampled_from(CATALOGS), st.sampled_from(DATABASES))
names = st.tuples(st.sampled_from(CATALOGS), st.sampled_from(DATABASES), st.sampled_from(TABLES))
picks = st.integers(0, 11)  # one of those that there are
# Below the temporary directory: some are those that objects get by themselves, some are around or inside these.
paths = st.sampled_from(
    [
        "", "wh", "wh/d.db", "wh/d.db/t", "wh/d.db/u", "wh/d.db/t/p=1", "wh/d.db/t/p=1/deep", "wh/d.db/t/x", "wh/t",
        "wh/other.catalog/d.db", "wh/other.catalog", "wh/free", "wh/free/t", "wh/free/a b", "out", "out/t", "out/t/p=1",
        "out/full", "store.db",
    ]
)  # fmt: skip
spellings = st.sampled_from(["{}", "file:{}", "file://{}/", "file:{}/../{last}", "alias", "quoted", "file:/.{}"])

# What there is before anything changes: name, path, spelling, whether the location is given, and the kind.
firsts = st.lists(
    st.tuples(names, paths, spellings, st.booleans(), st.sampled_from(["owns", "owns", "reads", "lake"])),
    min_size=5,
    max_size=10,
)
manners = st.sampled_from(["name", "in", "at"])
some_values = st.lists(st.sampled_from(VALUES), unique=True, min_size=1)
deaths = st.none() | st.integers(0, 4)  # the transaction at which the process dies

Key = tuple[Any, ...]
Own = Callable[[Key], bool]


class DiedError(BaseException):
    """The process died."""


class Ownership(RuleBasedStateMachine):
    @initialize(first=firsts)
    def begin(self, first: list[tuple[tuple[str, str, str], str, str, bool, str]]) -> None:
        self.root = Path(tempfile.mkdtemp(dir=IN_MEMORY if Path(IN_MEMORY).is_dir() else None))
        (self.root / "out" / "full").mkdir(parents=True)
        (self.root / "out" / "full" / "precious").touch()
        (self.root / "wh").mkdir()
        (self.root / "alias").symlink_to(self.root)
        self.clock = Clock()
        self.store: Store = open_store(f"sqlite:///{self.root}/store.db")
        self.catalog = Catalog(self.store, f"{self.root}/wh", clock=self.clock)
        self.catalog.ensure_default_database()
        self.warehouse = Warehouse(self.catalog)
        for catalog, database in (("hive", "d"), ("hive", "e"), ("other", "default"), ("other", "d")):
            self.catalog.create_database(DatabaseRecord(catalog=catalog, name=database))
        self.planted = 0
        self.lost: list[Path] = []
        for name, at, spelling, chosen, kind in first:
            if kind == "lake":
                self.create_lake_table(name, at, spelling, chosen)
            else:
                self.create_table(name, at, spelling, chosen, kind == "owns")

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.sweep()
            problems = verify(self.store)
            assert problems == [], problems
            self.store.close()
            shutil.rmtree(self.root)

    # -- what there is

    def every(self, kind: int) -> list[tuple[str, str, str]]:
        """Catalog, database and name of all tables of one kind."""
        return [
            (catalog, database.name, name)
            for catalog in CATALOGS
            for database in self.catalog.list_databases(catalog)
            for name, entry in self.catalog.list_tables(catalog, database.name)
            if entry.kind == kind
        ]

    def hive_table(self, pick: int) -> tuple[str, str, str]:
        return picked(self.every(WAREHOUSE), pick)

    def lake_table(self, pick: int) -> tuple[str, str, str]:
        return picked(self.every(LAKE), pick)

    def warehouse_tables(self) -> list[HiveTable]:
        return [self.warehouse.tables.get(*name) for name in self.every(WAREHOUSE)]

    def reached(self) -> dict[Key, set[Path]]:
        """The files that each table and each partition reaches, by its identity."""
        places: dict[Key, str] = {}
        for table in self.warehouse_tables():
            places["table", table.table_id] = table.record.location
            for row in self.warehouse.partitions.all(table).rows:
                places["partition", table.table_id, row.values] = row.full_location(table.record.partition_base)
        for name in self.every(LAKE):
            record = self.catalog.get_lake_table(*name).record
            places["lake", record.table_id] = record.location
        for catalog in CATALOGS:
            for record in self.catalog.dropped.listed(catalog):
                places["lake", record.table_id] = record.location
        return {key: files_in(place) for key, place in places.items()}

    def location(self, path: str, spelling: str) -> str:
        whole = str(self.root / path) if path else str(self.root)
        if spelling == "alias":
            return f"file:{self.root}/alias/{path}"
        if spelling == "quoted":
            return f"file:{whole}".replace(" ", "%20")
        return spelling.replace("{last}", whole.rpartition("/")[2]).replace("{}", whole)

    def attempt(
        self, change: Callable[[], object], dies_at: int | None, own: Callable[[tuple[Any, ...]], bool]
    ) -> None:
        """Runs a change, which may be refused, or die. Whoever is still there then has all files that it had.

        ``own``: whose own files the change may delete while they stay: a table that is emptied.
        """
        before = self.reached()
        plain, count = self.store.transact, 0

        def transact(body: Callable[..., Any], **options: Any) -> Any:
            nonlocal count
            count += 1
            if dies_at is not None and count > dies_at:
                raise DiedError
            return plain(body, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.store, "transact", transact)
            with suppress(LakemarkError, DiedError):
                change()
        self.compare(before, own)

    def compare(self, before: dict[Key, set[Path]], own: Own) -> None:
        after = self.reached()
        for key, files in before.items():
            if key in after and not own(key):
                names = {file.name for file in after[key]}
                self.lost += [file for file in files if not file.exists() and file.name not in names]

    @invariant()
    def nothing_is_lost(self) -> None:
        lost = getattr(self, "lost", [])
        if hasattr(self, "root"):
            strangers = (self.root / "out" / "full" / "precious", self.root / "store.db")
            lost = [*lost, *(path for path in strangers if not path.exists())]
        assert lost == [], lost

    def plant(self, location: str) -> None:
        directory = Path(location.removeprefix("file:"))
        if directory.is_dir():
            self.planted += 1
            (directory / f"file-{self.planted}").touch()

    # -- changes

    @rule(name=databases, at=paths, spelling=spellings, chosen=st.booleans())
    def create_or_move_database(self, name: tuple[str, str], at: str, spelling: str, chosen: bool) -> None:
        location = self.location(at, spelling) if chosen else ""

        def moved(old: DatabaseRecord) -> DatabaseRecord:
            old.location = location
            return old

        def change() -> None:
            record = DatabaseRecord(catalog=name[0], name=name[1], location=location)
            if any(one.name == name[1] for one in self.catalog.list_databases(name[0])):
                self.warehouse.alter_database(*name, moved)
            else:
                self.catalog.create_database(record)

        self.attempt(change, None, nobody)

    @rule(name=databases, dies_at=deaths, cascade=st.booleans())
    def drop_database(self, name: tuple[str, str], dies_at: int | None, cascade: bool) -> None:
        def drop() -> None:
            if cascade:
                self.warehouse.drop_content(*name, delete_data=True)
            self.catalog.drop_database(*name)

        self.attempt(drop, dies_at, nobody)

    @rule(at=paths, spelling=spellings)
    def create_or_alter_catalog(self, at: str, spelling: str) -> None:
        location = self.location(at, spelling)

        def change() -> None:
            if DEFINED in self.warehouse.catalogs.names():
                self.warehouse.catalogs.alter(DEFINED, lambda _: (location, b""))
            else:
                self.warehouse.catalogs.create(DEFINED, location, b"")

        self.attempt(change, None, nobody)

    @rule(dies_at=deaths, empty_it=st.booleans())
    def drop_catalog(self, dies_at: int | None, empty_it: bool) -> None:
        def drop() -> None:
            for database in self.catalog.list_databases(DEFINED) if empty_it else ():
                self.warehouse.drop_content(DEFINED, database.name, delete_data=True)
                self.catalog.drop_database(DEFINED, database.name)
            self.warehouse.catalogs.drop(DEFINED, if_exists=True)

        self.attempt(drop, dies_at, nobody)

    @rule(name=names, at=paths, spelling=spellings, chosen=st.booleans(), owns=st.booleans())
    def create_table(self, name: tuple[str, str, str], at: str, spelling: str, chosen: bool, owns: bool) -> None:
        def create() -> None:
            database = self.catalog.get_database(*name[:2])
            location = self.location(at, spelling) if chosen else default_location(database, name[2])
            table = self.warehouse.tables.create(database, definition(name[2], location, owns))
            self.plant(table.record.location)

        self.attempt(create, None, nobody)

    @rule(pick=picks, at=paths, spelling=spellings, owns=st.booleans())
    def move_table(self, pick: int, at: str, spelling: str, owns: bool) -> None:
        name = self.hive_table(pick)

        def change(old: HiveTable) -> TableChange:
            return TableChange(old.database, definition(name[2], self.location(at, spelling), owns))

        self.attempt(lambda: self.warehouse.tables.alter(*name, change), None, nobody)

    @rule(pick=picks, to=names, dies_at=deaths)
    def rename_table(self, pick: int, to: tuple[str, str, str], dies_at: int | None) -> None:
        name = self.hive_table(pick)

        def change(old: HiveTable) -> TableChange:
            database = self.catalog.get_database(*to[:2])
            moves = moves_with_its_name(old)
            location = default_location(database, to[2]) if moves else old.record.location
            return TableChange(database, definition(to[2], location, old.record.owns_data), moves)

        # A process that dies may leave a directory moved, until it is looked after.
        before = self.reached()
        self.attempt(lambda: self.warehouse.tables.alter(*name, change), dies_at, everybody)
        self.sweep()
        self.compare(before, nobody)

    @rule(pick=picks, dies_at=deaths)
    def drop_table(self, pick: int, dies_at: int | None) -> None:
        name = self.hive_table(pick)
        self.attempt(lambda: self.warehouse.tables.drop(*name, delete_data=True), dies_at, nobody)

    @rule(pick=picks)
    def truncate(self, pick: int) -> None:
        name = self.hive_table(pick)

        def truncate() -> None:
            table = self.warehouse.tables.get(*name)
            self.warehouse.tables.truncate(table, self.warehouse.partitions.all(table).rows or None)

        table_id = next((t.table_id for t in self.warehouse_tables() if named(t) == name), None)
        self.attempt(truncate, None, lambda key: key[1] == table_id and key[0] != "lake")

    @rule(
        pick=picks,
        value=st.sampled_from(VALUES),
        at=paths,
        spelling=spellings,
        how=st.sampled_from(["name", "in", "at"]),
    )
    def add_partition(self, pick: int, value: str, at: str, spelling: str, how: str) -> None:
        name = self.hive_table(pick)

        def add() -> None:
            table = self.warehouse.tables.get(*name)
            location = f"{table.record.location}/{partition_name(table.columns, [value])}"
            if how == "in":
                location = f"{table.record.location}/p=1/deep"
            elif how == "at":
                location = self.location(at, spelling)
            row = new_partition(table, (value,), location, b"head", b"", located=True)
            self.warehouse.partitions.add(table, [row])
            self.plant(location)

        self.attempt(add, None, nobody)

    @rule(
        pick=picks,
        values=st.lists(st.sampled_from(VALUES), unique=True, min_size=1),
        dies_at=deaths,
    )
    def drop_partitions(self, pick: int, values: list[str], dies_at: int | None) -> None:
        name = self.hive_table(pick)

        def drop() -> None:
            table = self.warehouse.tables.get(*name)
            self.warehouse.partitions.drop(table, [(value,) for value in values], delete_data=True, if_exists=True)

        # What lies in the directories of dropped partitions is the table's, too.
        table_id = next((t.table_id for t in self.warehouse_tables() if named(t) == name), None)
        self.attempt(drop, dies_at, lambda key: key == ("table", table_id))

    @rule(pick=picks, value=st.sampled_from(VALUES), to=st.sampled_from(VALUES), dies_at=deaths)
    def rename_partition(self, pick: int, value: str, to: str, dies_at: int | None) -> None:
        name = self.hive_table(pick)

        def rename() -> None:
            table = self.warehouse.tables.get(*name)
            location = f"{table.record.location}/p={to}"
            self.warehouse.partitions.rename(
                table, (value,), lambda old: new_partition(table, (to,), location, old.head, old.tail, located=True)
            )

        before = self.reached()
        self.attempt(rename, dies_at, everybody)
        self.sweep()
        self.compare(before, lambda key: False)

    @rule(pick=picks, other=picks, values=some_values, dies_at=deaths)
    def exchange_partitions(self, pick: int, other: int, values: list[str], dies_at: int | None) -> None:
        names = self.hive_table(pick), self.hive_table(other)

        def exchange() -> None:
            source, target = (self.warehouse.tables.get(*name) for name in names)
            rows = self.warehouse.partitions.named(source, [(value,) for value in values])
            if rows and source.table_id != target.table_id:
                self.warehouse.partitions.exchange(source, target, rows)

        ids = {named(table): table.table_id for table in self.warehouse_tables()}
        source_id, target_id = (ids.get(name) for name in names)
        before = self.reached()
        self.attempt(exchange, dies_at, everybody)
        self.sweep()
        # What lies in the directories of its partitions is the table's, too; it follows them into the other table.
        self.compare(before, lambda key: key == ("table", source_id))
        after = self.reached()
        for value in values:
            key = ("partition", source_id, (value,))
            if key in before and key not in after:
                moved = {file.name for file in after["partition", target_id, (value,)]}
                self.lost += [file for file in before[key] if file.name not in moved]

    @rule(name=names, at=paths, spelling=spellings, chosen=st.booleans())
    def create_lake_table(self, name: tuple[str, str, str], at: str, spelling: str, chosen: bool) -> None:
        def create() -> None:
            location = self.location(at, spelling) if chosen else ""
            wanted = LakeTableRecord(catalog=name[0], database=name[1], name=name[2], location=location)
            self.plant(self.catalog.create_lake_table(wanted, FLAT).record.location)

        self.attempt(create, None, nobody)

    @rule(pick=picks, now=st.booleans(), dies_at=deaths)
    def drop_lake_table(self, pick: int, now: bool, dies_at: int | None) -> None:
        name = self.lake_table(pick)
        self.attempt(lambda: self.catalog.dropped.drop(*name, now=now), dies_at, nobody)

    @rule(pick=picks, to=names)
    def rename_lake_table(self, pick: int, to: tuple[str, str, str]) -> None:
        name = self.lake_table(pick)
        self.attempt(lambda: self.catalog.rename_lake_table(*name, *to[1:]), None, nobody)

    @rule(pick=picks, to=st.sampled_from(TABLES), purge=st.booleans())
    def bring_back(self, pick: int, to: str, purge: bool) -> None:
        lost = [
            (record.catalog, record.database, record.name)
            for catalog in CATALOGS
            for record in self.catalog.dropped.listed(catalog)
        ]
        name = picked(lost, pick)
        dropped = self.catalog.dropped
        change = (lambda: dropped.purge(*name)) if purge else (lambda: dropped.undrop(*name, new_name=to))
        self.attempt(change, None, nobody)

    @rule()
    def look_after(self) -> None:
        before = self.reached()
        self.sweep()
        self.compare(before, nobody)

    def sweep(self) -> None:
        self.clock.advance(LEFT_MS + 1)
        left_directories.finish(self.store, self.clock())
        partition_departures.leave_what_is_left(self.catalog.mutations, self.catalog.ownership)


def picked(there: list[tuple[str, str, str]], pick: int) -> tuple[str, str, str]:
    return there[pick % len(there)] if there else ("hive", "default", "nowhere")


def nobody(_: Key) -> bool:
    return False


def everybody(_: Key) -> bool:
    return True


def named(table: HiveTable) -> tuple[str, str, str]:
    return table.database.catalog, table.database.name, table.name


def definition(name: str, location: str, owns: bool) -> TableDefinition:
    kind = "MANAGED_TABLE" if owns else "EXTERNAL_TABLE"
    return TableDefinition(name, b"hive", kind, storage.normal_uri(location), owns, [("p", "string")])


def files_in(location: str) -> set[Path]:
    directory = Path(location.removeprefix("file:"))
    if not directory.is_dir():
        return set()
    directory = directory.resolve()
    files = (path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("store.db"))
    return {path for path in files if ".lakemark-deleted-" not in str(path.relative_to(directory))}


class TestOwnership(Ownership.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


@pytest.mark.slow
@pytest.mark.timeout(long(1_200))
class TestOwnershipLong(Ownership.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=long(300), stateful_step_count=60, deadline=None)
