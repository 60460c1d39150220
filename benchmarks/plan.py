"""How fast files are planned: ``scripts/bench plan [--json] [--files N] [--partitions P] [--no-peers] [--data DIR]``.

A table of a million files (entries only, no data) in 1,000 partitions, with statistics on 5 columns, is committed over
gRPC and folded as far as the background fold would. Then plans are requested over gRPC: a selective predicate on a
partition and a clustered column; one on columns by which no page can be skipped; all files, listed by the client as
plain Arrow columns (with and without statistics, page by page and as one table); and the selective one as the first
after a restart. Plans with a predicate alternate with an empty request (gRPC's own health check). ``_warm`` repeats the
same plan, ``_new`` has other values each time, and ``_vs_empty`` is their time divided by that of an empty request.

PyIceberg, delta-rs and DuckLake plan the same files in the same run. Ratios are theirs / ours, for tables that they
have already loaded and, because they do not cache plans, for plans that Lakemark has not made before. Their generated
metadata stays in DIR. They take part up to a million files.

Each figure is a median of a number of runs, or of fewer if these take longer than SECONDS_MAX of ``benchmarks.lake``;
``runs`` has the number. So ten million files take less than ten minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

from benchmarks import folds, machine
from benchmarks.dataset import COLUMNS, UNCLUSTERED, Dataset, other_unclustered
from benchmarks.lake import EMPTY, Lake, connected, median_s, medians_in_turns_s, stored_bytes
from benchmarks.peers import environment
from benchmarks.service import Service, running_service

FILES: Final = 1_000_000
PARTITIONS: Final = 1_000
RUNS: Final = 50
CPU_RUNS: Final = 300
LISTINGS: Final = 3
PEERS: Final = {"pyiceberg": "vs_pyiceberg", "delta": "vs_delta_rs", "ducklake": "vs_ducklake"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench plan", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    parser.add_argument("--files", type=int, default=FILES, help="how many files the table has")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="in how many partitions")
    parser.add_argument("--no-peers", action="store_true", help="only Lakemark")
    parser.add_argument("--data", type=Path, default=environment.DATA, help="where the peers' metadata is kept")
    arguments = parser.parse_args()
    dataset = Dataset(arguments.files, arguments.partitions)
    described = machine.description()
    with tempfile.TemporaryDirectory(prefix="lakemark-bench-") as directory:
        result = _measure(Path(directory), dataset)
    _print(result)
    if not arguments.no_peers and dataset.files <= FILES:
        with tempfile.TemporaryDirectory(prefix="lakemark-bench-") as directory:
            scattered = _measure_scattered(Path(directory), dataset)
        _print(scattered)
        result |= scattered
        beside = measure_peers(arguments.data, dataset, result)
        _print(beside)
        result |= beside
    described["load_1min_after"] = round(os.getloadavg()[0], 2)
    if arguments.json:
        versions = machine.versions("lakemark", "grpcio", "pyarrow", "numpy")
        print(json.dumps({"benchmark": "plan", "machine": described, "versions": versions, **result}))


def _print(figures: dict[str, Any]) -> None:
    for name, value in figures.items():
        print(f"{name}: {value}", flush=True)


def _measure(work_dir: Path, dataset: Dataset) -> dict[str, Any]:
    selective = dataset.selection.sql
    result: dict[str, Any] = {"files": dataset.files, "partitions": dataset.partitions}
    with running_service(work_dir, hms=False) as service, connected(service) as lake:
        lake.create(EMPTY)
        result["commit_files_per_s"] = round(dataset.files / lake.fill("planned", dataset))
    folds.fold_if_due(work_dir, "planned")
    result["bytes_per_file"] = round(stored_bytes(work_dir) / dataset.files, 1)
    with running_service(work_dir, hms=False) as service, connected(service) as lake:
        result["selective_cold_ms"] = lake.cold_plan_ms("planned", selective)
        measures = _Measures(lake, dataset, result)
        result["selective_files"] = lake.plan("planned", selective)
        assert result["selective_files"] == dataset.selected_files
        result["unclustered_files"] = lake.plan("planned", UNCLUSTERED)
        measures.against_empty(service)
        measures.listing("full_listing_first_s", lambda: lake.list_all("planned"), 1)
        measures.listing("full_listing_s", lambda: lake.list_all("planned"))
        measures.listing("full_table_s", lambda: lake.table_of_all("planned"))
        result["rss_mb"] = service.rss_mb()
        names = [name for name, _ in COLUMNS]
        measures.listing("full_listing_statistics_s", lambda: lake.list_all("planned", names))
        measures.unclustered("unclustered_after_ms")
        result["rss_after_mb"] = service.rss_mb()
    return result


class _Measures:
    """Puts figures into ``result``, and the number of runs of each under "runs"."""

    _numbers = count(1)

    def __init__(self, lake: Lake, dataset: Dataset, result: dict[str, Any]) -> None:
        self._lake, self._dataset, self._result = lake, dataset, result
        self._runs = result.setdefault("runs", {})

    def unclustered(self, key: str) -> float:
        """Seconds of plans that were not made before."""
        took, self._runs[key] = median_s(
            lambda: self._lake.plan("planned", other_unclustered(next(self._numbers))), RUNS
        )
        self._result[key] = round(took * 1e3, 3)
        return took

    def against_empty(self, service: Service) -> None:
        """Repeated plans and new plans, in turns with requests that give the service nothing to do.

        Also the processor time that the service takes for them.
        """
        selection, lake = self._dataset.selection, self._lake
        calls: dict[str, Callable[[], object]] = {
            "empty_request": lake.empty_request,
            "selective_warm": lambda: lake.plan("planned", selection.sql),
            "selective_new": lambda: lake.plan("planned", selection.moved_sql(next(self._numbers))),
            "unclustered_warm": lambda: lake.plan("planned", UNCLUSTERED),
        }
        for call in calls.values():
            call()
        medians = medians_in_turns_s(calls, RUNS)
        # Measured apart: it evicts the processor's caches, so whatever comes next would look slow.
        medians["unclustered_new"] = self.unclustered("unclustered_new_ms"), self._runs["unclustered_new_ms"]
        for name, (took, runs) in medians.items():
            self._result[f"{name}_ms"] = round(took * 1e3, 3)
            self._runs[f"{name}_ms"] = runs
        empty, _ = medians.pop("empty_request")
        for name, (took, _) in medians.items():
            self._result[f"{name.removesuffix('_warm')}_vs_empty"] = round(took / empty, 2)
        for name in ("empty_request", "selective_warm", "selective_new"):
            began = service.cpu_s()
            for _ in range(CPU_RUNS):
                calls[name]()
            self._result[f"{name}_cpu_ms"] = round((service.cpu_s() - began) / CPU_RUNS * 1e3, 2)

    def listing(self, key: str, list_files: Callable[[], int], runs: int = LISTINGS) -> None:
        def checked() -> None:
            assert list_files() == self._dataset.files

        took, self._runs[key] = median_s(checked, runs)
        self._result[key] = round(took, 3)


def _measure_scattered(work_dir: Path, dataset: Dataset) -> dict[str, Any]:
    """The same table, but each append wrote to all partitions."""
    scattered = Dataset(dataset.files, dataset.partitions, scattered=True)
    with running_service(work_dir, hms=False) as service, connected(service) as lake:
        lake.fill("planned", scattered)
    folds.fold_if_due(work_dir, "planned")
    with running_service(work_dir, hms=False) as service, connected(service) as lake:
        assert lake.plan("planned", scattered.selection.sql) == scattered.selected_files
        numbers = count(1)
        took, _ = median_s(lambda: lake.plan("planned", scattered.selection.moved_sql(next(numbers))), RUNS)
        return {"selective_scattered_ms": round(took * 1e3, 3)}


def measure_peers(data: Path, dataset: Dataset, ours: dict[str, Any]) -> dict[str, Any]:
    """The peers' figures, and ratios. A peer that could not be measured is left out."""
    result: dict[str, Any] = {"peers": {}}
    for peer, key in PEERS.items():
        try:
            theirs = environment.measure(peer, "plan", data, dataset.files, dataset.partitions)
        except environment.PeerError as error:
            print(error, file=sys.stderr, flush=True)
            theirs = {"error": str(error)}
        result["peers"][peer] = theirs
        result[key] = _ratio(theirs, "selective_loaded_ms", ours["selective_new_ms"])
        result[f"{key}_listing"] = _ratio(theirs, "full_listing_s", ours["full_listing_s"])
        if "selective_scattered_ms" in theirs:
            result[f"{key}_scattered"] = _ratio(theirs, "selective_scattered_ms", ours["selective_scattered_ms"])
    return result


def _ratio(theirs: dict[str, Any], figure: str, ours: float) -> float | None:
    return round(theirs[figure] / ours, 1) if figure in theirs else None


if __name__ == "__main__":
    main()
