"""What the pages ask of the service that optimizes tables. Until there is one, its places say so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from lakemark_server.catalog.lake import LakeTable


class OptimizerRun(NamedTuple):
    """A run of the optimizer, past or present. ``state``: in a word. Figures are None while they are not known."""

    begun_ms: int
    ended_ms: int
    kind: str
    state: str
    why: str
    files_before: int | None
    files_after: int | None
    bytes_before: int | None
    bytes_after: int | None


class TableCare(NamedTuple):
    """How a table is looked after: what happens now, why (or why not) in words, and its runs, newest first."""

    group: str
    now: str
    why: Sequence[str]
    runs: Sequence[OptimizerRun]


class OptimizerGroup(NamedTuple):
    """A group of the optimizer, with its workers and what waits for them."""

    name: str
    workers: int
    running: int
    waiting: int
    quota: str


class Management(Protocol):
    """The service that optimizes tables, for readers. Each answer costs what it shows, and no more."""

    def of_table(self, table: LakeTable) -> TableCare | None:
        """None: nothing is known of the table."""

    def groups(self) -> Sequence[OptimizerGroup]:
        """All groups, in order of name."""

    def alarms(self) -> Sequence[str]:
        """What needs a person, in words; the most urgent first."""
