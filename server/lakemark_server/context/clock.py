"""Wall time in milliseconds, replaceable in tests."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from typing import Final

ClockMs = Callable[[], int]

TIME_MS_MAX: Final = 253_402_300_799_000
"""The last second of the year 9999. Later times stand for "never": calendars end there, stored numbers soon after."""


def now_ms() -> int:
    """Milliseconds since 1970, in UTC."""
    return time.time_ns() // 1_000_000


def time_text(ms: int) -> str:
    """The time in UTC, for messages; the milliseconds themselves if they are out of the calendar's range."""
    try:
        return dt.datetime.fromtimestamp(ms / 1_000, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
