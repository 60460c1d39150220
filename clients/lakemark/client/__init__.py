"""The client of the service: catalog, writers, timeline, plans."""

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

__all__ = [
    "Client",
    "Commit",
    "Comparison",
    "Consumer",
    "Database",
    "DroppedTable",
    "Event",
    "EventStream",
    "Instant",
    "Merge",
    "Reference",
    "SchemaVersion",
    "Snapshot",
    "SnapshotOf",
    "Table",
    "TableSummary",
    "Version",
    "Writer",
    "connect",
]
