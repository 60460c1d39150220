"""Schema evolution: the changes of a schema, which of them are legal, and how older files are read after them."""

from lakemark_core.evolution.changes import (
    AddColumn,
    CommentColumn,
    DropColumn,
    MoveColumn,
    RelaxColumn,
    RenameColumn,
    SchemaChange,
    WidenColumn,
)
from lakemark_core.evolution.file_schemas import (
    read_alike,
    readable_with,
    reading_groups,
    scanned_columns,
    source_of,
    sources_of,
)
from lakemark_core.evolution.paths import format_path, parse_path
from lakemark_core.evolution.widening import keeps_text, why_not_widen

__all__ = [
    "AddColumn",
    "CommentColumn",
    "DropColumn",
    "MoveColumn",
    "RelaxColumn",
    "RenameColumn",
    "SchemaChange",
    "WidenColumn",
    "format_path",
    "keeps_text",
    "parse_path",
    "read_alike",
    "readable_with",
    "reading_groups",
    "scanned_columns",
    "source_of",
    "sources_of",
    "why_not_widen",
]
