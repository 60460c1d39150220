"""The core that a service runs on: chosen by what runs where, and applied to every thread."""

import os
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakemark_server.host import cores
from lakemark_server.host.cores import Window, choose


@contextmanager
def sleeping_threads(count: int) -> Iterator[None]:
    over = threading.Event()
    threads = [threading.Thread(target=over.wait) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


linux = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs two cores to choose from"
)


@pytest.mark.parametrize(
    ("held", "busy", "own", "chosen"),
    [
        (None, {0: 0.4, 1: 0.1}, 0.3, 1),
        (None, {0: 1.0, 1: 0.0}, 0.0, 1),  # one busy program beside it
        (None, {0: 0.8, 1: 0.9}, 1.2, 0),  # most of it is its own
        (None, {0: 0.9, 1: 0.9}, 0.3, None),
        (1, {0: 1.0, 1: 0.9}, 0.8, 1),  # alone on its core
        (1, {0: 0.1, 1: 0.9}, 0.3, 0),  # another came
        (1, {0: 0.7, 1: 0.9}, 0.3, None),  # nowhere to go
        (2, {0: 0.5, 1: 0.2, 2: 1.0, 3: 0.3}, 0.5, 1),
        (1, {0: 0.0, 1: 0.2}, 0.0, 1),  # it rests, and others may pass
    ],
)
def test_it_runs_on_one_core_as_long_as_there_is_room(
    held: int | None, busy: dict[int, float], own: float, chosen: int | None
) -> None:
    assert choose(held, Window(busy, own)) == chosen


@pytest.mark.parametrize(("services", "machine"), [(2, 2), (3, 4), (8, 8)])
def test_several_services_end_up_on_a_core_each(services: int, machine: int) -> None:
    """Each is busy half of the time; a process that is bound to no core runs on all alike."""
    held: list[int | None] = [None] * services
    turns = random.Random(services)
    for _ in range(200 * services):
        one = turns.randrange(services)
        busy = {
            core: min(
                1.0, sum(0.5 for each in held if each == core) + sum(0.5 / machine for each in held if each is None)
            )
            for core in range(machine)
        }
        held[one] = choose(held[one], Window(busy, 0.5))
    assert None not in held
    assert len(set(held)) == services


@linux
def test_all_threads_run_where_it_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = os.sched_getaffinity(0)
    quiet, full = min(allowed), dict.fromkeys(allowed, 1.0)
    windows = iter(
        [
            Window(full | {quiet: 0.0}, 0.0),  # hold
            Window(full, 0.9),  # stay
            Window(full, 0.1),  # let go
            Window({}, 0.0),  # nothing can be seen any more
        ]
    )
    found = []

    def window(cores: set[int]) -> Window:
        found.append({frozenset(os.sched_getaffinity(thread.native_id or 0)) for thread in threading.enumerate()})
        return next(windows)

    monkeypatch.setattr(cores, "_window", window)
    with sleeping_threads(3):
        cores._keep(allowed)
    one, every = {frozenset({quiet})}, {frozenset(allowed)}
    assert found == [every, one, one, every]


@linux
def test_what_runs_is_seen_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_WINDOW_S", 0.02)
    window = cores._window(os.sched_getaffinity(0))
    assert window.busy.keys() == os.sched_getaffinity(0)
    assert all(0 <= share <= 1 for share in window.busy.values())
    assert window.own >= 0


def test_a_system_that_shows_nothing_leaves_everything_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cores, "_STAT", tmp_path / "stat")
    monkeypatch.setattr(cores, "_run_on", lambda _: pytest.fail("nothing was seen"))
    cores._keep({0, 1})
