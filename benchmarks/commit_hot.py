"""One hot table and the writers of ``commit_writers``: their throughput, and the cost for the service."""

from __future__ import annotations

import multiprocessing
import random
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import grpc

from benchmarks import commit_writers
from benchmarks.commit_writers import Load, Tally
from benchmarks.service import Service
from lakemark_proto.v1 import catalog_pb2, timeline_pb2, types_pb2
from lakemark_proto.v1.catalog_pb2_grpc import CatalogServiceStub
from lakemark_proto.v1.timeline_pb2_grpc import TimelineServiceStub

COMMITS_MAX: Final = 100_000


def run(
    service: Service,
    table: str,
    writers: int,
    seconds: float,
    commits_max: int = COMMITS_MAX,
    *,
    two_requests: bool = False,
) -> dict[str, Any]:
    """Commits to a new table until ``seconds`` have passed or ``commits_max`` is reached. AssertionError: a commit was
    lost."""
    _create_table(service, table)
    tally, server_cpu_s = _load(service, Load(service.grpc_address, table, writers, seconds, commits_max, two_requests))
    commits = len(tally.latencies_s)
    versions = latest_version(service, table)
    if versions != commits:
        raise AssertionError(f"{commits} commits were acknowledged, and table {table} has {versions} versions")
    cuts = statistics.quantiles(tally.latencies_s, n=100)
    return {
        "commits": commits,
        "commits_per_s": round(commits / tally.seconds, 1),
        "p50_ms": round(cuts[49] * 1e3, 2),
        "p99_ms": round(cuts[98] * 1e3, 2),
        "server_cpu_us_per_commit": round(server_cpu_s / commits * 1e6),
        "client_cpu_us_per_commit": round(tally.cpu_s / commits * 1e6),
        "client_retries": tally.retries,
    }


def fill(service: Service, table: str, versions: int, files: int) -> None:
    """Creates a table like those of ``run``, with few versions of ``files`` files each."""
    _create_table(service, table)
    choice = random.Random(versions)
    with grpc.insecure_channel(service.grpc_address) as channel:
        stub = TimelineServiceStub(channel)
        for _ in range(versions):
            commit_writers.append(stub, table, choice, files)


@contextmanager
def writer(service: Service, table: str) -> Iterator[Callable[[], None]]:
    """A function that makes one commit of one file."""
    choice = random.Random(table)
    with grpc.insecure_channel(service.grpc_address) as channel:
        stub = TimelineServiceStub(channel)
        yield lambda: commit_writers.append(stub, table, choice, 1)


def latest_version(service: Service, table: str) -> int:
    name = types_pb2.TableName(database="default", table=table)
    request = timeline_pb2.ListVersionsRequest(table=name, page_size=1, newest_first=True)
    with grpc.insecure_channel(service.grpc_address) as channel:
        return TimelineServiceStub(channel).ListVersions(request).versions[0].version


def _load(service: Service, load: Load) -> tuple[Tally, float]:
    """The writers' tally, and the processor seconds that the service used meanwhile."""
    spawn = multiprocessing.get_context("spawn")  # gRPC does not survive a fork
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=commit_writers.main, args=(load, theirs))
    process.start()
    theirs.close()
    try:
        ours.recv()
        before = service.cpu_s()
        ours.send("go")
        answer = ours.recv()
        used = service.cpu_s() - before
    finally:
        process.join()
    if not isinstance(answer, Tally):
        raise RuntimeError(f"a writer failed: {answer}")  # noqa: TRY004 - not the type of an argument
    return answer, used


def _create_table(service: Service, table: str) -> None:
    columns = [("id", "bigint"), ("carrier", "string"), ("delay", "double"), ("day", "int")]
    schema = types_pb2.Schema(
        columns=[types_pb2.Column(name=name, type=types_pb2.Type(primitive=kind)) for name, kind in columns],
        partition_columns=["day"],
    )
    name = types_pb2.TableName(database="default", table=table)
    with grpc.insecure_channel(service.grpc_address) as channel:
        CatalogServiceStub(channel).CreateTable(catalog_pb2.CreateTableRequest(name=name, schema=schema))
