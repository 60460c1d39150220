"""Changes of metadata that are made while services are killed, and the events that have to be told of them.

Writers ask again until they have an answer. A request over gRPC has a request id, so its change is made once. A
Metastore call has none: one that was cut off is made again, and is done if it is refused then. Changes of which
repetition could make a second one are noted so.
"""

from __future__ import annotations

import random
import threading
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

import grpc

from lakemark_hms.outside import Metastore, OutsideRefused, OutsideUnavailable
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_thrift.ttypes import Partition
from tests.fault.killable import Killable
from tests.integration.listener import objects
from tests.lakes import file, files
from tests.wire import COLUMNS, Refused, Wire

T = TypeVar("T")
EventKey: TypeAlias = tuple[Any, ...]

MIRRORED: Final = "lake"
"""The database that an outside Metastore follows."""

BUSY: Final = "busy"
OWN_PREFIX: Final = "d_"
"""Of databases that come and go; mirrored, too."""

LAKE_PREFIX: Final = "l_"
_LIVE_TABLES: Final = 6
_COMMITS_A_TABLE: Final = 40


def keys_of(event: pb.Event) -> Iterator[EventKey]:
    """By what a writer knows its change again."""
    if event.request_id:
        yield event.kind, event.request_id
    detail = event.WhichOneof("detail")
    if detail == "commit":
        yield event.kind, event.table, event.commit.instant
    elif detail == "rollback":
        yield event.kind, event.table, event.rollback.instant
    elif detail == "table_change":
        yield event.kind, event.table
    elif detail == "partitions_change":
        for one in event.partitions_change.partitions:
            yield event.kind, event.table, *one.values


@dataclass
class Ledger:
    """What one writer was told is done, in order."""

    done: list[EventKey] = field(default_factory=list)
    more: set[EventKey] = field(default_factory=set)
    """Whose change may have been made more often, because an answer was lost."""

    lost: int = 0

    def problems(self, offsets: Mapping[EventKey, Sequence[int]]) -> Iterator[str]:
        """What is wrong with the log. ``offsets``: where it has each key, rising."""
        last = 0
        for key, count in Counter(self.done).items():
            there = len(offsets.get(key, ()))
            if there < count or (there > count and key not in self.more):
                yield f"{key}: acknowledged {count} times, told {there} times"
        for key in self.done:
            there = offsets.get(key, ())
            at = bisect_right(there, last)
            if at == len(there):
                yield f"{key} is told before what its writer had done before"
            else:
                last = there[at]


class Writer(threading.Thread):
    """Makes changes of one kind until ``stop``. ``pause_s``: on average, between two of them."""

    def __init__(self, name: str, services: Sequence[Killable], seed: int, pause_s: float) -> None:
        super().__init__(name=name, daemon=True)
        self.ledger = Ledger()
        self.error: BaseException | None = None
        self._services, self._pause_s = services, pause_s
        self._chance = random.Random(f"{seed} {name}")
        self._wires: dict[str, Wire] = {}
        self._stopped = threading.Event()
        self._number = 0

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        try:
            while not self._stopped.wait(self._chance.expovariate(1 / self._pause_s)):
                self.change()
        except BaseException as error:
            self.error = error
            raise
        finally:
            for wire in self._wires.values():
                wire.close()

    def change(self) -> None:
        """Makes one change, or a few."""
        raise NotImplementedError

    def ask(self, question: Callable[[Wire], T]) -> T:
        """Asks any of the services until there is an answer. Raises Refused."""
        while True:
            address = self._chance.choice(self._services).address()
            wire = self._wires.get(address) or self._wires.setdefault(address, Wire(address))
            try:
                return question(wire)
            except grpc.RpcError as error:
                told = Refused(error)
            if told.detail.outcome == "fatal":
                raise told
            self.ledger.lost += 1
            time.sleep(0.01)  # as clients do, instead of asking a dead address in a tight loop

    def request_id(self) -> str:
        self._number += 1
        return f"{self.name}-{self._number}"

    def note(self, *key: Any) -> None:
        self.ledger.done.append(key)


class DatabaseWriter(Writer):
    """Creates and drops databases."""

    def __init__(self, services: Sequence[Killable], seed: int, pause_s: float) -> None:
        super().__init__("databases", services, seed, pause_s)
        self._live: deque[str] = deque()

    def change(self) -> None:
        request_id = self.request_id()
        if len(self._live) < 3 or self._chance.random() < 0.4:
            name = f"{OWN_PREFIX}{self._number}"
            create_database(self, name, request_id)
            self._live.append(name)
            return
        drop = c.DropDatabaseRequest(name=self._live.popleft(), request_id=request_id)
        self.ask(lambda wire: wire.catalog.DropDatabase(drop))
        self.note(pb.DATABASE_DROPPED, request_id)


def create_database(writer: Writer, name: str, request_id: str) -> None:
    request = c.CreateDatabaseRequest(database=c.Database(name=name), request_id=request_id)
    writer.ask(lambda wire: wire.catalog.CreateDatabase(request))
    writer.note(pb.DATABASE_CREATED, request_id)


