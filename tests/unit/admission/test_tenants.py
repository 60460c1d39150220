"""Rate and concurrency of tenants, and bytes in flight: which requests are admitted, and what the others are told."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakemark_core.errors import Overloaded
from lakemark_server.admission import tenants as module
from lakemark_server.admission.limits import Limits
from lakemark_server.admission.pressure import InflightBytes
from lakemark_server.admission.ranks import Rank
from lakemark_server.admission.tenants import RETRY_MS_MAX, RETRY_MS_MIN, Tenants


class World:
    """Tenants on a clock that stands still, with limits that a test may change."""

    def __init__(self, **limits: float) -> None:
        self.now = 0.0
        self.limits = Limits(**limits)  # type: ignore[arg-type]
        self.tenants = Tenants(lambda _: self.limits, lambda: self.now)

    def delay_ms(self, rank: Rank = Rank.READ, catalog: str = "hive") -> int:
        with pytest.raises(Overloaded) as refused:
            self.tenants.enter(catalog, rank)
        return int(refused.value.details["retry_after_ms"])


def test_writes_leave_the_last_of_the_running_to_reads() -> None:
    world = World(concurrent_requests=8)
    writes = [world.tenants.enter("hive", Rank.WRITE) for _ in range(7)]
    world.delay_ms(Rank.WRITE)
    read = world.tenants.enter("hive", Rank.READ)
    with pytest.raises(
        Overloaded, match=r"8 requests of catalog 'hive' wait or run .* quota of concurrent requests is 8"
    ) as no:
        world.tenants.enter("hive", Rank.READ)
    assert no.value.details["limit"] == "concurrent_requests"
    assert world.tenants.seen("hive") == (8, 2)

    world.tenants.leave(read)
    world.delay_ms(Rank.WRITE)
    world.tenants.leave(writes[0])
    world.tenants.enter("hive", Rank.WRITE)


def test_writes_leave_the_last_of_the_rate_to_reads() -> None:
    world = World(requests_per_second=10.0, request_burst=16)
    for _ in range(15):
        world.tenants.leave(world.tenants.enter("hive", Rank.WRITE))
    assert 100 <= world.delay_ms(Rank.WRITE) <= 125
    world.tenants.leave(world.tenants.enter("hive", Rank.READ))
    assert 100 <= world.delay_ms(Rank.READ) <= 125
    world.now += 0.1
    world.tenants.enter("hive", Rank.READ)


def test_one_tenant_is_not_held_back_by_another() -> None:
    world = World(concurrent_requests=1)
    world.tenants.enter("a", Rank.READ)
    world.delay_ms(catalog="a")
    world.tenants.enter("b", Rank.READ)


def test_delays_are_bounded() -> None:
    world = World(requests_per_second=0.001, request_burst=1)
    world.tenants.enter("hive", Rank.READ)
    assert RETRY_MS_MAX <= world.delay_ms() <= RETRY_MS_MAX * 1.25
    world.limits = Limits(requests_per_second=1e6, request_burst=1)
    assert RETRY_MS_MIN <= world.delay_ms() <= RETRY_MS_MIN * 1.25


def test_the_delay_of_a_full_tenant_follows_how_long_its_requests_take() -> None:
    world = World(concurrent_requests=1)
    for _ in range(100):
        entered = world.tenants.enter("hive", Rank.READ)
        world.now += 2.0
        world.tenants.leave(entered)
    world.tenants.enter("hive", Rank.READ)
    assert 1_900 <= world.delay_ms() <= 2_500


def test_new_limits_hold_for_the_next_request() -> None:
    world = World(concurrent_requests=2)
    world.tenants.enter("hive", Rank.READ)
    world.limits = Limits(concurrent_requests=1)
    world.delay_ms()
    world.limits = Limits(concurrent_requests=0)
    world.delay_ms(catalog="other")


def test_names_that_are_made_up_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TENANTS_MAX", 3)
    world = World()
    kept = world.tenants.enter("busy", Rank.READ)
    for number in range(100):
        world.tenants.leave(world.tenants.enter(f"c{number}", Rank.READ))
    assert len(world.tenants._traffic) == 3
    assert world.tenants.seen("busy") == (1, 0)
    world.tenants.leave(kept)


def test_many_threads_never_run_more_than_allowed() -> None:
    world = World(concurrent_requests=4, requests_per_second=1e9, request_burst=1 << 40)
    lock, running, most, start = threading.Lock(), 0, 0, threading.Barrier(16)

    def work(_: int) -> None:
        nonlocal running, most
        start.wait(60)
        for _ in range(300):
            try:
                entered = world.tenants.enter("hive", Rank.READ)
            except Overloaded:
                continue
            with lock:
                running += 1
                most = max(most, running)
            with lock:
                running -= 1
            world.tenants.leave(entered)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    assert 0 < most <= 4
    assert world.tenants.seen("hive")[0] == 0


def test_bytes_in_flight_are_bounded_and_a_large_request_still_gets_its_turn() -> None:
    inflight = InflightBytes(100)
    inflight.enter(60)
    with pytest.raises(Overloaded, match="60 bytes are being worked on; 41 more"):
        inflight.enter(41)
    inflight.enter(40)
    inflight.leave(60)
    inflight.leave(40)
    inflight.enter(1_000)
    with pytest.raises(Overloaded):
        inflight.enter(1)
    inflight.leave(1_000)
    assert inflight.now == 0


def test_a_request_that_is_answered_at_once_counts_against_the_rate_only() -> None:
    world = World(requests_per_second=10, request_burst=3, concurrent_requests=1)
    assert not world.tenants.pass_through("hive", Rank.READ), "the tenant is not known yet"
    world.tenants.leave(world.tenants.enter("hive", Rank.READ))
    assert [world.tenants.pass_through("hive", Rank.READ) for _ in range(3)] == [True, True, False]
    assert world.tenants.seen("hive") == (0, 0), "who is sent on to be refused is counted there"
    world.now = 1.0
    entered = world.tenants.enter("hive", Rank.READ)
    assert not world.tenants.pass_through("hive", Rank.READ), "another one runs"
    world.tenants.leave(entered)
    assert world.tenants.pass_through("hive", Rank.READ)
    world.limits = Limits(requests_per_second=0, request_burst=0)
    assert not world.tenants.pass_through("hive", Rank.READ)
