"""What changed between two versions, as a snapshot of the added files and one of the removed files.

It is the net change: a file that came and went in between, or went and came back, is in neither. Rewritten rows count
as removed and added.
"""

from __future__ import annotations

from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_server.file_index.parts.locate import difference


def added_between(older: Snapshot, newer: Snapshot) -> Snapshot:
    """The files of ``newer`` that ``older`` does not have, with the schema of ``newer``."""
    fresh = [part.masked(part.column("added_version").to_numpy() > older.version) for part in newer.parts]
    # Files that a restore or a merge brought back have a newer version, but were there before.
    parts = difference([part for part in fresh if part is not None], older.parts)
    return Snapshot(newer.version, newer.schema, tuple(parts), newer.record)


def removed_between(older: Snapshot, newer: Snapshot) -> Snapshot:
    """The files of ``older`` that ``newer`` no longer has, with the schema of ``newer``."""
    return Snapshot(older.version, newer.schema, tuple(difference(older.parts, newer.parts)), older.record)