class LakeWriter(Writer):
    """Commits to lake tables of one database, gives instants up, renames and drops tables."""

    def __init__(self, name: str, database: str, services: Sequence[Killable], seed: int, pause_s: float) -> None:
        super().__init__(name, services, seed, pause_s)
        self._database = database
        self._table = ""
        self._made = self._commits = 0

    def change(self) -> None:
        if not self._table:
            self._create()
        elif self._commits >= _COMMITS_A_TABLE:
            self._drop()
        else:
            self._commit()
            if self._chance.random() < 0.03:
                self._rename()

    def _named(self) -> p.TableName:
        return p.TableName(database=self._database, table=self._table)

    def _create(self) -> None:
        self._made += 1
        self._table, self._commits = f"{LAKE_PREFIX}{self.name}_{self._made}", 0
        schema = p.Schema(
            columns=[p.Column(name=name, type=p.Type(primitive=kind)) for name, kind in COLUMNS],
            partition_columns=["m"],
        )
        request = c.CreateTableRequest(name=self._named(), schema=schema, request_id=self.request_id())
        self.ask(lambda wire: wire.catalog.CreateTable(request))
        self.note(pb.TABLE_CREATED, request.request_id)

    def _drop(self) -> None:
        request = c.DropTableRequest(
            name=self._named(), now=self._chance.random() < 0.5, purge=True, request_id=self.request_id()
        )
        self.ask(lambda wire: wire.catalog.DropTable(request))
        self.note(pb.TABLE_DROPPED, request.request_id)
        self._table = ""

    def _rename(self) -> None:
        self._made += 1
        name = f"{LAKE_PREFIX}{self.name}_{self._made}"
        request = c.RenameTableRequest(name=self._named(), new_name=name, request_id=self.request_id())
        self.ask(lambda wire: wire.catalog.RenameTable(request))
        self.note(pb.TABLE_RENAMED, request.request_id)
        self._table = name

    def _commit(self) -> None:
        opening = t.OpenInstantRequest(
            table=self._named(), operation=t.APPEND, start=True, request_id=self.request_id()
        )
        instant = self.ask(lambda wire: wire.timeline.OpenInstant(opening)).instant
        self._commits += 1
        if self._chance.random() < 0.05:
            giving_up = t.RollbackInstantRequest(table=self._named(), instant=instant)
            self.ask(lambda wire: wire.timeline.RollbackInstant(giving_up))
            self.note(pb.INSTANT_ROLLED_BACK, self._table, instant)
            return
        given = [file(instant, f"f{n}", self._chance.randrange(5)) for n in range(self._chance.randint(1, 2))]
        request = t.CommitRequest(table=self._named(), instant=instant, added=files(*given))
        self.ask(lambda wire: wire.timeline.Commit(request))
        self.note(pb.COMMITTED, self._table, instant)


class WarehouseWriter(Writer):
    """Creates, alters, truncates and drops tables and partitions by the Metastore protocol."""

    def __init__(self, name: str, services: Sequence[Killable], seed: int, pause_s: float) -> None:
        super().__init__(name, services, seed, pause_s)
        self._live: deque[tuple[str, list[str]]] = deque()  # tables and the values of their partitions
        self._metastores: dict[str, Metastore] = {}

    def run(self) -> None:
        try:
            super().run()
        finally:
            for metastore in self._metastores.values():
                metastore.close()

    def call(self, *key: Any, repeats: bool = False, method: str, **args: Any) -> None:
        """Makes the call until it is answered, and notes its event. ``repeats``: to do it twice is to change twice."""
        lost = False
        while True:
            try:
                self._metastore().call(method, **args)
                break
            except OutsideUnavailable:
                lost = True
                self.ledger.lost += 1
                time.sleep(0.01)
            except OutsideRefused as error:
                if "try again" in error.message:  # a service that died was at the directory
                    time.sleep(0.1)
                    continue
                if not lost:
                    raise
                break  # it was done before
        if lost and repeats:
            self.ledger.more.add(key)
        self.note(*key)

    def look(self, method: str, **args: Any) -> Any:
        """What the method, which only reads, returns."""
        while True:
            try:
                return self._metastore().call(method, **args)
            except OutsideUnavailable:
                time.sleep(0.01)

    def _metastore(self) -> Metastore:
        uri = self._chance.choice(self._services).address("hms")
        return self._metastores.get(uri) or self._metastores.setdefault(uri, Metastore(uri))

    def change(self) -> None:
        roll = self._chance.random()
        if not self._live or roll < 0.06:
            self._number += 1
            name = f"w_{self.name}_{self._number}"
            made = objects.table(name, keys="p string", db=MIRRORED)
            self.call(pb.TABLE_CREATED, name, method="create_table", tbl=made)
            self._live.append((name, []))
            return
        if len(self._live) > _LIVE_TABLES:
            name, _ = self._live.popleft()
            self.call(pb.TABLE_DROPPED, name, method="drop_table", dbname=MIRRORED, name=name, deleteData=True)
            return
        name, values = self._chance.choice(self._live)
        self._number += 1
        if len(values) < 2 or roll < 0.5:
            value = str(self._number)
            self.call(pb.PARTITIONS_ADDED, name, value, method="add_partition", new_part=_partition(name, value))
            values.append(value)
            return
        value = self._chance.choice(values)
        if roll < 0.7:
            changed = self.look("get_partition", db_name=MIRRORED, tbl_name=name, part_vals=[value])
            changed.parameters["token"] = str(self._number)
            self.call(
                pb.PARTITIONS_ALTERED, name, value, repeats=True,
                method="alter_partition", db_name=MIRRORED, tbl_name=name, new_part=changed,
            )  # fmt: skip
        elif roll < 0.8:
            self.call(
                pb.PARTITIONS_TRUNCATED, name, value, repeats=True,
                method="truncate_table", dbName=MIRRORED, tableName=name, partNames=[f"p={value}"],
            )  # fmt: skip
        else:
            values.remove(value)
            self.call(
                pb.PARTITIONS_DROPPED, name, value,
                method="drop_partition", db_name=MIRRORED, tbl_name=name, part_vals=[value], deleteData=True,
            )  # fmt: skip


def _partition(name: str, value: str) -> Partition:
    return Partition(
        values=[value],
        dbName=MIRRORED,
        tableName=name,
        createTime=0,
        sd=objects.storage("a int, b string"),
        parameters={},
    )
