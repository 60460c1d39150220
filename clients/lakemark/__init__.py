"""Lakemark's client: ``lakemark.connect("127.0.0.1:9090")``.

Further modules: ``lakemark.errors`` (every error), ``lakemark.types`` (columns, schemas), ``lakemark.evolution``
(changes of schemas), ``lakemark.parquet`` (files and their statistics) and ``lakemark.expressions`` (predicates).
"""

from lakemark.client import (
    Client,
    Commit,
    Comparison,
    Consumer,
    Database,
    DroppedTable,
    Event,
    EventStream,
    Instant,
    Merge,
    Reference,
    SchemaVersion,
    Snapshot,
    SnapshotOf,
    Table,
    TableSummary,
    Version,
    Writer,
    connect,
)
from lakemark.files import ColumnStatistics, DataFile
from lakemark.reading import Aggregates, Changes, Plan, PlanSummary
from lakemark_core.errors import CommitConflict, LakemarkError, UncommittedWarning

__all__ = [
    "Aggregates",
    "Changes",
    "Client",
    "ColumnStatistics",
    "Commit",
    "CommitConflict",
    "Comparison",
    "Consumer",
    "DataFile",
    "Database",
    "DroppedTable",
    "Event",
    "EventStream",
    "Instant",
    "LakemarkError",
    "Merge",
    "Plan",
    "PlanSummary",
    "Reference",
    "SchemaVersion",
    "Snapshot",
    "SnapshotOf",
    "Table",
    "TableSummary",
    "UncommittedWarning",
    "Version",
    "Writer",
    "connect",
]
