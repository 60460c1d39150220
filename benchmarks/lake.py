"""Lakemark's side of the ``plan``, ``commit`` and ``fold`` benchmarks: tables of ``dataset`` entries, over gRPC."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from benchmarks.dataset import APPENDS, COLUMNS, FILE_ROWS, PARTITION_COLUMN, Dataset
from benchmarks.service import Service
from lakemark import Client, connect
from lakemark_proto.v1 import catalog_pb2, snapshot_pb2, timeline_pb2, types_pb2
from lakemark_proto.v1.catalog_pb2_grpc import CatalogServiceStub
from lakemark_proto.v1.snapshot_pb2_grpc import SnapshotServiceStub
from lakemark_proto.v1.timeline_pb2_grpc import TimelineServiceStub

EMPTY: Final = "empty"
STAGED_FILES: Final = 10_000
MESSAGE_BYTES_MAX: Final = 64 << 20
SECONDS_MAX: Final = 15.0


class Lake:
    """Calls over one channel: bare ones, whose errors are gRPC's own, and those that the client package makes."""

    def __init__(self, channel: grpc.Channel, client: Client) -> None:
        self._client = client
        self._catalog = CatalogServiceStub(channel)
        self._timeline = TimelineServiceStub(channel)
        self._snapshots = SnapshotServiceStub(channel)
        self._health = HealthStub(channel)

    def create(self, table: str) -> None:
        """Creates a table with the columns of ``dataset``."""
        columns = [
            types_pb2.Column(name=name, type=types_pb2.Type(primitive=kind))
            for name, kind in (*COLUMNS, (PARTITION_COLUMN, "int"))
        ]
        schema = types_pb2.Schema(columns=columns, partition_columns=[PARTITION_COLUMN])
        self._catalog.CreateTable(catalog_pb2.CreateTableRequest(name=_name(table), schema=schema))

    def cold_plan_ms(self, table: str, sql: str) -> float:
        """The first plan of the table after a start. A plan of the empty table EMPTY has loaded the code before."""
        self.plan(EMPTY, f"{PARTITION_COLUMN} = 0 AND id > 0")
        return self.plan_ms(table, sql, 1)

    def fill(self, table: str, dataset: Dataset) -> float:
        """Creates the table and commits all appends. Returns the seconds of the service, without generating entries."""
        self.create(table)
        return sum(self.append(table, dataset.append(number)) for number in range(APPENDS))

    def append(self, table: str, entries: pa.Table) -> float:
        """Makes one commit and returns its seconds.

        Up to STAGED_FILES files come with the commit itself; more are staged before.
        """
        began = time.perf_counter()
        opening = timeline_pb2.OpenInstantRequest(table=_name(table), operation=timeline_pb2.APPEND, start=True)
        instant = self._timeline.OpenInstant(opening).instant
        took = time.perf_counter() - began
        chunks = [
            types_pb2.DataFiles(arrow=_encoded(entries.slice(first, STAGED_FILES), instant))
            for first in range(0, entries.num_rows, STAGED_FILES)
        ]
        began = time.perf_counter()
        for sequence, chunk in enumerate(chunks[:-1], 1):
            staging = timeline_pb2.StageFilesRequest(
                table=_name(table), instant=instant, added=chunk, sequence=sequence
            )
            self._timeline.StageFiles(staging)
        self._timeline.Commit(timeline_pb2.CommitRequest(table=_name(table), instant=instant, added=chunks[-1]))
        return took + time.perf_counter() - began

    def appender(self, table: str) -> Callable[[pa.Table], float]:
        """A writer that stays open. Each call is one request: a commit that opens the next instant. Returns its
        seconds."""
        opening = timeline_pb2.OpenInstantRequest(table=_name(table), operation=timeline_pb2.APPEND, start=True)
        instants = [self._timeline.OpenInstant(opening).instant]

        def append(entries: pa.Table) -> float:
            added = types_pb2.DataFiles(arrow=_encoded(entries, instants[-1]))
            request = timeline_pb2.CommitRequest(table=_name(table), instant=instants[-1], added=added, next=opening)
            began = time.perf_counter()
            instants.append(self._timeline.Commit(request).next.instant)
            return time.perf_counter() - began

        return append

    def empty_request(self) -> None:
        """A request that gives the service nothing to do (gRPC's own health check): the minimum for any response."""
        self._health.Check(HealthCheckRequest())

    def plan(self, table: str, sql: str, version: int | None = None) -> int:
        """How many files the plan has."""
        request = snapshot_pb2.PlanFilesRequest(table=_name(table), predicate=types_pb2.Predicate(sql=sql))
        if version is not None:
            request.at.version = version
        return self._snapshots.PlanFiles(request).summary.files_planned

    def plan_ms(self, table: str, sql: str, runs: int, version: int | None = None) -> float:
        """The median round trip of plans, as in ``median_s``."""
        return round(median_s(lambda: self.plan(table, sql, version), runs)[0] * 1e3, 3)

    def list_all(self, table: str, statistics: Sequence[str] = ()) -> int:
        """Lists all files as plain Arrow columns, page by page (docs/files.md). Returns how many there are."""
        listed = 0
        for page in self._client.plan(f"default.{table}", statistics=statistics).pages():
            listed += page.num_rows
            assert pc.sum(page.column("row_count")).as_py() == page.num_rows * FILE_ROWS
            assert page.column("path").null_count == 0
        return listed

    def table_of_all(self, table: str) -> int:
        """Lists all files as one table in memory. Returns how many there are."""
        return self._client.plan(f"default.{table}").table().num_rows


