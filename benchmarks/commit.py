"""How many commits a second one hot table takes: ``scripts/bench commit [--json] [--one-core] [--profile]``.

Each of 1, 8 and 32 writers opens an instant (inflight at once) and commits it with one new file in a random partition,
over gRPC, as fast as it can, to a table of its own kind; every commit is durable on SQLite before it is acknowledged.
Afterwards the table must have exactly as many versions as commits were acknowledged. Data files are not written: what
is measured is the service.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pstats
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import grpc

from benchmarks import commit_writers, machine
from benchmarks.commit_writers import Load, Tally
from benchmarks.service import Service, running_service
from lakemark_proto.v1 import catalog_pb2, timeline_pb2, types_pb2
from lakemark_proto.v1.catalog_pb2_grpc import CatalogServiceStub
from lakemark_proto.v1.timeline_pb2_grpc import TimelineServiceStub

WRITERS: Final = (1, 8, 32)
WARM_UP_S: Final = 2.0
SECONDS: Final = 10.0
COMMITS_MAX: Final = 100_000
PROFILE_LINES: Final = 45


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench commit", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    parser.add_argument("--one-core", action="store_true", help="hold the service to one core")
    parser.add_argument("--profile", action="store_true", help="only 32 writers, and where the service spends its time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakemark-bench-") as directory:
        work_dir = Path(directory)
        if arguments.profile:
            _profile(work_dir)
            return
        core = min(os.sched_getaffinity(0)) if arguments.one_core else None
        result = _measure(work_dir, core)
    _print_table(result)
    if arguments.json:
        print(json.dumps(result))


def _measure(work_dir: Path, core: int | None) -> dict[str, Any]:
    result: dict[str, Any] = {
        "benchmark": "commit",
        "machine": machine.description(),
        "versions": machine.versions("lakemark", "grpcio", "protobuf", "pyarrow"),
        "seconds_each": SECONDS,
        "service_on_one_core": core is not None,
        "hot_table_commits_per_s": {},
        "client_retries": 0,
        "writers": {},
    }
    with running_service(work_dir, hms=False, core=core) as service:
        _run(service, "warm_up", writers=8, seconds=WARM_UP_S)
        for writers in WRITERS:
            figures = _run(service, f"hot_{writers}", writers, SECONDS)
            result["hot_table_commits_per_s"][str(writers)] = figures["commits_per_s"]
            result["client_retries"] += figures.pop("client_retries")
            result["writers"][str(writers)] = figures
    result["machine"]["load_1min_after"] = round(os.getloadavg()[0], 2)
    return result


def _run(service: Service, table: str, writers: int, seconds: float) -> dict[str, Any]:
    _create_table(service, table)
    tally, server_cpu_s = _load(service, Load(service.grpc_address, table, writers, seconds, COMMITS_MAX))
    commits = len(tally.latencies_s)
    versions = _latest_version(service, table)
    if versions != commits:
        raise AssertionError(f"{commits} commits were acknowledged, and table {table} has {versions} versions")
    cuts = statistics.quantiles(tally.latencies_s, n=100)
    return {
        "commits_per_s": round(commits / tally.seconds, 1),
        "p50_ms": round(cuts[49] * 1e3, 2),
        "p99_ms": round(cuts[98] * 1e3, 2),
        "server_cpu_us_per_commit": round(server_cpu_s / commits * 1e6),
        "client_cpu_us_per_commit": round(tally.cpu_s / commits * 1e6),
        "client_retries": tally.retries,
    }


def _load(service: Service, load: Load) -> tuple[Tally, float]:
    """The writers' tally, and the processor seconds of the service meanwhile."""
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


def _latest_version(service: Service, table: str) -> int:
    name = types_pb2.TableName(database="default", table=table)
    request = timeline_pb2.ListVersionsRequest(table=name, page_size=1, newest_first=True)
    with grpc.insecure_channel(service.grpc_address) as channel:
        return TimelineServiceStub(channel).ListVersions(request).versions[0].version


def _profile(work_dir: Path) -> None:
    path = work_dir / "service.profile"
    with running_service(work_dir, hms=False, profile=path) as service:
        figures = _run(service, "hot", WRITERS[-1], SECONDS)
    print(f"under the profiler: {figures}", flush=True)
    for order in ("tottime", "cumulative"):
        pstats.Stats(str(path), stream=sys.stdout).sort_stats(order).print_stats(PROFILE_LINES)


def _print_table(result: dict[str, Any]) -> None:
    print("writers  commits/s   p50 ms   p99 ms  server us/commit  client us/commit")
    for writers, row in result["writers"].items():
        print(
            f"{writers:>7}  {row['commits_per_s']:>9}  {row['p50_ms']:>7}  {row['p99_ms']:>7}"
            f"  {row['server_cpu_us_per_commit']:>16}  {row['client_cpu_us_per_commit']:>16}"
        )
    print(f"client retries: {result['client_retries']}", flush=True)


if __name__ == "__main__":
    main()
