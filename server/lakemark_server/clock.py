"""Wall time in milliseconds, replaceable in tests."""

from __future__ import annotations

import time
from collections.abc import Callable

ClockMs = Callable[[], int]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
