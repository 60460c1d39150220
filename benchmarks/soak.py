"""One service under mixed load for a long time: ``scripts/bench soak [--json] [--minutes 30] [--store URL]``.

Clients of both protocols work at a pace far below the service's capacity (``soak_load``): commits, upserts, clustering,
plans, incremental reads, time travel, branches, cleans, schema changes, tables and partitions. Each minute (a tenth of
the run if it is shorter than ten minutes) it records memory, open files, threads, processor time, the size of the store
(SQLite only) and the latencies of each kind. Figures are judged after the first 15 minutes: before, caches fill, and
the history of the table grows until its metadata is trimmed. A figure is flat if its slope is within its limit or
explained by chance. At the end the store is verified. Unexpected errors and a damaged store make the exit code 1;
figures that are not flat are reported only.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from benchmarks import machine
from benchmarks.service import Service, running_service
from benchmarks.soak_load import Load
from lakemark_server.kv import open_store
from lakemark_server.verify import verify

STEADY_AFTER_S: Final = 900.0
"""Metadata is trimmed ten minutes after a base was made. On a busy machine bases are made every few minutes."""
STEADY_SAMPLES_MIN: Final = 10  # with fewer a slope means nothing
CHANCE_MAX: Final = 0.01
"""The median of six requests per minute fluctuates: if they scatter by a third, one of five flat figures seems to grow,
judged by its slope alone."""
P99_COUNT_MIN: Final = 100  # with fewer it is the slowest request, which means nothing
CACHE_BYTES: Final = 64 << 20
"""The service's cache of snapshots. It is full after some minutes, so that later growth is not the cache."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench soak", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long")
    parser.add_argument("--store", metavar="URL", help="an empty one, instead of SQLite in a new directory")
    parser.add_argument(
        "--files", type=int, default=20_000, help="how many files the lake table has from the beginning"
    )
    parser.add_argument("--partitions", type=int, default=100, help="in how many partitions")
    arguments = parser.parse_args()
    described = machine.description()
    with tempfile.TemporaryDirectory(prefix="lakemark-bench-") as directory:
        work_dir = Path(directory)
        store = arguments.store or f"sqlite:///{work_dir}/lakemark.db"
        settings = {"LAKEMARK_STORE": store, "LAKEMARK_SNAPSHOT_CACHE_BYTES": str(CACHE_BYTES)}
        with running_service(work_dir, hms=True, settings=settings) as service:
            load = Load(service, f"file:{work_dir}/hive", arguments.files, arguments.partitions)
            samples = _watch(service, load, work_dir, arguments.minutes * 60)
        opened = open_store(store)
        problems = list(verify(opened))
        opened.close()
    described["load_1min_after"] = round(os.getloadavg()[0], 2)
    result = {
        "minutes": arguments.minutes,
        **verdict(samples),
        "unexpected_errors": load.recorder.failed,
        "errors": load.recorder.errors,
        "refused": dict(load.recorder.refused),
        "verify_problems": problems,
        "samples": samples,
    }
    _print_verdict(result)
    if arguments.json:
        versions = machine.versions("lakemark", "grpcio", "pyarrow", "thrift")
        print(json.dumps({"benchmark": "soak", "machine": described, "versions": versions, **result}))
    sys.exit(1 if problems or load.recorder.failed else 0)


def _watch(service: Service, load: Load, work_dir: Path, seconds: float) -> list[dict[str, Any]]:
    """Runs the load and samples the service meanwhile."""
    count = max(10, round(seconds / 60))
    samples: list[dict[str, Any]] = []
    began = seen = time.monotonic()
    cpu_s = service.cpu_s()
    load.start()
    try:
        for number in range(1, count + 1):
            time.sleep(max(0.0, began + seconds * number / count - time.monotonic()))
            since, seen = seen, time.monotonic()
            before_s, cpu_s = cpu_s, service.cpu_s()
            sample = _sample(service, work_dir) | {
                "at_s": round(seen - began, 1),
                "cpu_share": round((cpu_s - before_s) / (seen - since), 3),
                "latency_ms": {kind: _figures(taken) for kind, taken in sorted(load.recorder.take().items())},
            }
            samples.append(sample)
            _print_sample(sample)
    finally:
        load.stop()
    return samples


def _sample(service: Service, work_dir: Path) -> dict[str, Any]:
    process = Path(f"/proc/{service.pid}")
    return {
        "rss_mb": service.rss_mb(),
        "fds": len(list((process / "fd").iterdir())),
        "threads": len(list((process / "task").iterdir())),
        "store_mb": round(sum(path.stat().st_size for path in work_dir.glob("lakemark.db*")) / (1 << 20), 1),
    }


