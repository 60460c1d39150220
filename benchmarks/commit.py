"""What commits cost: ``scripts/bench commit [--json] [--no-peers] [--data DIR] [--profile] …``.

One hot table: each of 1, 8 and 32 writers commits one new file in a random partition and opens its next instant with
the same request, over gRPC, as fast as it can; every commit is durable on SQLite before it is acknowledged. Afterwards
the table must have exactly as many versions as commits were acknowledged. ``all_cores`` is the same with a service
whose threads run on all cores. Then: ten files on a large and on a small table, 100,000 files at once, a table of
10,000 versions, and reads of old versions. Data files are not written: what is measured is the service. PyIceberg,
delta-rs and DuckLake commit in the same run, metadata alone, as well.
"""

from __future__ import annotations

import argparse
import json
import os
import pstats
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks import commit_hot, commit_sizes, machine
from benchmarks.dataset import Dataset
from benchmarks.peers import environment
from benchmarks.plan import FILES, PARTITIONS
from benchmarks.service import running_service

WRITERS: Final = (1, 8, 32)
WARM_UP_S: Final = 2.0
SECONDS: Final = 10.0
VERSIONS: Final = 10_000
PROFILE_LINES: Final = 45
PEERS: Final = ("pyiceberg", "delta", "ducklake")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench commit", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    parser.add_argument("--profile", action="store_true", help="only 32 writers, and where the service spends its time")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each number of writers commits")
    parser.add_argument("--versions", type=int, default=VERSIONS, help="of the deep table")
    parser.add_argument("--files", type=int, default=FILES, help="how many files the large table has")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="in how many partitions")
    parser.add_argument("--no-peers", action="store_true", help="only Lakemark")
    parser.add_argument("--data", type=Path, default=environment.DATA, help="where the peers' metadata is kept")
    arguments = parser.parse_args()
    dataset = Dataset(arguments.files, arguments.partitions)
    described = machine.description()
    with tempfile.TemporaryDirectory(prefix="lakemark-bench-") as directory:
        if arguments.profile:
            _profile(Path(directory), arguments.seconds)
            return
        result = _measure(Path(directory), arguments.seconds, dataset, arguments.versions)
    if not arguments.no_peers:
        result |= measure_peers(arguments.data, dataset, result["ten_files_1m_ms"], result["ten_files_1m_next_ms"])
    described["load_1min_after"] = round(os.getloadavg()[0], 2)
    _print_table(result)
    if arguments.json:
        versions = machine.versions("lakemark", "grpcio", "protobuf", "pyarrow")
        print(json.dumps({"benchmark": "commit", "machine": described, "versions": versions, **result}))


def _measure(work_dir: Path, seconds: float, dataset: Dataset, versions: int) -> dict[str, Any]:
    with running_service(work_dir / "hot", hms=False) as service:
        commit_hot.run(service, "warm_up", 8, min(seconds, WARM_UP_S))
        by_writers = {writers: commit_hot.run(service, f"hot_{writers}", writers, seconds) for writers in WRITERS}
        most = WRITERS[-1]
        two_requests = commit_hot.run(service, "hot_two_requests", most, seconds, two_requests=True)
    with running_service(work_dir / "all_cores", hms=False, settings={"LAKEMARK_CORES": "all"}) as service:
        commit_hot.run(service, "warm_up", 8, min(seconds, WARM_UP_S))
        all_cores = commit_hot.run(service, "hot", most, seconds)
    result = {
        "seconds_each": seconds,
        "writers": most,
        "hot_table_commits_per_s": by_writers[most]["commits_per_s"],
        "client_retries": sum(figures["client_retries"] for figures in by_writers.values()),
        "by_writers": by_writers,
        "two_requests": two_requests,
        "all_cores": all_cores,
    }
    with running_service(work_dir / "sizes", hms=False) as service:
        return result | commit_sizes.measure(service, dataset, versions)


def measure_peers(data: Path, dataset: Dataset, ten_files_ms: float, next_ms: float) -> dict[str, Any]:
    """The peers' figures, and two ratios for appending ten files to the large table with PyIceberg.

    They relate it to opening and committing with Lakemark, and to one commit of a writer that stays open, as
    PyIceberg's table does.
    """
    peers: dict[str, Any] = {}
    for peer in PEERS:
        try:
            peers[peer] = environment.measure(peer, "commit", data, dataset.files, dataset.partitions)
        except environment.PeerError as error:
            print(error, file=sys.stderr, flush=True)
            peers[peer] = {"error": str(error)}
    append_ms = peers["pyiceberg"].get("append_ms")
    return {
        "vs_pyiceberg_append": append_ms and round(append_ms / ten_files_ms, 1),
        "vs_pyiceberg_append_next": append_ms and round(append_ms / next_ms, 1),
        "peers": peers,
    }


def _profile(work_dir: Path, seconds: float) -> None:
    path = work_dir / "service.profile"
    with running_service(work_dir, hms=False, profile=path) as service:
        figures = commit_hot.run(service, "hot", WRITERS[-1], seconds)
    print(f"under the profiler: {figures}", flush=True)
    for order in ("tottime", "cumulative"):
        pstats.Stats(str(path), stream=sys.stdout).sort_stats(order).print_stats(PROFILE_LINES)


def _print_table(result: dict[str, Any]) -> None:
    print("writers  commits/s   p50 ms   p99 ms  server us/commit  client us/commit")
    for writers, row in result["by_writers"].items():
        print(
            f"{writers:>7}  {row['commits_per_s']:>9}  {row['p50_ms']:>7}  {row['p99_ms']:>7}"
            f"  {row['server_cpu_us_per_commit']:>16}  {row['client_cpu_us_per_commit']:>16}"
        )
    for name, value in result.items():
        if name != "by_writers":
            print(f"{name}: {value}", flush=True)


if __name__ == "__main__":
    main()
