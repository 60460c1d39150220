"""Lakemark's client: ``lakemark.connect("127.0.0.1:9090")``.

Further modules: ``lakemark.errors`` (every error), ``lakemark.types`` (columns, schemas), ``lakemark.evolution``
(changes of schemas), ``lakemark.parquet`` (files and their statistics) and ``lakemark.expressions`` (predicates).
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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

_PLACES: Final = {
    "lakemark.client.client": ("Client", "connect"),
    "lakemark.client.comparison": ("Comparison",),
    "lakemark.client.consumers": ("Consumer",),
    "lakemark.client.drops": ("DroppedTable",),
    "lakemark.client.event_stream": ("EventStream",),
    "lakemark.client.events": ("Event",),
    "lakemark.client.model": (
        "Commit",
        "Database",
        "Instant",
        "Merge",
        "Reference",
        "SchemaVersion",
        "Snapshot",
        "SnapshotOf",
        "Table",
        "TableSummary",
        "Version",
    ),
    "lakemark.client.writer": ("Writer",),
    "lakemark.files": ("ColumnStatistics", "DataFile"),
    "lakemark.reading": ("Aggregates", "Changes", "Plan", "PlanSummary"),
    "lakemark_core.errors": ("CommitConflict", "LakemarkError", "UncommittedWarning"),
}
_PLACE_OF: Final = {name: place for place, names in _PLACES.items() for name in names}

if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> object:
        """A public name, or a module of this package, when it is used for the first time.

        Not before: the program ``lakemark`` has to set gRPC's variables before anything imports gRPC.
        """
        if name in _PLACE_OF:
            value = getattr(importlib.import_module(_PLACE_OF[name]), name)
        elif name.isidentifier() and name[0] != "_" and importlib.util.find_spec(f"{__name__}.{name}") is not None:
            value = importlib.import_module(f"{__name__}.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
