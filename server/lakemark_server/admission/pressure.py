"""A bound on the bytes of all requests in progress, of all tenants together: memory is reserved before it is used."""

from __future__ import annotations

import threading
from typing import Final

from lakemark_server.admission.tenants import overloaded

_RETRY_MS: Final = 100


class InflightBytes:
    """Thread-safe. A request of any size is let in when no other is in progress, or it never would be."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._bytes = 0

    @property
    def now(self) -> int:
        return self._bytes

    def enter(self, size_bytes: int) -> None:
        """Counts the bytes of a request until ``leave``. Raises Overloaded."""
        with self._lock:
            total = self._bytes + size_bytes
            if total > self.most and self._bytes:
                raise overloaded(
                    f"requests of {self._bytes:,} bytes are being worked on; {size_bytes:,} more would be above the "
                    f"limit of {self.most:,}",
                    _RETRY_MS,
                    limit="max_inflight_bytes",
                    allowed=str(self.most),
                )
            self._bytes = total

    def leave(self, size_bytes: int) -> None:
        with self._lock:
            self._bytes -= size_bytes