def median_s(run: Callable[[], object], runs: int) -> tuple[float, int]:
    """The median seconds of a call, and the number of calls: ``runs``, or fewer if these took SECONDS_MAX."""
    took: list[float] = []
    while len(took) < runs and sum(took) < SECONDS_MAX:
        began = time.perf_counter()
        run()
        took.append(time.perf_counter() - began)
    return statistics.median(took), len(took)


def medians_in_turns_s(calls: Mapping[str, Callable[[], object]], runs: int) -> dict[str, tuple[float, int]]:
    """Like ``median_s`` for several calls, made one after another, forwards and backwards in turn.

    So other load on the machine, and what one call leaves behind, slows all of them alike.
    """
    took: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    while min(map(len, took.values())) < runs and sum(map(sum, took.values())) < SECONDS_MAX:
        for name in names:
            call = calls[name]
            began = time.perf_counter()
            call()
            took[name].append(time.perf_counter() - began)
        names.reverse()
    return {name: (statistics.median(times), len(times)) for name, times in took.items()}


@contextmanager
def connected(service: Service) -> Iterator[Lake]:
    limits = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX)]
    with (
        grpc.insecure_channel(service.grpc_address, options=limits) as channel,
        connect(service.grpc_address) as client,
    ):
        yield Lake(channel, client)


def stored_bytes(work_dir: Path) -> int:
    """The size of the SQLite store. After the service has stopped it has no write-ahead log."""
    return sum(path.stat().st_size for path in work_dir.glob("lakemark.db*"))


def _name(table: str) -> types_pb2.TableName:
    return types_pb2.TableName(database="default", table=table)


def _encoded(entries: pa.Table, instant: int) -> bytes:
    """The entries as the service takes them: below the instant's directory, partitions by name, no nulls and no NaN."""
    nothing = pa.array(np.zeros(entries.num_rows, np.int64))
    columns: dict[str, Any] = {name: entries.column(name) for name in entries.column_names if name not in {"path", "p"}}
    columns |= {f"null_count.{number}": nothing for number in range(1, len(COLUMNS) + 1)}
    columns["nan_count.3"] = nothing
    columns["path"] = [f"{instant}/{path}" for path in entries.column("path").to_pylist()]
    columns["partition"] = [f"{PARTITION_COLUMN}={p}" for p in entries.column("p").to_pylist()]
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
