"""How much of locks and transactions there may be, and for how long a holder may be silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

COMPONENTS_OF_LOCK_MAX: Final = 10_000
LOCK_BYTES_MAX: Final = 1_000_000
"""Of what one lock, or all locks of one transaction, are on: they are freed in one transaction of the store."""
TARGET_BYTES_MAX: Final = 1_000_000
"""The same of what a transaction updates or deletes."""
TABLES_OF_TRANSACTION_MAX: Final = 10_000
NAME_CHARS_MAX: Final = 128
PARTITION_CHARS_MAX: Final = 2_000
TEXT_CHARS_MAX: Final = 1_000
"""Of a user, a host, what a client says of itself. Longer ones are cut."""
OPENED_AT_ONCE_MAX: Final = 1_000
"""As Hive (hive.txn.max.open.batch): whoever asks for more gets so many."""
TRANSACTIONS_OF_REQUEST_MAX: Final = 10_000
TABLES_OF_REQUEST_MAX: Final = 1_000
PARTITIONS_OF_REQUEST_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """``timeout_ms``: after this silence a lock is freed and a transaction is aborted, as Hive's hive.txn.timeout.

    ``locks``, ``components`` (of all locks), ``open`` and ``aborted`` (those that readers must know of) and ``tables``
    (with write ids) are numbers in a store. ``kept_ms``: for how long an ended transaction is known, at least, so that
    a client that repeats its commit gets the right answer.
    """

    timeout_ms: int = 300_000
    locks: int = 100_000
    components: int = 100_000
    open: int = 100_000
    aborted: int = 100_000
    tables: int = 1_000_000
    kept_ms: int = 3_600_000
