"""What events cost, and how soon they are there: ``scripts/bench events [--json]``.

``commit_slowdown``: the commits a second of one hot table with ten watchers of all its events, by those without a
watcher, in turns; the log is written in both. ``watch_p50_ms`` and ``watch_p99_ms``: from the acknowledgement of a
commit to its event at a watcher, one commit at a time. ``replay_per_s``: events a second that one stream reads from the
log's beginning. The watchers are a process of their own, beside those of the service and the writers.

``kafka_per_s``: what a sink brings to a real broker. ``notification_per_s``: Hive's notifications in calls of 1,000
whose messages were made before; ``notification_first_per_s``: those that are made. ``listener_ddl_per_s``: changes of
tables that an outside Hive 2.3 metastore follows. ``--no-peers`` leaves out what needs a JVM.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks import commit_hot, events_kafka, events_listener, events_notifications, events_watch, machine
from benchmarks.peers.hive23 import hive_metastore
from benchmarks.service import Service, running_service

WATCHERS: Final = 10
WRITERS: Final = 32
WARM_UP_S: Final = 2.0
SECONDS: Final = 6.0
TURNS: Final = 3
DELAYS: Final = 500


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench events", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each load")
    parser.add_argument("--turns", type=int, default=TURNS, help="loads with and without watchers")
    parser.add_argument("--no-peers", action="store_true", help="without Kafka and the outside Hive Metastore")
    arguments = parser.parse_args()
    described = machine.description()
    with tempfile.TemporaryDirectory(prefix="lakemark-bench-") as directory:
        work_dir = Path(directory)
        with running_service(work_dir / "hot", hms=False) as service:
            result = _measure(service, arguments.seconds, arguments.turns)
            if not arguments.no_peers:
                result |= events_kafka.rate(service)
        with running_service(work_dir / "notifications", hms=True) as service:
            result |= events_notifications.rates(service, f"file:{work_dir}/tables")
        if not arguments.no_peers:
            result |= _listener(work_dir)
    described["load_1min_after"] = round(os.getloadavg()[0], 2)
    for name, value in result.items():
        print(f"{name:>24}  {value}")
    if arguments.json:
        versions = machine.versions("lakemark", "grpcio", "protobuf", "pyarrow")
        print(json.dumps({"benchmark": "events", "machine": described, "versions": versions, **result}))


def _measure(service: Service, seconds: float, turns: int) -> dict[str, Any]:
    commit_hot.run(service, "warm_up", 8, min(seconds, WARM_UP_S))
    result = events_watch.delays(service, "delays", DELAYS)
    alone, watched = [], []
    for turn in range(turns):
        alone.append(commit_hot.run(service, f"alone_{turn}", WRITERS, seconds))
        watched.append(_watched(service, f"watched_{turn}", seconds))
    result |= {
        "watchers": WATCHERS,
        "commits_per_s": _median(alone, "commits_per_s"),
        "watched_commits_per_s": _median(watched, "commits_per_s"),
        "server_cpu_us_per_commit": _median(alone, "server_cpu_us_per_commit"),
        "watched_server_cpu_us_per_commit": _median(watched, "server_cpu_us_per_commit"),
    }
    result["commit_slowdown"] = round(result["watched_commits_per_s"] / result["commits_per_s"], 3)
    return result | events_watch.replay(service)


def _listener(work_dir: Path) -> dict[str, Any]:
    with hive_metastore(work_dir / "hive") as port, running_service(work_dir / "listener", hms=True) as service:
        return events_listener.measure(service, port, work_dir, events_listener.TABLES, events_listener.PARTITIONS)


def _watched(service: Service, table: str, seconds: float) -> dict[str, Any]:
    with events_watch.watching(service.grpc_address, WATCHERS) as watchers:
        figures = commit_hot.run(service, table, WRITERS, seconds)
        watchers.send("stop")
        counts = watchers.recv()
    if isinstance(counts, str) or min(counts) < figures["commits"]:
        raise AssertionError(f"{figures['commits']} commits were acknowledged, and the watchers have had {counts}")
    return figures


def _median(figures: list[dict[str, Any]], name: str) -> float:
    return round(statistics.median(one[name] for one in figures), 1)


if __name__ == "__main__":
    main()
