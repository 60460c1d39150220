"""One service under mixed load for long: ``scripts/bench soak [--json] [--minutes 30] [--store URL]``.

Clients of both protocols work at a pace far below what the service can do (``soak_load``): commits, upserts,
clustering, plans, incremental reads, time travel, branches, cleans, schema changes, tables and partitions. Each minute
(a tenth of the run if it is shorter than ten) memory, open files, threads, processor time, the size of the store
(SQLite's) and the latencies of each kind are written down. Memory and latency are flat if the last third of the run is
like the first: medians of the minutes are compared. At the end the store is verified. Unexpected errors and a store
that is not whole make the exit code 1; that something is not flat is told.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import machine
from benchmarks.service import Service, running_service
from benchmarks.soak_load import Load
from lakemark_server.kv import open_store
from lakemark_server.verify import verify

MEMORY_RATIO_MAX: Final = 1.10
P50_RATIO_MAX: Final = 1.25
P50_NOISE_MS: Final = 0.5
P99_RATIO_MAX: Final = 1.5
P99_NOISE_MS: Final = 5.0
P99_COUNT_MIN: Final = 100  # of fewer it is the slowest one, which says nothing
CACHE_BYTES: Final = 64 << 20
"""Of the service's snapshots: full after minutes, so that what grows later is no cache."""


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
    """Runs the load and looks at the service meanwhile."""
    every_s = min(60.0, seconds / 10)
    samples: list[dict[str, Any]] = []
    began, cpu_s = time.monotonic(), service.cpu_s()
    load.start()
    try:
        while time.monotonic() - began < seconds:
            time.sleep(every_s)
            sample = _sample(service, work_dir) | {
                "at_s": round(time.monotonic() - began, 1),
                "cpu_share": round((service.cpu_s() - cpu_s) / every_s, 3),
                "latency_ms": {kind: _figures(taken) for kind, taken in sorted(load.recorder.take().items())},
            }
            cpu_s = service.cpu_s()
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


def verdict(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of samples in the order of time: the last third beside the first, by medians; a kind that either lacks is left
    out. ``not_flat`` names what has become larger by more than it may."""
    third = max(1, len(samples) // 3)
    first, last = samples[:third], samples[-third:]
    between_h = (statistics.fmean(one["at_s"] for one in last) - statistics.fmean(one["at_s"] for one in first)) / 3_600
    not_flat = []
    thirds: dict[str, Any] = {}
    for name in ("rss_mb", "fds", "threads"):
        before, after = (statistics.median(one[name] for one in part) for part in (first, last))
        slope = round((after - before) / between_h, 1) if between_h else None
        thirds[name] = {"first": before, "last": after, "per_hour": slope}
        if after > before * MEMORY_RATIO_MAX:
            not_flat.append(name)
    for kind in sorted({kind for one in samples for kind in one["latency_ms"]}):
        for figure, ratio_max, noise_ms in (("p50", P50_RATIO_MAX, P50_NOISE_MS), ("p99", P99_RATIO_MAX, P99_NOISE_MS)):
            count_min = P99_COUNT_MIN if figure == "p99" else 1
            told = [[one["latency_ms"].get(kind, {"count": 0}) for one in part] for part in (first, last)]
            parts = [[one[figure] for one in part if one["count"] >= count_min] for part in told]
            if not all(parts):
                continue
            before, after = map(statistics.median, parts)
            thirds[f"{kind} {figure}_ms"] = {"first": round(before, 2), "last": round(after, 2)}
            if after > before * ratio_max and after > before + noise_ms:
                not_flat.append(f"{kind} {figure}_ms")
    return {
        "memory_flat": "rss_mb" not in not_flat,
        "latency_flat": not any(name.endswith("_ms") for name in not_flat),
        "not_flat": not_flat,
        "thirds": thirds,
    }


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
    for name, figures in result["thirds"].items():
        print(f"{name:>32}: {figures['first']} -> {figures['last']}")
    print(f"not flat: {', '.join(result['not_flat']) or 'nothing'}")
    print(f"{result['unexpected_errors']} unexpected errors {result['errors']}; verify: {result['verify_problems']}")


if __name__ == "__main__":
    main()
