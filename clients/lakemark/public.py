"""The public names of ``lakemark``, which loads this module when the first of them is used."""

from lakemark.client.client import Client, connect
from lakemark.client.comparison import Comparison
from lakemark.client.consumers import Consumer
from lakemark.client.drops import DroppedTable
from lakemark.client.event_stream import EventStream
from lakemark.client.events import Event
from lakemark.client.model import (
    Commit,
    Database,
    Instant,
    Merge,
    Reference,
    SchemaVersion,
    Snapshot,
    SnapshotOf,
    Table,
    TableSummary,
    Version,
)
from lakemark.client.writer import Writer
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
