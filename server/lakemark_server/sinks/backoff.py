"""How long to wait after an attempt that failed."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

RETRY_AFTER_S_MAX: Final = 3_600.0
"""A receiver can ask for so long a pause. Longer ones are cut."""


@dataclass(frozen=True, slots=True)
class RetryPauses:
    """Pauses double from ``first_s`` to ``most_s``; each is shortened by chance, to a half at most.

    So receivers that come back are not asked by everybody at once.
    """

    first_s: float = 1.0
    most_s: float = 60.0

    def pause_s(self, attempt: int, told_s: float, chance: random.Random) -> float:
        """Seconds after this attempt (1: the first), and no fewer than the receiver told."""
        longest = min(self.most_s, self.first_s * 2.0 ** min(attempt - 1, 60))
        return max(longest * chance.uniform(0.5, 1.0), min(told_s, RETRY_AFTER_S_MAX))


def retry_after_s(value: str | None, now_ms: int) -> float:
    """Seconds in a header Retry-After, which has seconds or a date; 0 if it is absent, past or neither."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), RETRY_AFTER_S_MAX)
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return 0.0
    if until.tzinfo is None:
        until = until.replace(tzinfo=dt.UTC)
    return min(max(0.0, until.timestamp() - now_ms / 1_000), RETRY_AFTER_S_MAX)
