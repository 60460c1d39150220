"""What can be wrong with a backup, or with a store that is made from one."""

from __future__ import annotations

from lakemark_core.errors import FailedPrecondition, Internal, NotFound


class BackupDamaged(Internal):
    """A part of the backup is missing or is not what was written."""

    code = "backup_damaged"
    grpc_status = "DATA_LOSS"


class BackupFormatUnknown(FailedPrecondition):
    """The directory is none of backups, or a newer Lakemark wrote it."""

    code = "backup_format_unknown"


class BackupNotFound(NotFound):
    code = "backup_not_found"


class BackupInUse(FailedPrecondition):
    """Another process writes into the directory."""

    code = "backup_in_use"


class HalfRestored(FailedPrecondition):
    """The store holds a part of a backup; restoring it was begun and has not ended."""

    code = "half_restored"
