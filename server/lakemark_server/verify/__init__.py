"""Checks every invariant of the key space by reading it, and that the data files that tables need are there."""

from .files import FilesFound, check_files
from .heads import HeadFiles, Heads
from .store import verify

__all__ = ["FilesFound", "HeadFiles", "Heads", "check_files", "verify"]
