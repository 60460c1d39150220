"""Lakemark's metastore against Hive 2.3's own, in the same run: ``scripts/bench hms [--json]``.

A table of 20 columns and 2 partition keys gets 10,000 partitions. Both systems run all the time, but only one is called
at a time, in turns (ours, theirs, ours …), so that changes of the machine's speed affect both alike. The figures are
medians over the turns. A ratio is ours / theirs in calls per second, that of the least favourable case. The client is
one thread with encoded requests (``hms_load``), the same for both; its own processor time for a call is told beside.

The rest is ours alone: work beside 4,000 idle connections, a table with 100,000 partitions, look-ups among many objects
against look-ups among 1,000, and lists of 500,000 tables.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

from benchmarks import hms_load, hms_tables, machine
from benchmarks.hms_load import BATCH, DATABASE, TABLE, Call, Recorded, System, Wire, connected, recorded
from benchmarks.peers.hive23 import hive_metastore
from benchmarks.service import Service, running_service

TURNS: Final = 5
CONNECTIONS: Final = (1, 16)
FEW_OBJECTS: Final = 1_000
SMALL_TABLES: Final = 30
NEW_FILTERS: Final = 50
LARGE: Final = "large"

Figures = dict[str, dict[str, float]]
"""By case and system."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench hms", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    parser.add_argument("--no-peer", action="store_true", help="without Hive: no ratios")
    parser.add_argument("--partitions", type=int, default=10_000, help="of the table that both have")
    parser.add_argument(
        "--large", type=int, default=100_000, help="partitions of the table that only ours has; 0: there is none"
    )
    parser.add_argument(
        "--objects", type=int, default=1_000_000, help="among which a look-up must not take longer; 0: left out"
    )
    parser.add_argument("--lookups", type=int, default=300, help="of different objects, in each turn")
    parser.add_argument("--tables", type=int, default=500_000, help="of a database that is listed; 0: left out")
    parser.add_argument("--idle", type=int, default=4_000, help="connections that say nothing beside others that work")
    parser.add_argument("--turn-s", type=float, default=1.0, help="seconds of a turn")
    arguments = parser.parse_args()
    described = machine.description()
    with tempfile.TemporaryDirectory(prefix="lakemark-bench-") as directory, ExitStack() as running:
        work_dir = Path(directory)
        theirs = None if arguments.no_peer else running.enter_context(hive_metastore(work_dir / "hive"))
        service = running.enter_context(running_service(work_dir / "lakemark", hms=True))
        systems = [System("ours", service.hms_port, f"file:{work_dir}/ours")]
        if theirs is not None:
            systems.append(System("theirs", theirs, f"file:{work_dir}/theirs"))
        compared = _Compared(systems, service, arguments.partitions, arguments.turn_s, arguments.idle)
        figures = compared.measure()
        alone = _alone(work_dir, systems[0], arguments.large, arguments.objects, arguments.lookups)
        if arguments.tables:
            alone |= _many_tables(work_dir / "tables", arguments.tables, arguments.lookups)
        # Before the directories of a million partitions are deleted, which takes minutes.
        described["load_1min_after"] = round(os.getloadavg()[0], 2)
        result = {
            "benchmark": "hms",
            "machine": described,
            "versions": machine.versions("lakemark", "pyspark", "thrift"),
            **({} if arguments.no_peer else _ratios(figures)),
            **compared.more,
            **alone,
            "calls_per_s": figures,
        }
        for name, figure in {**compared.more, **alone}.items():
            print(f"{name:<45} {figure:>10}", flush=True)
        if arguments.json:
            print(json.dumps(result))


