"""Lakemark's metastore against Hive 2.3's own, in the same run: ``scripts/bench hms [--json]``.

A table of 20 columns and 2 partition keys gets 10,000 partitions. Both systems run all the time, but only one is called
at a time, in turns (ours, theirs, ours …), so that changes of the machine's speed affect both alike. The figures are
medians over the turns. A ratio is ours / theirs in calls per second, that of the least favourable case. Replies are
checked when a connection makes its first call; after that the client only sends and receives bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks import hms_load, machine
from benchmarks.hms_load import BATCH, DATABASE, FILTERS, TABLE, System
from benchmarks.peers.hive23 import hive_metastore
from benchmarks.service import running_service

TURNS: Final = 5
TURN_S: Final = 1.0
WARM_UP_S: Final = 2.0
CONNECTIONS: Final = (1, 16)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench hms", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakemark-bench-") as directory, ExitStack() as running:
        work_dir = Path(directory)
        described = machine.description()
        theirs = running.enter_context(hive_metastore(work_dir / "hive"))
        ours = running.enter_context(running_service(work_dir / "lakemark", hms=True))
        systems = [
            System("ours", ours.hms_port, f"file:{work_dir}/ours"),
            System("theirs", theirs, f"file:{work_dir}/theirs"),
        ]
        calls_per_s = _measure(systems)
    described["load_1min_after"] = round(os.getloadavg()[0], 2)
    result = {
        "benchmark": "hms",
        "machine": described,
        "versions": machine.versions("lakemark", "pyspark", "thrift"),
        **_ratios(calls_per_s),
        "calls_per_s": calls_per_s,
    }
    _print_table(calls_per_s)
    if arguments.json:
        print(json.dumps(result))


def _measure(systems: list[System]) -> dict[str, dict[str, float]]:
    """Calls per second by case and system."""
    for system in systems:
        hms_load.create_table(system)
    rates = {f"add_partitions of {BATCH}": _add_partitions(systems)}
    for connections in CONNECTIONS:
        rates[f"get_table, {connections} connections"] = _in_turns(systems, connections, _get_table)
    for selected, text in FILTERS.items():
        rates[f"get_partitions_by_filter, {selected} partitions"] = _in_turns(systems, 1, _by_filter(text, selected))
    return rates


def _add_partitions(systems: list[System]) -> dict[str, float]:
    seconds: dict[str, list[float]] = {system.name: [] for system in systems}
    for batches in zip(*map(hms_load.partition_batches, systems), strict=True):
        for system, batch in zip(systems, batches, strict=True):
            with hms_load.connected(system.port) as client:
                began = time.perf_counter()
                added = client.add_partitions(batch)
                seconds[system.name].append(time.perf_counter() - began)
                assert added == len(batch)
    return {name: round(1 / statistics.median(times), 3) for name, times in seconds.items()}


def _in_turns(systems: list[System], connections: int, call: Callable[[Any], object]) -> dict[str, float]:
    rates: dict[str, list[float]] = {system.name: [] for system in systems}
    for system in systems:
        hms_load.rate(system.port, connections, WARM_UP_S, call)
    for _ in range(TURNS):
        for system in systems:
            rates[system.name].append(hms_load.rate(system.port, connections, TURN_S, call))
    return {name: round(statistics.median(turns), 2) for name, turns in rates.items()}


def _get_table(client: Any) -> None:
    assert len(client.get_table(DATABASE, TABLE).sd.cols) == len(hms_load.COLUMNS)


def _by_filter(text: str, selected: int) -> Callable[[Any], None]:
    def call(client: Any) -> None:
        assert len(client.get_partitions_by_filter(DATABASE, TABLE, text, -1)) == selected

    return call


def _ratios(calls_per_s: dict[str, dict[str, float]]) -> dict[str, float]:
    def least(method: str) -> float:
        cases = [rates for case, rates in calls_per_s.items() if case.startswith(method)]
        return round(min(rates["ours"] / rates["theirs"] for rates in cases), 2)

    return {
        "get_table_ratio": least("get_table"),
        "by_filter_ratio": least("get_partitions_by_filter"),
        "add_partitions_ratio": least("add_partitions"),
    }


def _print_table(calls_per_s: dict[str, dict[str, float]]) -> None:
    print(f"{'calls per second':<45} {'ours':>10} {'theirs':>10} {'ratio':>8}")
    for case, rates in calls_per_s.items():
        ratio = rates["ours"] / rates["theirs"]
        print(f"{case:<45} {rates['ours']:>10} {rates['theirs']:>10} {ratio:>8.1f}", flush=True)


if __name__ == "__main__":
    main()
