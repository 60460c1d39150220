"""How many locks and transactions a store has."""

from __future__ import annotations

from typing import Final

from lakemark_server.store.counts import Counts
from lakemark_server.store.keyspace import TXN_COUNTS

LOCKS: Final = "locks"
COMPONENTS: Final = "components"
OPEN: Final = "open"
ABORTED: Final = "aborted"
TABLES: Final = "tables"

_FREED: Final = "locks are freed by unlock, or when their holders are silent for too long"

_counts: Final = Counts(
    TXN_COUNTS,
    {
        LOCKS: ("locks", _FREED),
        COMPONENTS: ("things locked", _FREED),
        OPEN: ("open transactions", "commit some or abort them"),
        ABORTED: ("aborted transactions that have written", "drop the tables that they have written to"),
        TABLES: ("tables with write ids", "drop some"),
    },
)
add, read, check = _counts.add, _counts.read, _counts.check