class _Compared:
    """What both systems do, in turns. ``more`` gets the figures that are ours alone."""

    def __init__(self, systems: list[System], service: Service, partitions: int, turn_s: float, idle: int) -> None:
        self._systems, self._service = systems, service
        self._partitions, self._turn_s, self._idle = partitions, turn_s, idle
        self.more: dict[str, float] = {}

    def measure(self) -> Figures:
        """Calls per second."""
        for system in self._systems:
            hms_load.create_table(system)
        figures: Figures = {}

        def told(case: str, rates: dict[str, float]) -> None:
            figures[case] = rates
            _print_case(case, rates)

        print(f"{'calls per second':<45} {'ours':>10} {'theirs':>10} {'ratio':>8}")
        for connections in CONNECTIONS:
            told(f"get_table, {connections} connections", self._in_turns(_get_table, connections, "get_table"))
        for step, rates in self._tables().items():
            told(step, rates)
        told(f"add_partitions of {BATCH}", self._add_partitions())
        for selected, text in hms_load.filters(self._partitions).items():
            told(f"get_partitions_by_filter, {selected} partitions", self._in_turns(_by_filter(text, selected)))
        told(
            f"get_partitions, {self._partitions} partitions",
            self._in_turns(_list(self._partitions), cpu="list_partitions"),
        )
        self._beside_idle_connections()
        self.more["list_10k_ms"] = round(self.more.pop("list_partitions_cpu_us") / 1e3 * 1e4 / self._partitions, 2)
        return figures

    def _beside_idle_connections(self) -> None:
        """How much slower calls are beside many connections that say nothing, and what those take."""
        ours = self._systems[0]
        one = recorded(ours.port, _get_table)
        without, beside, grown_mb = list[float](), list[float](), 0
        for _ in range(TURNS):
            without.append(hms_load.rate(ours.port, CONNECTIONS[-1], self._turn_s, one).calls_per_s)
            before = self._service.rss_mb()
            with hms_load.idle_connections(ours.port, self._idle, one):
                grown_mb = max(grown_mb, self._service.rss_mb() - before)
                beside.append(hms_load.rate(ours.port, CONNECTIONS[-1], self._turn_s, one).calls_per_s)
        self.more["idle_connections"] = self._idle
        self.more["idle_slowdown"] = round(statistics.median(without) / statistics.median(beside), 2)
        self.more["idle_mb"] = grown_mb

    def _add_partitions(self) -> dict[str, float]:
        seconds: dict[str, list[float]] = {system.name: [] for system in self._systems}
        wires: dict[str, tuple[Wire, int]] = {}
        with ExitStack() as stack:
            all_batches = [hms_load.partition_batches(system, self._partitions) for system in self._systems]
            for some in zip(*all_batches, strict=True):
                for system, batch in zip(self._systems, some, strict=True):
                    if system.name not in wires:  # the first call is checked, and is the warm-up
                        one = recorded(system.port, _added(batch))
                        wires[system.name] = (stack.enter_context(closing(Wire(system.port))), one.reply_bytes)
                    else:
                        wire, reply_bytes = wires[system.name]
                        seconds[system.name].append(wire.call(hms_load.add_partitions(batch), reply_bytes))
        return {name: _per_s(times) for name, times in seconds.items()}

    def _in_turns(self, call: Call, connections: int = 1, cpu: str = "") -> dict[str, float]:
        """``cpu`` names the figure of our own processor time for a call."""
        rates: dict[str, list[float]] = {system.name: [] for system in self._systems}
        calls = {system.name: recorded(system.port, call) for system in self._systems}
        for system in self._systems:
            hms_load.rate(system.port, connections, 2 * self._turn_s, calls[system.name])
        made, took_s, client_us = 0, 0.0, list[float]()
        for _ in range(TURNS):
            for system in self._systems:
                before = self._service.cpu_s()
                rate = hms_load.rate(system.port, connections, self._turn_s, calls[system.name])
                rates[system.name].append(rate.calls_per_s)
                if system.name == "ours":
                    made, took_s = made + rate.calls, took_s + self._service.cpu_s() - before
                    client_us.append(rate.client_us)
        if cpu:
            self.more[f"{cpu}_cpu_us"] = max(self.more.get(f"{cpu}_cpu_us", 0.0), round(took_s * 1e6 / made, 1))
            self.more[f"{cpu}_client_us"] = round(statistics.median(client_us), 1)
        return {name: round(statistics.median(turns), 2) for name, turns in rates.items()}

    def _tables(self) -> Figures:
        """Managed tables, whose directories are made and deleted, too."""
        steps = ("create_table", "alter_table", "drop_table")
        seconds = {step: {system.name: list[float]() for system in self._systems} for step in steps}
        replies: dict[tuple[str, str], int] = {}
        with ExitStack() as stack:
            wires = {system.name: stack.enter_context(closing(Wire(system.port))) for system in self._systems}
            for number in range(SMALL_TABLES):
                for system in self._systems:
                    for step, send, call in _table_calls(system, f"small{number:04}"):
                        at = system.name, step
                        if at not in replies:
                            replies[at] = recorded(system.port, call).reply_bytes
                        else:
                            took = wires[system.name].call(hms_load.encoded(send), replies[at])
                            seconds[step][system.name].append(took)
        return {step: {name: _per_s(times) for name, times in of.items()} for step, of in seconds.items()}


