"""The mixed load of the ``soak`` benchmark: clients of both protocols, each at its own pace.

What they leave behind is bounded: files that writers add are clustered into one for each partition, old versions are
cleaned, and the branches, tables, partitions and columns that they create are dropped again. So if anything grows, it
is the service's.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from tests.lakes import file, stat
from tests.wire import Refused, Wire
from thrift.Thrift import TException

from benchmarks import hms_load
from benchmarks.hms_load import DATABASE, TABLE, System
from benchmarks.service import Service
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import snapshot_pb2 as s
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p

HOT: Final = "hot"
RETAINED_VERSIONS: Final = 300
PREFILL_AT_ONCE: Final = 1_000
IDS: Final = 1_000_000
ID, X = 1, 2  # column ids of Wire.create
LOSES: Final = frozenset({"commit_conflict"})  # expected: another writer was first
ERRORS_KEPT_MAX: Final = 20


@dataclass
class Recorder:
    """Latencies in seconds by kind since the last ``take``, and failures since the beginning."""

    refused: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        passed = time.perf_counter() - began
        with self._lock:
            self._taken[kind].append(passed)

    def take(self) -> dict[str, list[float]]:
        with self._lock:
            taken, self._taken = self._taken, defaultdict(list)
        return taken

    def note(self, actor: str, error: Exception) -> None:
        with self._lock:
            told = Refused(error) if isinstance(error, grpc.RpcError) else error
            if isinstance(told, Refused) and told.detail.code in LOSES:
                self.refused[actor] += 1
                return
            self.failed += 1
            if len(self.errors) < ERRORS_KEPT_MAX:
                self.errors.append(f"{actor}: {told!r}")


class Load:
    """Runs from ``start`` to ``stop``. The hot table begins with ``files`` files in ``partitions`` partitions."""

    def __init__(self, service: Service, location: str, files: int, partitions: int) -> None:
        self.recorder = Recorder()
        self._over = threading.Event()
        warehouse = System("soak", service.hms_port, location)
        hms_load.create_table(warehouse)
        with hms_load.connected(service.hms_port) as client:
            client.add_partitions(next(hms_load.partition_batches(warehouse, hms_load.BATCH)))
        wire = Wire(service.grpc_address, HOT)
        wire.create("file_group")
        for first in range(0, files, PREFILL_AT_ONCE):
            count = min(PREFILL_AT_ONCE, files - first)
            instant = wire.open().instant
            wire.commit(instant, *(_file(instant, f"p{n}", n % partitions, n) for n in range(first, first + count)))
        wire.close()
        actors = _actors(service, warehouse, partitions, self.recorder)
        self._threads = [threading.Thread(target=self._run, args=one) for one in actors]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, name: str, period_s: float, act: Callable[[], None]) -> None:
        """Acts every ``period_s``. Turns that were missed are not made up for."""
        due = time.monotonic() + random.uniform(0, period_s)
        while not self._over.wait(due - time.monotonic()):
            try:
                act()
            except (grpc.RpcError, TException, OSError) as error:
                self.recorder.note(name, error)
            due = max(due + period_s, time.monotonic())


Actor = tuple[str, float, Callable[[], None]]


def _actors(service: Service, warehouse: System, partitions: int, recorder: Recorder) -> list[Actor]:
    """(name, seconds from one turn to the next, turn)"""

    def lake() -> _LakeClient:
        return _LakeClient(Wire(service.grpc_address, HOT), recorder, partitions)

    def hive() -> _HiveClient:
        return _HiveClient(warehouse, recorder)

    return [
        *((f"append {number}", 0.5, lake().append) for number in range(4)),
        *((f"upsert {number}", 1.0, lake().upsert) for number in range(2)),
        ("cluster", 1.0, lake().cluster),
        ("selective", 0.2, lake().selective),
        ("unclustered", 0.5, lake().unclustered),
        ("incremental", 0.5, lake().incremental),
        ("time travel", 1.0, lake().time_travel),
        ("branch", 5.0, lake().branch),
        ("clean", 5.0, lake().clean),
        ("schema", 10.0, lake().schema),
        ("table", 5.0, lake().table),
        ("get_table", 0.1, hive().get_table),
        ("by filter", 0.25, hive().by_filter),
        ("hive partition", 2.0, hive().partition),
        ("hive table", 5.0, hive().table),
    ]


class _LakeClient:
    """The gRPC client of one thread."""

    def __init__(self, wire: Wire, recorder: Recorder, partitions: int) -> None:
        self._wire, self._timed, self._partitions = wire, recorder.timed, partitions
        self._chance = random.Random()
        self._turn = 0

    def append(self) -> None:
        with self._timed("commit"):
            instant = self._wire.open().instant
            self._wire.commit(instant, self._fresh(instant), self._fresh(instant))

    def _fresh(self, instant: int) -> p.DataFile:
        name = f"w{self._chance.getrandbits(64):x}"
        return _file(instant, name, self._chance.randrange(self._partitions), self._chance.randrange(IDS))

    def upsert(self) -> None:
        """Replaces a file by a new one of its group, among the files that were already clustered.

        Otherwise the initial files, which have one schema and sorted values, would become fewer all the time, and plans
        would find less.
        """
        month = self._chance.randrange(self._partitions)
        version, listed = self._month(month)
        paths = _added_later(listed)
        if paths:
            gone = self._chance.choice(paths)
            with self._timed("upsert"):
                instant = self._wire.open(t.UPSERT, read_version=version).instant
                given = _file(instant, gone.split("/")[2], month, self._chance.randrange(IDS))
                self._wire.commit(instant, given, removed=t.RemovedFiles(paths=[gone]))

    def cluster(self) -> None:
        """Rewrites all files that writers have added to a partition into one file."""
        self._turn += 1
        month = self._turn % self._partitions
        version, paths = self._month(month)
        small = _added_later(paths)
        if len(small) > 1:
            with self._timed("cluster"):
                instant = self._wire.open(t.CLUSTER, read_version=version).instant
                self._wire.commit(
                    instant, _file(instant, f"w{instant}", month, self._turn), removed=t.RemovedFiles(paths=small)
                )

    def _month(self, month: int) -> tuple[int, list[str]]:
        with self._timed("plan of a partition"):
            plan = self._wire.plan(f"m = {month}", encoding=s.PROTOBUF)
        return plan.version, [file.path for file in plan.files.list.files]

    def selective(self) -> None:
        low = self._chance.randrange(IDS)
        with self._timed("plan, selective"):
            self._wire.plan(f"m = {self._chance.randrange(self._partitions)} and id >= {low} and id < {low + 1_000}")

    def unclustered(self) -> None:
        with self._timed("plan, unclustered"):
            self._wire.plan(f"id < {IDS // 1_000}")

    def incremental(self) -> None:
        latest = self._wire.snapshot().version
        with self._timed("incremental"):
            self._wire.snapshots.ListChanges(
                s.ListChangesRequest(table=self._wire.table, from_version=max(0, latest - 20), to_version=latest)
            )

    def time_travel(self) -> None:
        latest = self._wire.snapshot().version
        back = self._chance.randrange(RETAINED_VERSIONS // 2)
        with self._timed("time travel"):
            self._wire.plan("m = 0", at=s.SnapshotReference(version=max(1, latest - back)))

    def branch(self) -> None:
        """Creates, writes, reads, merges and drops a branch."""
        self._turn += 1
        table, name = self._wire.table, f"b{self._turn}"
        with self._timed("branch made"):
            self._wire.catalog.CreateReference(c.CreateReferenceRequest(table=table, name=name, kind=c.BRANCH))
        with self._timed("branch commit"):
            instant = self._wire.open(branch=name).instant
            self._wire.commit(instant, self._fresh(instant))
        with self._timed("branch read"):
            self._wire.plan("m = 0", at=s.SnapshotReference(branch=name))
        with self._timed("branch merged"):
            self._wire.catalog.MergeBranch(c.MergeBranchRequest(table=table, branch=name))
        with self._timed("branch dropped"):
            self._wire.catalog.DropReference(c.DropReferenceRequest(table=table, name=name))

    def clean(self) -> None:
        with self._timed("clean"):
            self._wire.timeline.Clean(t.CleanRequest(table=self._wire.table, retain_versions=RETAINED_VERSIONS))

    def schema(self) -> None:
        """Adds or drops a column."""
        self._turn += 1
        if self._turn % 2:
            column = p.Column(name="extra", type=p.Type(primitive="bigint"))
            change = c.SchemaChange(add=c.SchemaChange.AddColumn(column=column))
        else:
            change = c.SchemaChange(drop=c.SchemaChange.DropColumn(column="extra"))
        with self._timed("schema change"):
            self._wire.catalog.AlterSchema(c.AlterSchemaRequest(name=self._wire.table, changes=[change]))

    def table(self) -> None:
        self._turn += 1
        name = p.TableName(database="default", table=f"t{self._turn}")
        schema = p.Schema(columns=[p.Column(name="id", type=p.Type(primitive="bigint"))])
        with self._timed("table made"):
            self._wire.catalog.CreateTable(c.CreateTableRequest(name=name, schema=schema))
        opening = t.OpenInstantRequest(table=name, operation=t.APPEND, start=True)
        instant = self._wire.timeline.OpenInstant(opening).instant
        added = p.DataFiles(list=p.DataFileList(files=[file(instant, "a", None)]))
        self._wire.timeline.Commit(t.CommitRequest(table=name, instant=instant, added=added))
        with self._timed("table dropped"):
            self._wire.catalog.DropTable(c.DropTableRequest(name=name, purge=True, now=True))


class _HiveClient:
    """The Thrift client of one thread, with one connection."""

    def __init__(self, system: System, recorder: Recorder) -> None:
        self._system, self._timed = system, recorder.timed
        self._connection = hms_load.connected(system.port)
        self._client: Any = self._connection.__enter__()
        self._turn = 0

    def get_table(self) -> None:
        with self._timed("get_table"):
            self._client.get_table(DATABASE, TABLE)

    def by_filter(self) -> None:
        with self._timed("get_partitions_by_filter"):
            partitions = self._client.get_partitions_by_filter(DATABASE, TABLE, 'dt = "d004"', -1)
        assert len(partitions) == hms_load.HOURS

    def partition(self) -> None:
        """Adds and drops a partition of a day that no filter selects."""
        self._turn += 1
        values = ["extra", str(self._turn)]
        with self._timed("partition added"):
            self._client.add_partition(hms_load.partition(self._system, *values))
        with self._timed("partition dropped"):
            self._client.drop_partition(DATABASE, TABLE, values, False)

    def table(self) -> None:
        self._turn += 1
        name = f"{TABLE}{self._turn}"
        with self._timed("hive table made"):
            self._client.create_table(hms_load.table(self._system, name))
        with self._timed("hive table dropped"):
            self._client.drop_table(DATABASE, name, False)


def _added_later(paths: list[str]) -> list[str]:
    """The files that the table did not have at the beginning."""
    return [path for path in paths if path.split("/")[2].startswith("w")]


def _file(instant: int, name: str, month: int, low: int) -> p.DataFile:
    """A file entry with bounds of the columns that plans filter by."""
    return file(instant, name, month, stats=[stat(ID, low % IDS, low % IDS + 500, 0), stat(X, None, None, 0)])
