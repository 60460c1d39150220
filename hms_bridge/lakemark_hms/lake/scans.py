"""Which hidden tables a snapshot needs: one for all file slices, unless their schemas are read differently.

Plain Spark finds the columns of a file by name. A file that was written before a column was renamed or widened has the
old name and type, and one that was written before a column was dropped may have a value under a name that means
something else now. So slices are shown in one hidden table for each group of schemas that are read alike, with the
names and types that its files have, and the view's text makes the version's columns of them (docs/schemas.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakemark_core.evolution import reading_groups, scanned_columns
from lakemark_core.types import Field, Schema
from lakemark_server.file_index.parts.fold import Snapshot


@dataclass(frozen=True, slots=True)
class Scan:
    """One hidden table.

    ``schemas`` has the ids of its files' schemas; if it is empty, files of all schemas belong to it. ``columns`` has
    each data column of the version with the column of the hidden table, which is None if no file has it. ``more`` are
    columns that the files have beside those of their schemas.
    """

    schemas: frozenset[int]
    columns: tuple[tuple[Field, Field | None], ...]
    more: tuple[Field, ...] = ()

    @property
    def data_columns(self) -> tuple[Field, ...]:
        """The columns of the hidden table."""
        return (*(scanned for _, scanned in self.columns if scanned is not None), *self.more)

    @property
    def latest(self) -> int:
        """The highest schema id, which names the group; 0 for the only scan."""
        return max(self.schemas, default=0)

    def of(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with only the files of this scan."""
        if not self.schemas:
            return snapshot
        parts = tuple(part for part in snapshot.parts if part.schema.schema_id in self.schemas)
        return replace(snapshot, parts=parts)


def only_scan(schema: Schema) -> Scan:
    """The scan of a version without files, or whose files all have the version's own schema."""
    return Scan(frozenset(), tuple((column, column) for column in schema.data_columns))


def scans_of(snapshot: Snapshot) -> Sequence[Scan]:
    """The scans that read a snapshot, at least one, in the order of their latest schemas."""
    schemas = {part.schema.schema_id: part.schema for part in snapshot.parts}
    groups = reading_groups(schemas, snapshot.schema)
    if not groups:
        return [only_scan(snapshot.schema)]
    return [Scan(group, tuple(scanned_columns([schemas[one] for one in group], snapshot.schema))) for group in groups]


def is_plain(snapshot: Snapshot) -> bool:
    """Whether a reader that finds columns by the names of the latest schema reads all files exactly."""
    if snapshot.schema.schema_id == 1:
        return True
    if len(scans_of(snapshot)) > 1:
        return False
    stored = {part.schema.schema_id: part.schema for part in snapshot.parts}
    for column, scanned in scanned_columns(list(stored.values()), snapshot.schema):
        if scanned is None:
            if any(schema.find(column.name) is not None for schema in stored.values()):
                return False
        elif scanned.name.lower() != column.name.lower() or scanned.type != column.type:
            return False
    return True


def plain_only(snapshot: Snapshot) -> Snapshot:
    """The snapshot with only the files that a reader by the names of the latest schema reads exactly."""
    parts = tuple(part for part in snapshot.parts if is_plain(replace(snapshot, parts=(part,))))
    return replace(snapshot, parts=parts)
