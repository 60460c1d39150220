"""Functions of databases: each is a name with a Thrift struct, which the service stores without reading it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from lakemark_core.errors import AlreadyExists, FunctionNotFound, InvalidName
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_server.catalog import databases, events
from lakemark_server.catalog.names import catalog_name
from lakemark_server.kv import ReadTransaction
from lakemark_server.store.keyspace import FUNCTIONS
from lakemark_server.store.mutations import Mutation, Mutations

NAME_CHARS_MAX: Final = 128
_LEGAL: Final = re.compile(r"\w+", re.ASCII)


class Functions:
    """Thread-safe. Names are kept in lower case, as in Hive."""

    def __init__(self, mutations: Mutations) -> None:
        self._mutations = mutations
        self._store = mutations.store

    def create(self, catalog: str, database: str, name: str, hive: bytes) -> None:
        """Raises DatabaseNotFound, AlreadyExists, InvalidName."""
        legal = _legal(name)
        place = catalog_name(catalog), database.lower()

        def body(mutation: Mutation) -> None:
            tx = mutation.tx
            key = _key(tx, catalog, database, legal)
            if tx.get(key) is not None:
                raise AlreadyExists(f"function {database}.{legal} already exists", function=legal)
            tx.set(key, hive)
            mutation.tell(events.of_function(pb.FUNCTION_CREATED, *place, ("", b""), (legal, hive)))

        self._mutations.run(body)

    def alter(
        self,
        catalog: str,
        database: str,
        name: str,
        new_database: str,
        new_name: str,
        change: Callable[[bytes], bytes],
    ) -> None:
        """Replaces a function by what ``change`` makes of it, and gives it these names.

        Raises DatabaseNotFound, FunctionNotFound, AlreadyExists for the new names, InvalidName.
        """
        legal = _legal(new_name)
        place, target = (catalog_name(catalog), database.lower()), (catalog_name(catalog), new_database.lower())

        def body(mutation: Mutation) -> None:
            tx = mutation.tx
            old, new = _key(tx, catalog, database, name.lower()), _key(tx, catalog, new_database, legal)
            before = (name.lower(), _require(tx, old, database, name))
            if new != old and tx.get(new) is not None:
                raise AlreadyExists(f"function {new_database}.{legal} already exists", function=legal)
            after = (legal, change(before[1]))
            tx.clear(old)
            tx.set(new, after[1])
            if place == target:
                mutation.tell(events.of_function(pb.FUNCTION_ALTERED, *place, before, after))
            else:  # an event is of one database
                mutation.tell(events.of_function(pb.FUNCTION_DROPPED, *place, before, ("", b"")))
                mutation.tell(events.of_function(pb.FUNCTION_CREATED, *target, ("", b""), after))

        self._mutations.run(body)

    def get(self, catalog: str, database: str, name: str) -> bytes:
        """Raises DatabaseNotFound, FunctionNotFound."""
        return self._store.read(lambda tx: _require(tx, _key(tx, catalog, database, name.lower()), database, name))

    def drop(self, catalog: str, database: str, name: str) -> None:
        """Raises DatabaseNotFound, FunctionNotFound."""
        place = catalog_name(catalog), database.lower()

        def body(mutation: Mutation) -> None:
            tx = mutation.tx
            key = _key(tx, catalog, database, name.lower())
            before = (name.lower(), _require(tx, key, database, name))
            tx.clear(key)
            mutation.tell(events.of_function(pb.FUNCTION_DROPPED, *place, before, ("", b"")))

        self._mutations.run(body)

    def listed(self, catalog: str, database: str, wanted: Callable[[str], bool]) -> dict[str, bytes]:
        """The functions whose name is ``wanted``, in order of name. Raises DatabaseNotFound."""

        def body(tx: ReadTransaction) -> dict[str, bytes]:
            owner = databases.get(tx, catalog, database)
            pairs = tx.get_range(*FUNCTIONS.range(owner.database_id))
            named = {str(FUNCTIONS.unpack(key)[-1]): value for key, value in pairs}
            return {name: value for name, value in named.items() if wanted(name)}

        return self._store.read(body)


def _key(tx: ReadTransaction, catalog: str, database: str, name: str) -> bytes:
    return FUNCTIONS.key(databases.get(tx, catalog, database).database_id, name)


def _require(tx: ReadTransaction, key: bytes, database: str, name: str) -> bytes:
    stored = tx.get(key)
    if stored is None:
        # Spark looks for "<name> does not exist" to tell a missing function from a failure.
        raise FunctionNotFound(f"Function {database}.{name} does not exist", function=name)
    return stored


def _legal(name: str) -> str:
    lowered = name.strip().lower()
    if len(lowered) > NAME_CHARS_MAX or not _LEGAL.fullmatch(lowered):
        raise InvalidName(f"function name {name[:NAME_CHARS_MAX]!r} is not legal: use letters, digits and underscores")
    return lowered
