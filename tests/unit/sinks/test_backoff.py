"""Pauses between attempts."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from lakemark_server.sinks.backoff import RETRY_AFTER_S_MAX, RetryPauses, retry_after_s

NOW_MS = 1_800_000_000_000


@given(attempt=st.integers(1, 10_000), told_s=st.floats(0, 1e9), seed=st.integers())
def test_a_pause_doubles_within_its_limits_and_honours_what_was_told(attempt: int, told_s: float, seed: int) -> None:
    pause_s = RetryPauses(1.0, 60.0).pause_s(attempt, told_s, random.Random(seed))
    longest = min(60.0, 2.0 ** min(attempt - 1, 10))
    told_s = min(told_s, RETRY_AFTER_S_MAX)
    assert max(longest / 2, told_s) <= pause_s <= max(longest, told_s)


@given(st.text())
def test_whatever_a_receiver_says_is_seconds(value: str) -> None:
    assert 0 <= retry_after_s(value, NOW_MS) <= RETRY_AFTER_S_MAX


def test_seconds_and_dates() -> None:
    assert retry_after_s(None, NOW_MS) == 0
    assert retry_after_s(" 120 ", NOW_MS) == 120
    assert retry_after_s("Fri, 15 Jan 2027 08:00:30 GMT", NOW_MS) == 30
    assert retry_after_s("Fri, 15 Jan 2020 08:00:30 GMT", NOW_MS) == 0
