"""Histories of concurrent clients are strictly serializable: on failing stores, and with kill -9 of the service."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakemark_server.kv import Store, open_store
from lakemark_server.process import Service
from lakemark_server.settings import Settings
from lakemark_server.verify import verify
from tests.event_replay import replay_problems
from tests.fault.history_end import history
from tests.fault.history_load import Load
from tests.fault.killable import Killable
from tests.faulty_store import Faults, FaultyStore, Rates
from tests.history_checker import check
from tests.lengths import long, slow
from tests.stores import STORE_VARIABLE, store_url

SERVICES = 2
SQLITE = os.environ.get(STORE_VARIABLE, "sqlite") == "sqlite"
RATES = Rates(
    unavailable=0.002, too_old=0.002, conflict=0.05, expired=0.02, unknown_lost=0.05, unknown_done=0.1, disk_full=0.03
)


def judge(store: Store, load: Load) -> None:
    found = history(store, load.recorder.operations())
    print(Counter((one.what.split()[0], one.outcome) for one in found.operations))
    print({place: len(listed) for place, listed in found.versions.items()}, "unanswered", load.unanswered)
    assert check(found) == []
    assert verify(store) + replay_problems(store) == []
    assert sum(map(len, found.versions.values())) > len(found.operations) // 8, "hardly anything was committed"


@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        (1, 130),
        (2, 130),
        *(pytest.param(seed, 3_000, marks=slow(1_800)) for seed in range(3, 3 + long(1))),
    ],
)
def test_several_services_on_a_store_that_fails(tmp_path: Path, seed: int, steps: int) -> None:
    faults = Faults(seed, RATES)
    with ExitStack() as cleanup:
        # SQLite is for one process: the services share its store, but have their own caches, queues and faults.
        shared = open_store(store_url(tmp_path))
        cleanup.callback(shared.close)
        services = []
        for _ in range(SERVICES):
            inner = shared
            if not SQLITE:
                inner = open_store(store_url(tmp_path))
                cleanup.callback(inner.close)
            with faults.quiet():
                service = Service(_settings(tmp_path), FaultyStore(inner, faults))
            service.start()
            cleanup.callback(service.stop)
            services.append(service)
        load = Load([lambda one=one: one.grpc_address for one in services], seed, steps)  # type: ignore[misc]
        load.create()
        load.run()
        with faults.quiet():
            judge(shared, load)
    assert len(faults.counts()) > 4, "hardly any fault was tried"


@pytest.mark.parametrize(
    ("seed", "steps", "kills"),
    [(3, 110, 2), pytest.param(8, long(2_000), long(20), marks=slow(1_800))],
)
def test_the_service_is_killed_and_comes_back(tmp_path: Path, seed: int, steps: int, kills: int) -> None:
    """Of two services on a store that has room for two, they are killed in turn."""
    services = [Killable(store_url(tmp_path), f"{tmp_path}/warehouse") for _ in range(1 if SQLITE else SERVICES)]
    turn = 0

    def kill() -> None:
        nonlocal turn
        turn += 1
        victim = services[turn % len(services)]
        victim.kill()
        victim.start()

    try:
        for service in services:
            service.start()
        load = Load([service.address for service in services], seed, steps)
        load.create()
        load.run(kill, kills)
    finally:
        for service in services:
            service.end()
    assert load.unanswered, "no request was cut off: nothing was tested"
    store = open_store(store_url(tmp_path))
    try:
        judge(store, load)
    finally:
        store.close()


def _settings(directory: Path) -> Settings:
    return Settings(
        store=store_url(directory),
        warehouse=str(directory / "warehouse"),
        grpc_port=0,
        hms_enabled=False,
        sweep_interval_s=3_600,
        log_level="error",
    )