def _table_calls(system: System, name: str) -> Iterator[tuple[str, Call, Call]]:
    """For each step: what sends the request, and what makes the whole call."""
    new = hms_load.table(system, name, managed=True)
    altered = hms_load.table(system, name, managed=True, parameters={"altered": "true"})
    yield "create_table", lambda client: client.send_create_table(new), lambda client: client.create_table(new)
    yield (
        "alter_table",
        lambda client: client.send_alter_table(DATABASE, name, altered),
        lambda client: client.alter_table(DATABASE, name, altered),
    )
    yield (
        "drop_table",
        lambda client: client.send_drop_table(DATABASE, name, True),
        lambda client: client.drop_table(DATABASE, name, True),
    )


def _alone(work_dir: Path, ours: System, large: int, objects: int, lookups: int) -> dict[str, float]:
    """What concerns only ours: 100k partitions, and how look-ups grow with what there is besides."""
    figures: dict[str, float] = {}
    if large:
        _make(ours, LARGE, large)
        figures["by_filter_100k_ms"] = round(hms_load.median_s(ours.port, _new_filters(ours, large)) * 1e3, 3)
    if objects:
        figures |= _growth(work_dir, objects, lookups)
    return figures


def _growth(work_dir: Path, objects: int, lookups: int) -> dict[str, float]:
    """How long look-ups among many objects take against those among few, and all names of a table with as many.

    Without the memory for answers, which would not look anything up.
    """
    figures: dict[str, float] = {}
    unkept = {"LAKEMARK_HMS_KEPT_BYTES_MAX": "0"}
    with (
        running_service(work_dir / "few", hms=True, settings=unkept) as few,
        running_service(work_dir / "many", hms=True, settings=unkept) as many,
    ):
        systems = [
            (System("few", few.hms_port, f"file:{work_dir}/few-data"), FEW_OBJECTS),
            (System("many", many.hms_port, f"file:{work_dir}/many-data"), objects),
        ]
        calls: dict[str, list[list[Recorded]]] = {}
        for system, count in systems:
            hms_load.create_table(system)
            _make(system, TABLE, count, new=False)
            calls[system.name] = _lookups(system, count, lookups)
        growth = []
        for kind in range(2):
            times: dict[str, list[float]] = {"few": [], "many": []}
            for turn in range(TURNS + 1):
                for system, _ in systems:
                    median = hms_load.median_s(system.port, calls[system.name][kind])
                    if turn:
                        times[system.name].append(median)
            growth.append(statistics.median(times["many"]) / statistics.median(times["few"]))
        figures["lookup_growth"] = round(max(growth), 3)
        figures["names_s"] = round(hms_load.median_s(many.hms_port, [recorded(many.hms_port, _names(objects))]), 4)
        figures["many_rss_mb"] = many.rss_mb()
    return figures


def _many_tables(work_dir: Path, count: int, lookups: int) -> dict[str, float]:
    """How long it takes to list very many tables, and to look one up among them against one among few."""
    figures: dict[str, float] = {}
    medians: dict[int, float] = {}
    chance = random.Random(11)
    for number in (FEW_OBJECTS, count):
        place = work_dir / str(number)
        system = System("ours", 0, f"file:{place}-data")
        hms_tables.fill(place, system, number)
        with running_service(place, hms=True, settings={"LAKEMARK_HMS_KEPT_BYTES_MAX": "0"}) as service:
            names = [hms_tables.name_of(chance.randrange(number)) for _ in range(lookups)]
            calls = [recorded(service.hms_port, hms_tables.lookup(name)) for name in names]
            medians[number] = min(hms_load.median_s(service.hms_port, calls) for _ in range(TURNS))
            if number == count:
                for figure, call in hms_tables.listings(number).items():
                    one = recorded(service.hms_port, call)
                    figures[figure] = round(hms_load.median_s(service.hms_port, [one] * 3), 4)
                figures["tables_rss_mb"] = service.rss_mb()
    return {"table_lookup_growth": round(medians[count] / medians[FEW_OBJECTS], 3), **figures}


