"""The name that a store has for ever: a random UUID. A store that is restored from its backup has the same."""

from __future__ import annotations

import uuid

from lakemark_server.store.keyspace import UUID
from lakemark_server.store.mutations import Mutation, Mutations


def uuid_of(mutations: Mutations) -> str:
    """The UUID of the store, which is given when it is asked for the first time."""
    stored = mutations.store.read(lambda tx: tx.get(UUID))
    return (stored or mutations.run(_given)).decode()


def _given(mutation: Mutation) -> bytes:
    stored = mutation.tx.get(UUID)
    if stored is None:
        stored = str(uuid.uuid4()).encode()
        mutation.tx.set(UUID, stored)
    return stored
