"""The verdict of the ``soak`` benchmark, on artificial minutes."""

from __future__ import annotations

import random
import statistics
from typing import Any

import pytest
from benchmarks.soak import chance, slope, verdict

MINUTES = 30


def minutes(**at: Any) -> list[dict[str, Any]]:
    """``at``: figures by the number of the minute; the others stay the same."""
    return [
        {
            "at_s": 60.0 * (number + 1),
            "rss_mb": at.get("rss_mb", lambda _: 300)(number),
            "fds": at.get("fds", lambda _: 50)(number),
            "threads": 80,
            "cpu_share": at.get("cpu_share", lambda _: 0.3)(number),
            "latency_ms": {
                "commit": {
                    "count": at.get("count", lambda _: 900)(number),
                    "p50": at.get("p50", lambda _: 4.0)(number),
                    "p99": at.get("p99", lambda _: 12.0)(number),
                }
            },
        }
        for number in range(MINUTES)
    ]


@pytest.mark.parametrize(
    "at",
    [
        {},
        {"rss_mb": lambda n: 120 + 12 * min(n, 15), "p50": lambda n: 4.0 + 0.2 * min(n, 15)},  # while caches fill
        {"rss_mb": lambda n: 900 if n == 29 else 300, "p50": lambda n: 90.0 if n == 25 else 4.0},  # one bad minute
        {"rss_mb": lambda n: 300 + (n * 7) % 11, "p50": lambda n: 4.0 + (n * 7) % 11 / 10},  # up and down
        {"p50": lambda n: 4.0 + n * 0.01},
        {"fds": lambda n: 50 + n // 20},  # a connection more
        {"count": lambda _: 20, "p99": lambda n: 12.0 + n},  # of so few it is the slowest
        {"rss_mb": lambda n: 400 - n},
        {"rss_mb": lambda n: 302 if n < 22 else 310},  # one step of an allocator
    ],
)
def test_flat(at: dict[str, Any]) -> None:
    found = verdict(minutes(**at))
    assert (found["memory_flat"], found["latency_flat"], found["not_flat"]) == (True, True, [])


@pytest.mark.parametrize(
    ("at", "name"),
    [
        ({"rss_mb": lambda n: 300 + 2 * n}, "rss_mb"),
        ({"rss_mb": lambda n: 300 + n + (n * 7) % 11}, "rss_mb"),
        ({"fds": lambda n: 50 + n}, "fds"),
        ({"cpu_share": lambda n: 0.2 + 0.005 * n}, "cpu_share"),
        ({"p50": lambda n: 4.0 + 0.1 * n}, "commit p50_ms"),
        ({"p99": lambda n: 12.0 + n}, "commit p99_ms"),
    ],
)
def test_not_flat(at: dict[str, Any], name: str) -> None:
    found = verdict(minutes(**at))
    assert found["not_flat"] == [name]
    assert found["memory_flat"] == (name != "rss_mb")
    assert found["latency_flat"] == (not name.startswith("commit"))


def test_slopes_are_per_hour() -> None:
    trend = verdict(minutes(rss_mb=lambda n: 300 + n))["trends"]["rss_mb"]
    assert trend == {"first": 300, "steady": 322, "per_hour": 60.0, "chance": 0.0}


def test_a_short_run_is_not_judged() -> None:
    found = verdict(minutes(rss_mb=lambda n: 300 + 9 * n)[:20])
    assert (found["memory_flat"], found["latency_flat"], found["not_flat"]) == (None, None, [])
    assert found["trends"]["rss_mb"] == {"first": 300}


def test_medians_of_few_requests_that_go_up_and_down_are_flat_whatever_their_slope() -> None:
    """Like schema changes, of which there are six a minute: 26 ms, plus or minus a third."""

    def noisy(grows_ms: float, seed: int) -> dict[str, Any]:
        chance = random.Random(seed)
        medians = [
            statistics.median(chance.gauss(26, 9) for _ in range(6)) + grows_ms * minute / 15
            for minute in range(MINUTES)
        ]
        return verdict(minutes(p50=medians.__getitem__))

    level = [noisy(0, seed) for seed in range(100)]
    steep = [one for one in level if one["trends"]["commit p50_ms"]["per_hour"] > 0.5 * 26]
    assert len(steep) > 10, "the slope alone would not do"
    assert sum(bool(one["not_flat"]) for one in level) <= 3
    assert sum(bool(noisy(20, seed)["not_flat"]) for seed in range(100)) >= 95


def test_what_rises_by_chance() -> None:
    rising = [(float(at), float(at)) for at in range(10)]
    assert chance(rising) < 0.0001
    assert chance([(at, -value) for at, value in rising]) > 0.9999
    assert chance([(at, 7.0) for at, _ in rising]) == slope([(at, 7.0) for at, _ in rising]) + 0.5
    # Five figures, all rising: Kendall's S is 10, which one in 120 orders has; by the normal distribution 0.0138.
    assert chance(rising[:5]) == pytest.approx(0.0138, abs=0.0001)
