"""How many roles and privileges a store has, by counters that conflict with nothing.

A limit is checked with a snapshot read, so it may be exceeded by what is granted at the same moment.
"""

from __future__ import annotations

from typing import Final

from lakemark_core.errors import LimitExceeded
from lakemark_server.kv import ReadTransaction, Transaction, counter
from lakemark_server.store.keyspace import GRANT_COUNTS

ROLES: Final = "roles"
MEMBERS: Final = "members"
PRIVILEGES: Final = "privileges"

ALLOWED: Final = {ROLES: 10_000, MEMBERS: 100_000, PRIVILEGES: 100_000}
_WORDS: Final = {ROLES: "roles", MEMBERS: "grants of roles", PRIVILEGES: "privileges"}


def add(tx: Transaction, what: str, amount: int) -> None:
    """Changes a counter."""
    if amount:
        tx.add(GRANT_COUNTS.key(what), amount)


def read(tx: ReadTransaction, what: str) -> int:
    """The value of a counter, by a snapshot read."""
    return counter(tx.get(GRANT_COUNTS.key(what), snapshot=True))


def take(tx: Transaction, what: str, amount: int) -> None:
    """Counts more of them. Raises LimitExceeded if there would be too many."""
    used, allowed = read(tx, what), ALLOWED[what]
    if used + amount > allowed:
        raise LimitExceeded(
            f"there are {used:,} {_WORDS[what]}, {amount:,} more were asked for, and there may be {allowed:,}: "
            "revoke or drop some"
        )
    add(tx, what, amount)
