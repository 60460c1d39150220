"""Which catalogs there are, inside a transaction.

A catalog is a tenant, with quotas of its own: so clients make none, unless they may. What a client has defined of one
(``CatalogRecord``) is its location and what Hive keeps beside.
"""

from __future__ import annotations

from lakemark_core.errors import NotFound
from lakemark_proto.store.v1.store_pb2 import CatalogRecord, Holder
from lakemark_server.catalog.names import DEFAULT_CATALOG, NAME_CHARS_MAX, legal_catalog
from lakemark_server.kv import ReadTransaction, Transaction, next_name
from lakemark_server.ownership import places
from lakemark_server.ownership.rules import Holding
from lakemark_server.store.keyspace import CATALOGS, DATABASES, QUOTAS


def is_visible(tx: ReadTransaction, catalog: str) -> bool:
    """Whether it is the default one, or has a definition or a database. ``catalog`` is in lower case."""
    if catalog == DEFAULT_CATALOG:
        return True
    if not 0 < len(catalog) <= NAME_CHARS_MAX:  # it would not fit into a key
        return False
    return find(tx, catalog) is not None or bool(tx.get_range(*DATABASES.range(catalog), limit=1, snapshot=True))


def is_there(tx: ReadTransaction, catalog: str) -> bool:
    """Whether databases can be made in it: it is visible, or has limits of its own. ``catalog`` is in lower case."""
    if is_visible(tx, catalog):
        return True
    return 0 < len(catalog) <= NAME_CHARS_MAX and tx.get(QUOTAS.key(catalog), snapshot=True) is not None


def require(tx: ReadTransaction, catalog: str, *, or_may_be_made: bool) -> None:
    """Refuses what would make a catalog by the way.

    One that is there is accepted whatever its name: earlier builds checked none. Raises InvalidName, NotFound.
    """
    if is_there(tx, catalog):
        return
    legal_catalog(catalog)
    if not or_may_be_made:
        raise NotFound(
            f"there is no catalog {catalog!r}: create it first. A catalog is a tenant, so the operator makes it "
            f"('lakemark quota set {catalog} databases=100') or lets clients make it (the setting client_catalogs)",
            catalog=catalog,
        )


def find(tx: ReadTransaction, catalog: str) -> CatalogRecord | None:
    """What a client has defined of the catalog, or None. ``catalog`` is in lower case."""
    if not 0 < len(catalog) <= NAME_CHARS_MAX:
        return None
    stored = tx.get(CATALOGS.key(catalog))
    return None if stored is None else CatalogRecord.FromString(stored)


def put(tx: Transaction, record: CatalogRecord) -> None:
    """Writes the record, under the name in it."""
    tx.set(CATALOGS.key(record.name), record.SerializeToString())


def clear(tx: Transaction, catalog: str) -> None:
    """Removes the definition; databases stay."""
    tx.clear(CATALOGS.key(catalog))


def holding(record: CatalogRecord, *, owns: bool) -> Holding:
    """The directory of a catalog that was defined."""
    return places.holding(record.directory, Holder.CATALOG, record.catalog_id, record.name, owns=owns)


def visible(tx: ReadTransaction) -> list[str]:
    """The names of those that are visible, in order. A read for each of them, and none for their databases."""
    names = {DEFAULT_CATALOG}
    for space in (CATALOGS, DATABASES):
        name = next_name(tx, space, "")
        while name is not None:
            names.add(name)
            name = next_name(tx, space, name)
    return sorted(names)
