"""Every invariant of the key space, checked by reading it."""

from .store import verify

__all__ = ["verify"]
