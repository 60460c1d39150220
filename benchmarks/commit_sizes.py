"""How the cost of a commit depends on the size of the table and of the commit, and what many versions cost."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from benchmarks import commit_hot
from benchmarks.dataset import APPENDS, Dataset, entries
from benchmarks.lake import Lake, connected
from benchmarks.service import Service

TEN: Final = 10
TEN_RUNS: Final = 30
WARM_UP_RUNS: Final = 3
BULK_FILES: Final = 100_000
BULK_RUNS: Final = 3
DEEP_WRITERS: Final = 8
DEEP_SECONDS_MAX: Final = 300.0
SHALLOW_VERSIONS: Final = 10
READ_RUNS: Final = 50


def measure(service: Service, dataset: Dataset, versions: int) -> dict[str, Any]:
    with connected(service) as lake:
        lake.fill("large", dataset)
        result = _old_version(lake, "large", dataset.selection.sql, APPENDS // 2)
        result |= _ten_files(lake, dataset)
        result["files_100k_s"] = _bulk(lake, dataset)
        return result | _deep(service, lake, versions)


def _ten_files(lake: Lake, dataset: Dataset) -> dict[str, Any]:
    """Median times of commits of ten files on the large table and on one a hundredth its size, in turns.

    ``ten_files_1m_next_ms`` is of a writer that stays open, whose commits open its next instant. In the other figures
    opening counts too.
    """
    smallest = math.lcm(dataset.partitions, APPENDS)
    small = Dataset(max(dataset.files // 100 // smallest, 1) * smallest, dataset.partitions)
    lake.fill("small", small)
    kept = lake.appender("large")
    turns = iter(range(2 * (WARM_UP_RUNS + TEN_RUNS)))
    took: dict[str, list[float]] = {"large": [], "small": [], "kept": []}
    for number in range(WARM_UP_RUNS + TEN_RUNS):
        seconds = {
            "large": lake.append("large", dataset.later(next(turns), TEN)),
            "small": lake.append("small", small.later(number, TEN)),
            "kept": kept(dataset.later(next(turns), TEN)),
        }
        if number >= WARM_UP_RUNS:
            for what, one in seconds.items():
                took[what].append(one)
    large_ms, small_ms, kept_ms = (round(statistics.median(times) * 1e3, 3) for times in took.values())
    return {
        "ten_files_1m_ms": large_ms,
        "ten_files_1m_next_ms": kept_ms,
        "ten_files_10k_ms": small_ms,
        "ten_files_1m_vs_10k": round(large_ms / small_ms, 2),
    }


def _bulk(lake: Lake, dataset: Dataset) -> float:
    """Seconds for one commit of 100,000 files (or of all files of the table), staged in requests of 10,000."""
    lake.create("bulk")
    count = min(BULK_FILES, dataset.files)
    took = []
    for number in range(BULK_RUNS):
        places = number * count + np.arange(count)
        took.append(lake.append("bulk", entries(places, places % dataset.partitions, seed=number)))
    return round(statistics.median(took), 3)


def _old_version(lake: Lake, table: str, sql: str, version: int) -> dict[str, Any]:
    """Times of plans of an old version and of the latest, in turns, after both have been read once."""
    lake.plan(table, sql)
    first_ms = lake.plan_ms(table, sql, 1, version)
    old_ms, latest_ms = _in_turns(
        lambda: lake.plan_ms(table, sql, 1, version), lambda: lake.plan_ms(table, sql, 1), READ_RUNS
    )
    return {
        "old_version_first_ms": first_ms,
        "old_version_ms": old_ms,
        "latest_version_ms": latest_ms,
        "old_version_vs_latest": round(old_ms / latest_ms, 2),
    }


def _deep(service: Service, lake: Lake, versions: int) -> dict[str, Any]:
    """Plans and commits on a table with one file in each version, and on one with as many files in few versions, in
    turns.

    ``deep_versions_ratio`` is the greater of the two ratios.
    """
    deep = commit_hot.run(service, "deep", DEEP_WRITERS, DEEP_SECONDS_MAX, versions)["commits"]
    commit_hot.fill(service, "shallow", SHALLOW_VERSIONS, deep // SHALLOW_VERSIONS)
    sql = "day = 50"
    for table in ("deep", "shallow"):
        lake.plan(table, sql)
    plans = _in_turns(lambda: lake.plan_ms("deep", sql, 1), lambda: lake.plan_ms("shallow", sql, 1), READ_RUNS)
    with commit_hot.writer(service, "deep") as to_deep, commit_hot.writer(service, "shallow") as to_shallow:
        commits = _in_turns(lambda: _milliseconds(to_deep), lambda: _milliseconds(to_shallow), READ_RUNS)
    middle = deep // 2
    began = time.perf_counter()
    lake.plan("deep", sql, middle)
    first_ms = round((time.perf_counter() - began) * 1e3, 3)
    return {
        "deep_versions": deep,
        "deep_plan_ms": plans[0],
        "shallow_plan_ms": plans[1],
        "deep_commit_ms": commits[0],
        "shallow_commit_ms": commits[1],
        "deep_old_version_first_ms": first_ms,
        "deep_versions_ratio": round(max(plans[0] / plans[1], commits[0] / commits[1]), 2),
    }


def _in_turns(first: Callable[[], float], second: Callable[[], float], runs: int) -> tuple[float, float]:
    """The medians of both."""
    times = [(first(), second()) for _ in range(runs)]
    ones, others = zip(*times, strict=True)
    return round(statistics.median(ones), 3), round(statistics.median(others), 3)


def _milliseconds(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1e3
