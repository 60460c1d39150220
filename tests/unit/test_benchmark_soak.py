"""The verdict of the ``soak`` benchmark, on minutes made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.soak import verdict

MINUTES = 30


def minutes(**at: Any) -> list[dict[str, Any]]:
    """``at``: a figure by the number of the minute; those that are not given stay as they are."""
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
    assert trend == {"first": 300, "steady": 322, "per_hour": 60.0}


def test_a_short_run_is_not_judged() -> None:
    found = verdict(minutes(rss_mb=lambda n: 300 + 9 * n)[:20])
    assert (found["memory_flat"], found["latency_flat"], found["not_flat"]) == (None, None, [])
    assert found["trends"]["rss_mb"] == {"first": 300}
