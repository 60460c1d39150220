"""What the service adds to its store: the time of a commit, and the throughput of several processes on one store."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from benchmarks import commit_hot
from benchmarks.service import running_service
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_proto.v1.timeline_pb2_grpc import TimelineServiceStub
from lakemark_proto.v1.types_pb2 import DataFile, DataFileList, DataFiles, TableName, Value

COMMITS: Final = 400
WARM_UP: Final = 50
WRITERS: Final = 16
SECONDS: Final = 6.0


class RoundTrips(NamedTuple):
    """Medians, from one client."""

    commit_ms: float
    """A Commit with one file: its request, the service and the store together. Opening the instant is not included."""
    empty_ms: float
    """A request that gives the service nothing to do (gRPC's own health check): the minimum for any response."""


def round_trips(work_dir: Path, store: str) -> RoundTrips:
    """Measures both in turns."""
    with running_service(work_dir, hms=False, settings={"LAKEMARK_STORE": store}) as service:
        commit_hot.fill(service, "single", 1, 1)
        name = TableName(database="default", table="single")
        with grpc.insecure_channel(service.grpc_address) as channel:
            stub, health = TimelineServiceStub(channel), HealthStub(channel)
            taken = [(_timed_commit(stub, name, number), _timed_check(health)) for number in range(WARM_UP + COMMITS)]
    return RoundTrips(*(round(statistics.median(times) * 1e3, 3) for times in zip(*taken[WARM_UP:], strict=True)))


def _timed_check(stub: HealthStub) -> float:
    began = time.perf_counter()
    stub.Check(HealthCheckRequest())
    return time.perf_counter() - began


def _timed_commit(stub: TimelineServiceStub, table: TableName, number: int) -> float:
    opened = stub.OpenInstant(pb.OpenInstantRequest(table=table, operation=pb.APPEND, start=True))
    file = DataFile(
        path=f"{opened.instant}/day=1/{number:016x}/part-0.parquet",
        size_bytes=1 << 20,
        row_count=100_000,
        partition=[Value(integer=1)],
    )
    added = DataFiles(list=DataFileList(files=[file]))
    request = pb.CommitRequest(table=table, instant=opened.instant, added=added)
    began = time.perf_counter()
    stub.Commit(request)
    return time.perf_counter() - began


def commits_per_s(work_dir: Path, store: str, processes: int) -> float:
    """Commits per second of ``processes`` services on one store, each with a table and WRITERS writers of its own."""
    with ExitStack() as stack:
        services = [
            stack.enter_context(
                running_service(work_dir / f"{processes}-{number}", hms=False, settings={"LAKEMARK_STORE": store})
            )
            for number in range(processes)
        ]
        with ThreadPoolExecutor(processes) as threads:
            runs = [
                threads.submit(commit_hot.run, service, f"hot_{processes}_{number}", WRITERS, SECONDS)
                for number, service in enumerate(services)
            ]
            rates: list[float] = [run.result()["commits_per_s"] for run in runs]
            return round(sum(rates), 1)
