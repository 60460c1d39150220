"""The token bucket, on a clock that tests move."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_server.admission.bucket import TokenBucket

RATES = st.floats(0.1, 1_000)
BURSTS = st.integers(1, 100)
STEPS = st.lists(st.floats(0, 10), max_size=100)


def test_a_burst_and_then_the_rate() -> None:
    bucket = TokenBucket(10.0, 3, 0.0)
    assert [bucket.take(0.0) for _ in range(4)] == [0.0, 0.0, 0.0, pytest.approx(0.1)]
    assert bucket.take(0.05) == pytest.approx(0.05)
    assert bucket.take(0.1) == 0.0
    assert bucket.take(0.1) > 0.0


def test_a_pause_fills_it_up_to_the_burst() -> None:
    bucket = TokenBucket(10.0, 3, 0.0)
    taken = sum(bucket.take(1_000.0) == 0.0 for _ in range(10))
    assert taken == 3


def test_a_reserve_is_left_for_others() -> None:
    bucket = TokenBucket(1.0, 4, 0.0)
    assert [bucket.take(0.0, reserve=2) for _ in range(3)] == [0.0, 0.0, 1.0]
    assert [bucket.take(0.0) for _ in range(3)] == [0.0, 0.0, 1.0]


def test_what_never_comes() -> None:
    assert TokenBucket(0.0, 0, 0.0).take(1e9) == math.inf
    assert TokenBucket(5.0, 2, 0.0).take(0.0, reserve=2) == math.inf
    once = TokenBucket(0.0, 1, 0.0)
    assert (once.take(0.0), once.take(1e9)) == (0.0, math.inf)


def test_new_limits_hold_at_once_and_what_was_taken_stays_taken() -> None:
    bucket = TokenBucket(1.0, 10, 0.0)
    assert [bucket.take(0.0) for _ in range(2)] == [0.0, 0.0]
    bucket.reshape(1.0, 3, 0.0)
    assert [bucket.take(0.0) for _ in range(2)] == [0.0, 1.0]
    bucket.reshape(4.0, 5, 0.0)
    assert [bucket.take(0.0) for _ in range(3)] == [0.0, 0.0, 0.25]
    bucket.reshape(0.0, 0, 0.0)
    assert bucket.take(0.0) == math.inf
    bucket.reshape(1.0, 1, 0.0)
    assert [bucket.take(0.0) for _ in range(2)] == [0.0, 1.0], "an operator's change holds at once"


@given(RATES, BURSTS, STEPS)
def test_never_more_than_the_burst_and_the_rate_allow(rate: float, burst: int, steps: list[float]) -> None:
    """In every interval, not only over the whole time."""
    bucket, now, taken = TokenBucket(rate, burst, 0.0), 0.0, list[float]()
    for step in steps:
        now += step
        while bucket.take(now) == 0.0 and len(taken) < 500:
            taken.append(now)
    for at, since in enumerate(taken):
        for further in range(at, len(taken)):
            assert further - at + 1 <= burst + rate * (taken[further] - since) + 1e-3


@given(RATES, BURSTS, STEPS)
def test_who_comes_back_after_the_time_that_was_named_gets_a_token(rate: float, burst: int, steps: list[float]) -> None:
    bucket, now = TokenBucket(rate, burst, 0.0), 0.0
    for step in steps:
        now += step
        wait = bucket.take(now)
        assert wait >= 0.0
        if wait:
            now += wait
            assert bucket.take(now + 1e-6) == 0.0
