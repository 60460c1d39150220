"""Lake tables for tests: the domains of a service on their own store, with a manual clock and short helpers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lakemark_core.types import BIGINT, DOUBLE, INT, STRING, Field, Schema, Struct, assign_ids
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.admission.quotas import Quotas
from lakemark_server.catalog.lake import POLICY_PROPERTY, LakeTable
from lakemark_server.catalog.service import Catalog
from lakemark_server.file_index.arrow import texts
from lakemark_server.file_index.planning.planner import Planner
from lakemark_server.kv import Store, open_store
from lakemark_server.maintenance.cleaning.cleaner import Cleaner
from lakemark_server.snapshots.comparisons import Comparer
from lakemark_server.snapshots.service import SnapshotReference, Snapshots
from lakemark_server.store import store_format
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.publication.commits import CommitDraft, Committed
from lakemark_server.timeline.service import Timeline
from tests.stores import store_url

ID, X, NAME, PLACE, MONTH = 1, 2, 3, 4, 5  # column ids of SCHEMA
SCHEMA = assign_ids(
    Schema.build(
        [
            Field(0, "id", BIGINT),
            Field(0, "x", DOUBLE),
            Field(0, "name", STRING),
            Field(0, "place", Struct((Field(0, "lat", DOUBLE),))),
            Field(0, "m", INT),
        ],
        ["m"],
        1,
    )
)[0]
FLAT = assign_ids(Schema.build([Field(0, "id", BIGINT)], [], 1))[0]


class Clock:
    """Milliseconds that pass only when a test advances them."""

    def __init__(self, ms: int = 1_800_000_000_000) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms

    def advance(self, ms: int) -> None:
        self.ms += ms


def whole(number: int) -> p.Value:
    return p.Value(integer=number)


def stat(
    column_id: int, low: int | None = None, high: int | None = None, nulls: int | None = None
) -> p.ColumnStatistics:
    message = p.ColumnStatistics(column_id=column_id, null_count=nulls)
    if low is not None:
        message.min.integer = low
    if high is not None:
        message.max.integer = high
    return message


def file(
    instant: int,
    name: str,
    month: int | None = 1,
    *,
    rows: int = 5,
    size: int = 10,
    stats: Sequence[p.ColumnStatistics] = (),
) -> p.DataFile:
    """``<instant>/m=<month>/<name>/a.parquet``. ``month`` None: in a table without partitions."""
    middle = "" if month is None else f"m={month}/"
    partition = [] if month is None else [whole(month)]
    return p.DataFile(
        path=f"{instant}/{middle}{name}/a.parquet",
        size_bytes=size,
        row_count=rows,
        partition=partition,
        statistics=stats,
    )


def files(*given: p.DataFile) -> p.DataFiles:
    return p.DataFiles(list=p.DataFileList(files=given))


def profile(*months: int, whole_table: bool = False) -> t.WorkProfile:
    partitions = [t.WorkProfile.Partition(values=[whole(month)]) for month in months]
    return t.WorkProfile(partitions=partitions, whole_table=whole_table)


KEPT_S = 86_400.0


class Lake:
    """The domains of one process over a store."""

    def __init__(self, store: Store, directory: Path, clock: Clock) -> None:
        self.store, self.clock = store, clock
        store_format.ensure(store)
        # Limits are read once: what requests read must not depend on how long a test takes.
        quotas = Quotas(store, cache_s=KEPT_S)
        self.catalog = Catalog(store, f"file:{directory}/warehouse", clock, quotas)
        self.catalog.ensure_default_database()
        self.snapshots = Snapshots(store)
        self.timeline = Timeline(store, self.snapshots, clock, quotas)
        self.comparer = Comparer(store, self.snapshots, self.timeline.log)
        self.cleaner = Cleaner(store, clock, self.snapshots)
        self.planner = Planner(self.snapshots.cache)

    def table(self, name: str = "t", policy: str = "partition", schema: Schema = SCHEMA) -> LakeTable:
        record = LakeTableRecord(database="default", name=name, properties={POLICY_PROPERTY: policy})
        return self.catalog.create_lake_table(record, schema)

    def open(
        self,
        table: LakeTable,
        operation: t.Operation.ValueType = t.APPEND,
        work: t.WorkProfile | None = None,
        *,
        start: bool = True,
        timeout_ms: int = 0,
        read_version: int | None = None,
        request_id: str = "",
        owner: str = "",
    ) -> int:
        job = OpenJob(
            operation=operation,
            profile=(work or t.WorkProfile()) if start else None,
            heartbeat_timeout_ms=timeout_ms,
            read_version=read_version,
            request_id=request_id,
            owner=owner,
        )
        return self.timeline.open(table.table_id, job).record.instant

    def stage(self, table: LakeTable, instant: int, sequence: int, given: Iterable[p.DataFile]) -> int:
        return self.timeline.stage(table, instant, sequence, added=files(*given)).staged.files

    def commit(self, table: LakeTable, instant: int, given: Iterable[p.DataFile] | None = None) -> Committed:
        return self.timeline.commit(table, CommitDraft(instant, None if given is None else files(*given)))

    def put(self, table: LakeTable, months: Iterable[int], operation: t.Operation.ValueType = t.APPEND) -> Committed:
        """One commit with a file in each of the partitions."""
        instant = self.open(table, operation)
        return self.commit(table, instant, [file(instant, f"g{month}", month) for month in months])

    def paths(self, table: LakeTable, version: int | None = None) -> list[str]:
        """The paths of a version, sorted. Read through the cache of snapshots."""
        found = self.snapshots.snapshot("", "default", table.record.name, SnapshotReference(version=version))
        return sorted(texts(found.snapshot.entries().column("path")))


@contextmanager
def open_lake(directory: Path) -> Iterator[Lake]:
    store = open_store(store_url(directory))
    try:
        yield Lake(store, directory, Clock())
    finally:
        store.close()
