"""What a tenant has: counters in the store, changed in the transaction that takes or gives back what they count.

A counter is changed by atomic addition, which conflicts with nothing. Taking also reads the counter. While the limit is
far away this is a snapshot read, which conflicts with nothing either. Once ``TAKERS_MAX`` transactions like this one
could reach the limit, it is a real read, so that two transactions which do not fit together cannot both commit. A limit
on things that are taken one at a time is therefore exact as long as fewer than ``TAKERS_MAX`` transactions of a tenant
take them at the same moment. A limit on sizes may be exceeded by what is being staged at that moment.
"""

from __future__ import annotations

from typing import Final, NamedTuple, cast

from lakemark_core.errors import QuotaExceeded
from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_proto.v1.admin_pb2 import Usage
from lakemark_server.admission.limits import Limits
from lakemark_server.kv import ReadTransaction, Transaction, counter
from lakemark_server.store.keyspace import ALIVE, INSTANTS, USAGE

TAKERS_MAX: Final = 4_096

TABLES: Final = "tables"
DROPPED_TABLES: Final = "dropped_tables"
DATABASES: Final = "databases"
OPEN_INSTANTS: Final = "open_instants"
STAGED_FILES: Final = "staged_files"
STAGED_BYTES: Final = "staged_bytes"
COUNTED: Final = (TABLES, DROPPED_TABLES, DATABASES, OPEN_INSTANTS, STAGED_FILES, STAGED_BYTES)
"""Names of counters, each of which is also the name of its limit."""

_WORDS: Final = {
    TABLES: "tables",
    DROPPED_TABLES: "dropped tables",
    DATABASES: "databases",
    OPEN_INSTANTS: "open instants",
    STAGED_FILES: "files that are staged and not committed",
    STAGED_BYTES: "bytes of files that are staged and not committed",
}
_ADVICE: Final = {
    TABLES: "drop some",
    DROPPED_TABLES: "delete some (lakemark tables purge), drop this one for good (lakemark tables drop --now)",
    DATABASES: "drop some",
    OPEN_INSTANTS: "commit some or roll them back",
    STAGED_FILES: "commit some or roll them back",
    STAGED_BYTES: "commit some or roll them back",
}


class Tenant(NamedTuple):
    """A catalog and its limits."""

    catalog: str
    limits: Limits


def take(tx: Transaction, tenant: Tenant, what: str, amount: int) -> None:
    """Counts ``amount`` more of ``what``. Raises QuotaExceeded; nothing is written then."""
    check(tx, tenant, what, amount)
    add(tx, tenant.catalog, what, amount)


def check(tx: ReadTransaction, tenant: Tenant, what: str, amount: int) -> None:
    """Raises QuotaExceeded if ``amount`` more do not fit."""
    if amount <= 0:
        return
    allowed = cast(int, getattr(tenant.limits, what))
    key = USAGE.key(tenant.catalog, what)
    used = counter(tx.get(key, snapshot=True))
    if used + amount * TAKERS_MAX > allowed:
        used = counter(tx.get(key))
    if used + amount > allowed:
        raise exceeded(tenant.catalog, what, used, amount, allowed)


def add(tx: Transaction, catalog: str, what: str, amount: int) -> None:
    """Changes the counter without looking at the limit. A negative ``amount`` gives back."""
    if amount:
        tx.add(USAGE.key(catalog, what), amount)


def check_staged(tx: ReadTransaction, tenant: Tenant, files: int, size_bytes: int) -> None:
    """Raises QuotaExceeded if these files do not fit beside those that are staged."""
    check(tx, tenant, STAGED_FILES, files)
    check(tx, tenant, STAGED_BYTES, size_bytes)


def take_staged(tx: Transaction, tenant: Tenant, files: int, size_bytes: int) -> None:
    """Counts these files as staged. Raises QuotaExceeded; nothing is written then."""
    check_staged(tx, tenant, files, size_bytes)
    add(tx, tenant.catalog, STAGED_FILES, files)
    add(tx, tenant.catalog, STAGED_BYTES, size_bytes)


def close_writer(tx: Transaction, catalog: str, files: int, size_bytes: int) -> None:
    """Gives back what an open instant had taken, once it is committed or rolled back.

    ``files`` and ``size_bytes``: what it had staged.
    """
    add(tx, catalog, OPEN_INSTANTS, -1)
    add(tx, catalog, STAGED_FILES, -files)
    add(tx, catalog, STAGED_BYTES, -size_bytes)


def close_writers(tx: Transaction, catalog: str, table_id: int) -> None:
    """Gives back what the open instants of a table had taken. Call it before the table's content is cleared."""
    instants = [cast(int, ALIVE.unpack(key)[-1]) for key, _ in tx.get_range(*ALIVE.range(table_id))]
    if not instants:
        return
    keys = [INSTANTS.key(table_id, instant) for instant in instants]
    # One range instead of a range for each key: the other instants in it have ended and no longer change.
    tx.add_read_conflict(keys[0], keys[-1] + b"\0")
    for stored in tx.get_many(keys, snapshot=True):
        staged = InstantRecord.FromString(stored or b"").staged
        close_writer(tx, catalog, staged.files, staged.bytes)


def read(tx: ReadTransaction, catalog: str) -> Usage:
    """What the store counts of a tenant; what runs in a process is ``tenants``' to tell."""
    stored = tx.get_many([USAGE.key(catalog, what) for what in COUNTED], snapshot=True)
    return Usage(**{what: counter(value) for what, value in zip(COUNTED, stored, strict=True)})


def exceeded(catalog: str, limit: str, used: int, asked: int, allowed: int) -> QuotaExceeded:
    """The error that says which limit is exceeded, what is used and what was asked for."""
    return QuotaExceeded(
        f"catalog {catalog!r} has {used:,} {_WORDS[limit]}, its quota is {allowed:,}, and {asked:,} more were asked "
        f"for: {_ADVICE[limit]}, or have the quota raised (lakemark quota set {catalog} {limit}=…)",
        catalog=catalog,
        limit=limit,
        allowed=str(allowed),
        used=str(used),
        asked=str(asked),
    )


def check_partitions(catalog: str, asked: int, limits: Limits) -> None:
    """Raises QuotaExceeded if one request is for too many partitions."""
    allowed = limits.partitions_per_request
    if asked > allowed:
        raise QuotaExceeded(
            f"the request is for {asked:,} partitions; catalog {catalog!r} may have {allowed:,} in one request: ask "
            f"for them in several, or have the quota raised (lakemark quota set {catalog} partitions_per_request=…)",
            catalog=catalog,
            limit="partitions_per_request",
            allowed=str(allowed),
            asked=str(asked),
        )
