"""How many roles and privileges a store has."""

from __future__ import annotations

from typing import Final

from lakemark_server.kv import Transaction
from lakemark_server.store.counts import Counts
from lakemark_server.store.keyspace import GRANT_COUNTS

ROLES: Final = "roles"
MEMBERS: Final = "members"
PRIVILEGES: Final = "privileges"

ALLOWED: Final = {ROLES: 10_000, MEMBERS: 100_000, PRIVILEGES: 100_000}

_ADVICE: Final = "revoke or drop some"

_counts: Final = Counts(
    GRANT_COUNTS,
    {ROLES: ("roles", _ADVICE), MEMBERS: ("grants of roles", _ADVICE), PRIVILEGES: ("privileges", _ADVICE)},
)
add, read = _counts.add, _counts.read


def take(tx: Transaction, what: str, amount: int) -> None:
    """Counts more of them. Raises LimitExceeded if there would be too many."""
    _counts.check(tx, what, amount, ALLOWED[what])
    add(tx, what, amount)