def _make(system: System, name: str, partitions: int, *, new: bool = True) -> None:
    if new:
        with connected(system.port) as client:
            client.create_table(hms_load.table(system, name))
    with closing(Wire(system.port)) as wire:
        reply_bytes = 0
        for batch in hms_load.partition_batches(system, partitions, name):
            if reply_bytes:
                wire.call(hms_load.add_partitions(batch), reply_bytes)
            else:
                reply_bytes = recorded(system.port, _added(batch)).reply_bytes


def _new_filters(system: System, partitions: int) -> list[Recorded]:
    """Filters that select one partition each, of which none was sent before; their replies are equally long."""
    days = partitions // hms_load.HOURS

    def text(number: int) -> str:
        return f'dt = "{hms_load.day(number % days)}" and hour = {number % 90 + 10}'

    first = recorded(system.port, _by_filter(text(0), 1, LARGE))
    return [
        Recorded(
            hms_load.encoded(lambda client, n=n: client.send_get_partitions_by_filter(DATABASE, LARGE, text(n), -1)),  # type: ignore[misc]
            first.reply_bytes,
        )
        for n in range(1, 1 + NEW_FILTERS)
    ]


def _lookups(system: System, partitions: int, count: int) -> list[list[Recorded]]:
    """Of different partitions, each of which is looked up by its values; and of the table."""
    numbers = random.Random(7).sample(range(partitions), count)
    by_values = [recorded(system.port, _one(number)) for number in numbers]
    return [by_values, [recorded(system.port, _get_table)] * count]


def _added(batch: list[Any]) -> Call:
    def call(client: Any) -> None:
        assert client.add_partitions(batch) == len(batch)

    return call


def _get_table(client: Any) -> None:
    assert len(client.get_table(DATABASE, TABLE).sd.cols) == len(hms_load.COLUMNS)


def _by_filter(text: str, selected: int, name: str = TABLE) -> Call:
    def call(client: Any) -> None:
        assert len(client.get_partitions_by_filter(DATABASE, name, text, -1)) == selected

    return call


def _list(partitions: int) -> Call:
    def call(client: Any) -> None:
        assert len(client.get_partitions(DATABASE, TABLE, -1)) == partitions

    return call


def _names(partitions: int) -> Call:
    def call(client: Any) -> None:
        assert len(client.get_partition_names(DATABASE, TABLE, -1)) == partitions

    return call


def _one(number: int) -> Call:
    values = [hms_load.day(number // hms_load.HOURS), str(number % hms_load.HOURS)]

    def call(client: Any) -> None:
        assert client.get_partition(DATABASE, TABLE, values).values == values

    return call


def _per_s(times: list[float]) -> float:
    return round(1 / statistics.median(times), 3) if times else 0.0


def _ratios(figures: Figures) -> dict[str, float]:
    def least(*cases: str) -> float:
        rates = [of for case, of in figures.items() if case.startswith(cases)]
        return round(min(of["ours"] / of["theirs"] for of in rates), 2)

    return {
        "get_table_ratio": least("get_table, 1 "),
        "get_table_16_ratio": least("get_table, 16 "),
        "by_filter_ratio": least("get_partitions_by_filter"),
        "list_partitions_ratio": least("get_partitions,"),
        "add_partitions_ratio": least("add_partitions"),
        "create_drop_ratio": least("create_table", "alter_table", "drop_table"),
    }


def _print_case(case: str, rates: dict[str, float]) -> None:
    theirs = rates.get("theirs")
    ratio = f"{rates['ours'] / theirs:.1f}" if theirs else ""
    print(f"{case:<45} {rates['ours']:>10} {theirs or '':>10} {ratio:>8}", flush=True)


if __name__ == "__main__":
    main()
