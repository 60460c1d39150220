"""Lakemark's client: ``lakemark.connect("127.0.0.1:9090")``.

Further modules: ``lakemark.errors`` (every error), ``lakemark.types`` (columns, schemas), ``lakemark.evolution``
(changes of schemas), ``lakemark.parquet`` (files and their statistics) and ``lakemark.expressions`` (predicates).
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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

_OUTSIDE_CLIENT: Final = {
    "Aggregates": "lakemark.reading",
    "Changes": "lakemark.reading",
    "ColumnStatistics": "lakemark.files",
    "CommitConflict": "lakemark_core.errors",
    "DataFile": "lakemark.files",
    "LakemarkError": "lakemark_core.errors",
    "Plan": "lakemark.reading",
    "PlanSummary": "lakemark.reading",
    "UncommittedWarning": "lakemark_core.errors",
}


def __getattr__(name: str) -> object:
    """A public name, or a module of this package, when it is used for the first time.

    Not before: the program ``lakemark`` has to set gRPC's variables before anything imports gRPC.
    """
    if name in __all__:
        value: object = getattr(importlib.import_module(_OUTSIDE_CLIENT.get(name, "lakemark.client")), name)
    elif not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is not None:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
