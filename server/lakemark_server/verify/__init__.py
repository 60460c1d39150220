"""Every invariant of the key space, checked by reading it; and the data files that its tables need."""

from .files import FilesFound, check_files
from .heads import HeadFiles, Heads
from .store import verify

__all__ = ["FilesFound", "HeadFiles", "Heads", "check_files", "verify"]
