"""Data connectors of Hive 4: a name with a Thrift struct that says how another database is reached.

They are kept for those who ask for them; the service connects nowhere. Their parameters may hold passwords, so nothing
of them is told as an event or in a log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lakemark_core.errors import AlreadyExists, LimitExceeded, NotFound
from lakemark_server.catalog.names import legal_name
from lakemark_server.kv import ReadTransaction
from lakemark_server.store.keyspace import DATA_CONNECTORS
from lakemark_server.store.mutations import Mutation, Mutations

CONNECTORS_MAX: Final = 100
"""So few that they can be counted, with their values, by the transaction that makes one."""
CONNECTOR_BYTES_MAX: Final = 64_000


class DataConnectors:
    """Thread-safe. Names are kept in lower case."""

    def __init__(self, mutations: Mutations) -> None:
        self._mutations = mutations
        self._store = mutations.store

    def create(self, name: str, hive: bytes) -> None:
        """Raises InvalidName, AlreadyExists, LimitExceeded."""
        key = DATA_CONNECTORS.key(legal_name("data connector", name))
        _check_size(hive)

        def body(mutation: Mutation) -> None:
            if mutation.tx.get(key) is not None:
                raise AlreadyExists(f"data connector {name.lower()} already exists")
            if len(mutation.tx.get_range(*DATA_CONNECTORS.range(), limit=CONNECTORS_MAX)) == CONNECTORS_MAX:
                raise LimitExceeded(f"there are {CONNECTORS_MAX:,} data connectors, and can be no more: drop some")
            mutation.tx.set(key, hive)

        self._mutations.run(body)

    def alter(self, name: str, change: Callable[[bytes], bytes]) -> None:
        """Replaces it by what ``change`` makes of it. Raises NotFound, LimitExceeded."""

        def body(mutation: Mutation) -> None:
            hive = change(_require(mutation.tx, name))
            _check_size(hive)
            mutation.tx.set(_key(name), hive)

        self._mutations.run(body)

    def get(self, name: str) -> bytes:
        """Raises NotFound."""
        return self._store.read(lambda tx: _require(tx, name))

    def names(self) -> list[str]:
        """All of them, in order."""
        pairs = self._store.read(lambda tx: tx.get_range(*DATA_CONNECTORS.range()))
        return [str(DATA_CONNECTORS.unpack(key)[-1]) for key, _ in pairs]

    def drop(self, name: str) -> None:
        """Raises NotFound."""

        def body(mutation: Mutation) -> None:
            _require(mutation.tx, name)
            mutation.tx.clear(_key(name))

        self._mutations.run(body)


def _key(name: str) -> bytes:
    return DATA_CONNECTORS.key(name.strip().lower())


def _require(tx: ReadTransaction, name: str) -> bytes:
    stored = tx.get(_key(name))
    if stored is None:
        raise NotFound(f"data connector {name[:128]!r} does not exist")
    return stored


def _check_size(hive: bytes) -> None:
    if len(hive) > CONNECTOR_BYTES_MAX:
        raise LimitExceeded(f"{len(hive):,} bytes of a data connector; at most {CONNECTOR_BYTES_MAX:,} are kept")
