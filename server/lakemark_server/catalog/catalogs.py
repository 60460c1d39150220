"""Which catalogs there are. A catalog is a tenant, with quotas of its own: so clients make none, unless they may."""

from __future__ import annotations

from lakemark_core.errors import NotFound
from lakemark_server.catalog.names import DEFAULT_CATALOG, legal_catalog
from lakemark_server.kv import ReadTransaction
from lakemark_server.store.keyspace import DATABASES, QUOTAS


def is_there(tx: ReadTransaction, catalog: str) -> bool:
    """Whether it is the default one, or has a database or limits of its own. ``catalog`` is in lower case."""
    if catalog == DEFAULT_CATALOG:
        return True
    return bool(
        tx.get(QUOTAS.key(catalog), snapshot=True) is not None
        or tx.get_range(*DATABASES.range(catalog), limit=1, snapshot=True)
    )


def require(tx: ReadTransaction, catalog: str, *, or_may_be_made: bool) -> None:
    """Refuses what would make a catalog by the way.

    One that is there is accepted whatever its name: earlier builds checked none. Raises InvalidName, NotFound.
    """
    if is_there(tx, catalog):
        return
    legal_catalog(catalog)
    if not or_may_be_made:
        raise NotFound(
            f"there is no catalog {catalog!r}: a catalog is a tenant, and made by the operator ('lakemark quota set "
            f"{catalog} databases=100', or the service's setting client_catalogs for all)",
            catalog=catalog,
        )
