"""Data files as clients see them: plain objects, protobuf messages and Arrow columns."""

from lakemark.files.columns import ENTRY_FIELDS, files_from_arrow, files_to_arrow
from lakemark.files.messages import file_from_message, file_to_message, files_message
from lakemark.files.model import ColumnStatistics, DataFile, groups_of, without_settled_deletes

__all__ = [
    "ENTRY_FIELDS",
    "ColumnStatistics",
    "DataFile",
    "file_from_message",
    "file_to_message",
    "files_from_arrow",
    "files_message",
    "files_to_arrow",
    "groups_of",
    "without_settled_deletes",
]
