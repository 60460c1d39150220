"""The key-value stores side by side: ``scripts/bench kv [--json] [--postgres URL] [--fdb CLUSTER_FILE]``.

Each backend gets a store with 20,000 pairs of 100 bytes. Measured are gets, and ranges of 100 pairs, each in a
transaction of its own; durable commits of one new pair from 1, 16 and 64 threads; read-modify-writes of one hot key
from 16 threads, with all the retries that they need; and additions to one counter. Figures are operations per second.
``group_commit_ratio`` is the throughput of 64 threads divided by that of transactions that are made durable one by one.
``store_processes`` is the throughput of 1, 2 and 4 processes with 16 threads each, for stores that several processes
may share.

With a service on top of each store: the median time of a commit of one file over gRPC from one client;
``service_overhead_ms``, the part of it that is not the store's own commit; ``service_empty_ms``, the time of a request
that gives the service nothing to do; and ``processes``, commits per second of 1, 2 and 4 service processes on one
store, each with 16 writers to a hot table of its own.

For PostgreSQL a server is started in a directory of its own, unless one is named. FoundationDB, for which we have no
group commit, is measured if a cluster is named. All stores should be on the same disk.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Final
from unittest import mock
from uuid import uuid4

from tests.postgres_server import PostgresServer, binaries
from tests.stores import CLUSTER_VARIABLE, SERVER_VARIABLE, with_schema

from benchmarks import kv_service, machine
from lakemark_server.kv import Store, Transaction, group_commit, open_store
from lakemark_server.kv.api import KEYS_END

PAIRS: Final = 20_000
RANGE_PAIRS: Final = 100
CLIENTS: Final = (1, 16, 64)
HOT_CLIENTS: Final = 16
PROCESSES: Final = (1, 2, 4)
SECONDS: Final = 4.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench kv", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    parser.add_argument("--postgres", metavar="URL", default=os.environ.get(SERVER_VARIABLE), help="a server")
    parser.add_argument(
        "--fdb", metavar="CLUSTER_FILE", default=os.environ.get(CLUSTER_VARIABLE), help="of a running cluster"
    )
    arguments = parser.parse_args()
    result: dict[str, Any] = {
        "benchmark": "kv",
        "machine": machine.description(),
        "seconds_each": SECONDS,
        "group_commit_ratio": {},
        "store_processes": {},
        "service_commit_ms": {},
        "service_empty_ms": {},
        "service_overhead_ms": {},
        "processes": {},
        "backends": {},
    }
    with tempfile.TemporaryDirectory(prefix="lakemark-bench-", dir=".") as directory:
        result["machine"]["fsyncs_per_s"] = _fsyncs_per_s(Path(directory))
        work_dir = Path(directory).absolute()
        result["backends"]["sqlite"] = _measure(lambda: open_store(f"sqlite:///{directory}/kv.db"))
        _measure_service(result, "sqlite", work_dir, f"sqlite:///{work_dir}/service.db")
    with _postgres(arguments.postgres) as url:
        if url is not None:
            target = with_schema(url, f"bench_{uuid4().hex[:12]}") + "&connections=80"
            result["backends"]["postgresql"] = _measure(lambda: open_store(target))
            _measure_together(result, "postgresql", target, with_schema(url, f"bench_{uuid4().hex[:12]}"))
    if arguments.fdb is not None:
        target = f"fdb://{Path(arguments.fdb).absolute()}?prefix=bench_{uuid4().hex[:12]}"
        result["backends"]["fdb"] = _measure(lambda: open_store(target), groups=False)
        _measure_together(result, "fdb", target, f"{target}_service")
        _empty(target)
        _empty(f"{target}_service")
    for name, figures in result["backends"].items():
        if "single_commits" in figures:
            result["group_commit_ratio"][name] = round(figures["commits"]["64"] / figures["single_commits"], 2)
        own_ms = figures["commit_ms"]["1"]["p50"]
        result["service_overhead_ms"][name] = round(result["service_commit_ms"][name] - own_ms, 3)
    result["machine"]["load_1min_after"] = round(os.getloadavg()[0], 2)
    _print_table(result)
    if arguments.json:
        print(json.dumps(result))


@contextmanager
def _postgres(url: str | None) -> Iterator[str | None]:
    programs = binaries()
    if url is not None or programs is None:
        yield url
    else:
        with PostgresServer(programs) as server:
            yield server.url


def _measure_together(result: dict[str, Any], name: str, store: str, of_services: str) -> None:
    """Several processes on one store: bare processes, and services on another store like it."""
    result["store_processes"][name] = {str(count): _together(store, count) for count in PROCESSES}
    with tempfile.TemporaryDirectory(prefix="lakemark-bench-") as directory:
        work_dir = Path(directory)
        _measure_service(result, name, work_dir / "single", of_services)
        result["processes"][name] = {
            str(count): kv_service.commits_per_s(work_dir, of_services, count) for count in PROCESSES
        }


def _measure_service(result: dict[str, Any], name: str, work_dir: Path, store: str) -> None:
    trips = kv_service.round_trips(work_dir, store)
    result["service_commit_ms"][name], result["service_empty_ms"][name] = trips


def _empty(url: str) -> None:
    store = open_store(url)
    store.transact(lambda tx: tx.clear_range(b"", KEYS_END))
    store.close()


def _measure(opened: Callable[[], Store], *, groups: bool = True) -> dict[str, Any]:
    store = opened()
    try:
        _fill(store)
        key = [b"key/%06d" % (number * 7919 % PAIRS) for number in range(PAIRS)]
        end = b"key0"
        figures: dict[str, Any] = {
            "gets": _rate(1, lambda _, turn: store.read(lambda tx: tx.get(key[turn % PAIRS])))["per_s"],
            "gets_16": _rate(16, lambda _, turn: store.read(lambda tx: tx.get(key[turn % PAIRS])))["per_s"],
            "ranges": _rate(
                1, lambda _, turn: store.read(lambda tx: tx.get_range(key[turn % PAIRS], end, limit=RANGE_PAIRS))
            )["per_s"],
            "commits": {},
            "commit_ms": {},
        }
        for clients in CLIENTS:
            measured = _rate(clients, _writing(store, f"new/{clients}"))
            figures["commits"][str(clients)] = measured["per_s"]
            figures["commit_ms"][str(clients)] = {"p50": measured["p50_ms"], "p99": measured["p99_ms"]}
        figures["hot_key"] = _rate(HOT_CLIENTS, lambda _client, _turn: store.transact(_hot, attempts_max=10_000))[
            "per_s"
        ]
        figures["counter"] = _rate(HOT_CLIENTS, lambda _c, _t: store.transact(lambda tx: tx.add(b"n", 1)))["per_s"]
    finally:
        store.close()
    if groups:
        with mock.patch.object(group_commit, "BATCH_TRANSACTIONS_MAX", 1):
            store = opened()
            try:
                figures["single_commits"] = _rate(64, _writing(store, "single"))["per_s"]
            finally:
                store.close()
    return figures


def _writing(store: Store, name: str) -> Callable[[int, int], None]:
    def write(client: int, turn: int) -> None:
        store.transact(lambda tx: tx.set(b"%s/%d/%d" % (name.encode(), client, turn), bytes(100)))

    return write


def _together(url: str, processes: int) -> float:
    """Commits per second of all processes."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    with context.Pool(processes, _keep_barrier, (barrier,)) as pool:
        return round(sum(pool.map(_commits_of_process, [(url, number) for number in range(processes)], 1)), 1)


