"""Backup and restore: consistent copies of a whole store in a directory, and stores made from them."""

from __future__ import annotations

from .capture import take
from .errors import BackupDamaged, BackupFormatUnknown, BackupNotFound, HalfRestored
from .manifest import DataNeeded, Manifest
from .marker import refuse_half_restored
from .repository import Repository
from .restoration import restore, start_over

__all__ = [
    "BackupDamaged",
    "BackupFormatUnknown",
    "BackupNotFound",
    "DataNeeded",
    "HalfRestored",
    "Manifest",
    "Repository",
    "refuse_half_restored",
    "restore",
    "start_over",
    "take",
]
