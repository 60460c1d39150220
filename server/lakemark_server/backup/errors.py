"""Errors of backups, and of stores that are made from them."""

from __future__ import annotations

from lakemark_core.errors import FailedPrecondition, Internal, NotFound


class BackupDamaged(Internal):
    """A part of the backup is missing, or is not what was written."""

    code = "backup_damaged"
    grpc_status = "DATA_LOSS"


class BackupFormatUnknown(FailedPrecondition):
    """A newer Lakemark wrote the backup."""

    code = "backup_format_unknown"


class BackupNotFound(NotFound):
    code = "backup_not_found"


class BackupInUse(FailedPrecondition):
    """Another process writes into the directory."""

    code = "backup_in_use"


class HalfRestored(FailedPrecondition):
    """The store holds a part of a backup, whose restore has not ended."""

    code = "half_restored"