_start: Barrier | None = None  # shared by the processes of one pool


def _keep_barrier(barrier: Barrier) -> None:
    global _start  # noqa: PLW0603 - a barrier can be inherited, and not be sent
    _start = barrier


def _commits_of_process(which: tuple[str, int]) -> float:
    url, number = which
    store = open_store(url)
    try:
        store.transact(lambda tx: tx.add(b"n", 1))
        assert _start is not None
        _start.wait()
        return _rate(HOT_CLIENTS, _writing(store, f"process/{number}/{uuid4().hex}"))["per_s"]
    finally:
        store.close()


def _hot(tx: Transaction) -> None:
    tx.set(b"hot", b"%d" % (int(tx.get(b"hot") or b"0") + 1))


def _fill(store: Store) -> None:
    for start in range(0, PAIRS, 2_000):
        store.transact(
            lambda tx, start=start: [  # type: ignore[misc]
                tx.set(b"key/%06d" % number, bytes(100)) for number in range(start, start + 2_000)
            ]
        )


def _rate(clients: int, work: Callable[[int, int], object]) -> dict[str, float]:
    """Operations per second of all clients together, and the time of one operation."""
    latencies: list[list[float]] = [[] for _ in range(clients)]
    barrier = threading.Barrier(clients + 1)
    over = threading.Event()

    def run(client: int) -> None:
        mine, turn = latencies[client], 0
        barrier.wait()
        while not over.is_set():
            began = time.perf_counter()
            work(client, turn)
            mine.append(time.perf_counter() - began)
            turn += 1

    threads = [threading.Thread(target=run, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    barrier.wait()
    began = time.perf_counter()
    over.wait(SECONDS)
    over.set()
    for thread in threads:
        thread.join()
    passed = time.perf_counter() - began
    every = sorted(latency for mine in latencies for latency in mine)
    cuts = statistics.quantiles(every, n=100)
    return {
        "per_s": round(len(every) / passed, 1),
        "p50_ms": round(cuts[49] * 1_000, 3),
        "p99_ms": round(cuts[98] * 1_000, 3),
    }


def _fsyncs_per_s(directory: Path) -> float:
    """Syncs per second after appending 4 KiB to a file: an upper limit for durable commits one by one."""
    descriptor = os.open(directory / "fsync", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < 1:
            os.write(descriptor, bytes(4_096))
            os.fdatasync(descriptor)
            count += 1
        return round(count / (time.perf_counter() - began), 1)
    finally:
        os.close(descriptor)


def _print_table(result: dict[str, Any]) -> None:
    print(f"operations a second; {result['machine']['fsyncs_per_s']:,.0f} fsyncs/s on this disk")
    for name, figures in result["backends"].items():
        commits = ", ".join(f"{figures['commits'][str(clients)]:,.0f} ({clients})" for clients in CLIENTS)
        print(
            f"{name:>11}: gets {figures['gets']:,.0f}, ranges {figures['ranges']:,.0f}, commits {commits}, "
            f"hot key {figures['hot_key']:,.0f}, counter {figures['counter']:,.0f}"
            + (f", group commit x{result['group_commit_ratio'][name]}" if name in result["group_commit_ratio"] else "")
        )
    for name, taken_ms in result["service_commit_ms"].items():
        print(
            f"{name:>11}: a commit over gRPC {taken_ms} ms, of which the service "
            f"{result['service_overhead_ms'][name]}; an empty request {result['service_empty_ms'][name]} ms"
        )
    for kind, of_what in (("store_processes", "processes"), ("processes", "services")):
        for name, rates in result[kind].items():
            print(f"{name:>11}: commits of " + ", ".join(f"{n} {of_what} {rate:,.0f}" for n, rate in rates.items()))


if __name__ == "__main__":
    main()
