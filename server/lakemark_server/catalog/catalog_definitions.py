"""Catalogs that clients define: create, alter, drop.

A catalog gets a database ``default``, whose directory is that of the catalog, as the database ``default`` of the
catalog ``hive`` has the warehouse. The catalog owns the directory, and is dropped with it.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from lakemark_core import storage
from lakemark_core.errors import AlreadyExists, InvalidArgument, NotEmpty, NotFound
from lakemark_proto.store.v1.store_pb2 import CatalogRecord, DatabaseRecord, Holder
from lakemark_server.catalog import catalogs, databases, directories
from lakemark_server.catalog.names import DEFAULT_CATALOG, NAME_CHARS_MAX, legal_name
from lakemark_server.catalog.service import DEFAULT_DATABASE, Catalog
from lakemark_server.context import caller
from lakemark_server.grants.objects import PUBLIC
from lakemark_server.kv import ReadTransaction
from lakemark_server.store.keyspace import MOUNTS
from lakemark_server.store.mutations import Mutation

_log = structlog.get_logger(__name__)


class CatalogDefinitions:
    """Thread-safe. Names are kept in lower case, as in Hive."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._store = catalog.store
        self._mutations = catalog.mutations
        self._ownership = catalog.ownership

    def names(self) -> list[str]:
        """The catalogs that have a definition or a database, in order of name."""
        return self._store.read(catalogs.visible)

    def get(self, name: str) -> CatalogRecord:
        """What was defined of a catalog, or what holds for one without a definition. Raises NotFound."""
        return self._store.read(lambda tx: self._get(tx, name.strip().lower()))

    def create(self, name: str, location: str, hive: bytes) -> None:
        """Makes the catalog with its directory and its database ``default``. ``hive``: its Thrift struct.

        A client may do so if the service lets clients make catalogs, or if the operator has given the catalog limits.

        Raises AlreadyExists, InvalidName, InvalidArgument, NotFound if it may not be made, LocationTaken.
        """
        legal = legal_name("catalog", name)
        uri = storage.canonical_uri(location)
        new = CatalogRecord(name=legal, location=uri, directory=uri, hive=hive)
        database = DatabaseRecord(
            catalog=legal,
            name=DEFAULT_DATABASE,
            description=f"Default database for catalog {legal}",
            location=uri,
            owner=PUBLIC,
        )
        may_be_made = self._catalog.client_catalogs

        def check(tx: ReadTransaction) -> None:
            if catalogs.is_visible(tx, legal):
                raise AlreadyExists(f"Catalog {legal} already exists", catalog=legal)
            catalogs.require(tx, legal, or_may_be_made=may_be_made)

        self._store.read(check)  # before a directory is made
        new.catalog_id, database.database_id = self._catalog.database_ids.next(), self._catalog.database_ids.next()
        owns = self._catalog.may_own_new(uri)

        def body(mutation: Mutation) -> None:
            check(mutation.tx)
            new.created_ms = mutation.now_ms
            self._ownership.take(mutation.tx, catalogs.holding(new, owns=owns))
            catalogs.put(mutation.tx, new)
            self._catalog.add_database(mutation, database, owns=False)

        self._catalog.with_directory(uri, lambda: self._mutations.run(body))

    def alter(self, name: str, change: Callable[[CatalogRecord], tuple[str, bytes]]) -> None:
        """Gives a catalog another location and Thrift struct, which ``change`` makes of what it is.

        The location is that of databases which are created later; what there is stays where it is. Raises NotFound,
        InvalidArgument.
        """
        wanted = name.strip().lower()

        def body(mutation: Mutation) -> None:
            record = self._get(mutation.tx, wanted)
            if not record.catalog_id:
                raise InvalidArgument(
                    f"catalog {wanted!r} was not created by a Metastore client: it lies in {record.location}, and has "
                    "nothing that can be altered"
                )
            location, record.hive = change(record)
            record.location = storage.canonical_uri(location)
            catalogs.put(mutation.tx, record)

        self._mutations.run(body)

    def drop(self, name: str, *, if_exists: bool) -> None:
        """Drops a catalog that has nothing but an empty database ``default``, and its directory if it owns that.

        Raises NotFound, InvalidArgument for ``hive``, NotEmpty.
        """
        wanted = name.strip().lower()
        if wanted == DEFAULT_CATALOG:
            raise InvalidArgument("Can not drop hive catalog: every metastore has it")

        def body(mutation: Mutation) -> CatalogRecord | None:
            tx = mutation.tx
            if if_exists and not catalogs.is_visible(tx, wanted):
                return None
            record = self._get(tx, wanted)
            self._remove_default(mutation, wanted)
            catalogs.clear(tx, wanted)
            for holding in self._ownership.leave(tx, Holder.CATALOG, record.catalog_id) if record.catalog_id else ():
                if holding.owns and not self._ownership.what_keeps(tx, holding):
                    directories.begin_deletion(tx, record.directory, mutation.now_ms, aside=True)
            return record

        record = self._mutations.run(body)
        if record is None:
            return
        _log.info("dropped a catalog", catalog=wanted, location=record.location, by=caller.current())
        if record.directory:
            directories.try_to_delete(self._store, record.directory, self._mutations.clock())

    def _remove_default(self, mutation: Mutation, catalog: str) -> None:
        names = [one.name for one in databases.listed(mutation.tx, catalog, limit=2)]
        if mutation.tx.get_range(*MOUNTS.range(catalog), limit=1) or any(name != DEFAULT_DATABASE for name in names):
            raise NotEmpty(
                f"There are non-default databases in the catalog {catalog} so it cannot be dropped: drop them first",
                catalog=catalog,
            )
        default = databases.find(mutation.tx, catalog, DEFAULT_DATABASE)
        if default is None:
            return
        try:
            self._catalog.remove_database(mutation, default, delete_data=False)
        except NotEmpty as error:
            raise NotEmpty(
                f"There are still objects in the default database for catalog {catalog}: {error.message}",
                catalog=catalog,
            ) from None

    def _get(self, tx: ReadTransaction, name: str) -> CatalogRecord:
        if not catalogs.is_visible(tx, name):
            raise NotFound(f"there is no catalog {name[:NAME_CHARS_MAX]!r}", catalog=name[:NAME_CHARS_MAX])
        record = catalogs.find(tx, name)
        return record or CatalogRecord(name=name, location=self._catalog.catalog_location(name, None))
