"""Roles and privileges: both ways to look up who has a role agree, and the counters are correct."""

from __future__ import annotations

from lakemark_server.grants import counts
from lakemark_server.kv import Space, Store, keys_below
from lakemark_server.store.keyspace import PRIVILEGES, ROLE_MEMBERS, ROLES, ROLES_OF
from lakemark_server.verify.lake import Problems


def check(store: Store) -> Problems:
    """A sentence for each violation."""
    members = {at for at, _ in keys_below(store, ROLE_MEMBERS)}
    roles_of = {(at[2], at[0], at[1]) for at, _ in keys_below(store, ROLES_OF)}
    problems = [f"{at[2]} has the role {at[0]} by one of two lists only" for at in sorted(members ^ roles_of, key=str)]
    counted = {
        counts.ROLES: _number(store, ROLES),
        counts.MEMBERS: len(members),
        counts.PRIVILEGES: _number(store, PRIVILEGES),
    }
    for what, number in counted.items():
        stored = store.read(lambda tx, what=what: counts.read(tx, what))  # type: ignore[misc]
        if stored != number:
            problems.append(f"the counter of {what} of grants is {stored}, and there are {number}")
    return problems


def _number(store: Store, space: Space) -> int:
    return sum(1 for _ in keys_below(store, space))
