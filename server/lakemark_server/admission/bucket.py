"""A token bucket: it limits a rate on average, and how many may come at once after a pause."""

from __future__ import annotations

from typing import Final

_LEAST: Final = 1e-9  # what rounding may cost a token


class TokenBucket:
    """Pure: the caller passes the time, in seconds that never go back. A new bucket is full."""

    __slots__ = ("_at_s", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now_s: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at_s = now_s

    def take(self, now_s: float, reserve: float = 0.0) -> float:
        """Takes a token and returns 0.0, or returns the seconds until there is one (``inf``: there never will be).

        ``reserve``: tokens that stay in the bucket for others.
        """
        self._tokens = min(self._burst, self._tokens + (now_s - self._at_s) * self._rate)
        self._at_s = now_s
        missing = reserve + 1.0 - self._tokens
        if missing <= _LEAST:
            self._tokens -= 1.0
            return 0.0
        if self._rate <= 0.0 or reserve + 1.0 > self._burst:
            return float("inf")
        return missing / self._rate

    def reshape(self, rate: float, burst: float, now_s: float) -> None:
        """Changes the limits. Tokens that were taken stay taken: a larger bucket has more left, a smaller one less."""
        missing = self._burst - min(self._burst, self._tokens + (now_s - self._at_s) * self._rate)
        self._tokens = max(0.0, burst - missing)
        self._rate, self._burst, self._at_s = rate, burst, now_s