def _figures(taken_s: list[float]) -> dict[str, float]:
    taken = sorted(taken_s)
    return {
        "count": len(taken),
        "p50": round(taken[len(taken) // 2] * 1e3, 2),
        "p99": round(taken[min(len(taken) - 1, len(taken) * 99 // 100)] * 1e3, 2),
    }


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a figure.

    It is not flat if it grows by more than ``hourly`` of its median in an hour and by more than ``noise`` while judged,
    unless a fluctuating figure would do so with a chance of more than ``CHANCE_MAX``.
    """

    hourly: float
    noise: float


LIMITS: Final = {
    "rss_mb": Limit(0.1, 10.0),  # allocators take memory from the system in steps of up to 8 MB
    "fds": Limit(0.1, 3.0),
    "threads": Limit(0.1, 3.0),
    "cpu_share": Limit(0.5, 0.03),
    "p50": Limit(0.5, 0.5),
    "p99": Limit(1.5, 5.0),
}


def verdict(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Judges samples in the order of time.

    ``trends`` has for each figure its first value, its median since ``STEADY_AFTER_S``, its slope since then, and the
    probability of such a rise by chance. ``not_flat`` names the figures that grow. Both are missing if the run was
    short.
    """
    trends: dict[str, Any] = {}
    not_flat = []
    for name, limit, points in _series(samples):
        steady = [(at_s, value) for at_s, value in points if at_s > STEADY_AFTER_S]
        trends[name] = {"first": points[0][1]}
        if len(steady) < STEADY_SAMPLES_MIN:
            continue
        median, hourly = statistics.median(value for _, value in steady), slope(steady) * 3_600
        by_chance = chance(steady)
        trends[name] |= {"steady": round(median, 3), "per_hour": round(hourly, 3), "chance": round(by_chance, 4)}
        grown = hourly * (steady[-1][0] - steady[0][0]) / 3_600
        if hourly > limit.hourly * median and grown > limit.noise and by_chance <= CHANCE_MAX:
            not_flat.append(name)
    judged = "per_hour" in trends["rss_mb"]
    return {
        "memory_flat": "rss_mb" not in not_flat if judged else None,
        "latency_flat": not any(name.endswith("_ms") for name in not_flat) if judged else None,
        "not_flat": not_flat,
        "trends": trends,
    }


Points = list[tuple[float, float]]
"""(seconds since the beginning, figure)"""


def _series(samples: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Limit, Points]]:
    for name in ("rss_mb", "fds", "threads", "cpu_share"):
        yield name, LIMITS[name], [(one["at_s"], one[name]) for one in samples]
    for kind in sorted({kind for one in samples for kind in one["latency_ms"]}):
        of_kind = [(one["at_s"], one["latency_ms"][kind]) for one in samples if kind in one["latency_ms"]]
        for figure, count_min in (("p50", 1), ("p99", P99_COUNT_MIN)):
            points = [(at_s, figures[figure]) for at_s, figures in of_kind if figures["count"] >= count_min]
            if points:
                yield f"{kind} {figure}_ms", LIMITS[figure], points


def slope(points: Points) -> float:
    """The slope per second: the median of the slopes of all pairs (Theil 1950, Sen 1968), robust against outliers."""
    return statistics.median(
        (later - value) / (later_s - at_s) for (at_s, value), (later_s, later) in combinations(points, 2)
    )


def chance(points: Points) -> float:
    """The probability that so many pairs rise, or more, if the figures come in random order.

    Mann 1945, Kendall 1975, with ties, by the normal distribution. About 0.5 for a level series, near 0 for a rising
    one.
    """
    values = [value for _, value in sorted(points)]
    rises = sum((later > value) - (later < value) for value, later in combinations(values, 2))
    sizes = [len(values), *Counter(values).values()]
    whole, *ties = (size * (size - 1) * (2 * size + 5) for size in sizes)
    variance = (whole - sum(ties)) / 18
    if not variance:
        return 0.5
    # Continuity correction: the normal distribution is continuous, the count is not.
    deviation = (rises - (rises > 0) + (rises < 0)) / math.sqrt(variance)
    return math.erfc(deviation / math.sqrt(2)) / 2


def _print_sample(sample: Mapping[str, Any]) -> None:
    told = ", ".join(
        f"{kind} {figures['p50']}/{figures['p99']} ({figures['count']})"
        for kind, figures in sample["latency_ms"].items()
    )
    print(
        f"{sample['at_s']:>7.0f} s: {sample['rss_mb']} MB, {sample['fds']} files, {sample['threads']} threads, "
        f"{sample['cpu_share']} of a core, store {sample['store_mb']} MB; p50/p99 ms: {told}",
        flush=True,
    )


def _print_verdict(result: Mapping[str, Any]) -> None:
    for name, figures in result["trends"].items():
        steady = (
            f" -> {figures['steady']}, {figures['per_hour']:+} an hour (by chance {figures['chance']})"
            if "steady" in figures
            else ""
        )
        print(f"{name:>32}: {figures['first']}{steady}")
    if result["memory_flat"] is None:
        print(f"too short to say what is flat: that takes {STEADY_AFTER_S / 60:.0f} + {STEADY_SAMPLES_MIN} minutes")
    else:
        print(f"not flat: {', '.join(result['not_flat']) or 'nothing'}")
    print(f"{result['unexpected_errors']} unexpected errors {result['errors']}; verify: {result['verify_problems']}")


if __name__ == "__main__":
    main()
