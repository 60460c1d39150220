"""What a worker needs of whoever does a task."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

from lakemark import Client
from lakemark.client.optimization import OptimizationTask, Outcome
from lakemark.reading.partitions import partitions_predicate
from lakemark_core.errors import CommitConflict
from lakemark_core.types import values_of_partition

METADATA: str = "lakemark.optimizer"
"""Of the version that a task commits: its kind."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a task ended. ``version`` 0: nothing was committed."""

    outcome: Outcome
    message: str = ""
    version: int = 0


class Executor(Protocol):
    """Does tasks, several at once."""

    name: str

    def run(self, task: OptimizationTask, cancelled: threading.Event) -> Result:
        """Does the task to its end. ``cancelled``: it has been given to another one, and need not be finished.

        Raises CommitConflict (a writer was first), and whatever else goes wrong.
        """

    def close(self) -> None:
        """Frees what it holds."""


def where_of(client: Client, task: OptimizationTask) -> str | None:
    """The predicate that chooses the files of the task's partition; None: the table has no partitions."""
    if not task.partition:
        return None
    schema = client.snapshot(task.table, version=task.read_version).schema
    return partitions_predicate([values_of_partition(task.partition, schema)], schema)


def conflict(error: CommitConflict) -> Result:
    """A writer was first."""
    return Result("conflicted", error.message)
