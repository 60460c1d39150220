"""The transactional key-value store below everything: ``open_store(url)``, its contract, keys and large values."""

from __future__ import annotations

import re
from pathlib import Path

from lakemark_core.errors import InvalidArgument, Unimplemented

from .api import (
    CommitUnknownResult,
    Conflict,
    InvertedRange,
    KeyTooLarge,
    KeyValue,
    OpenTransaction,
    ReadTransaction,
    ReservedKey,
    Store,
    StoreClosed,
    StoreFormatUnknown,
    StoreInUse,
    Transaction,
    TransactionFinished,
    TransactionTooLarge,
    TransactionTooOld,
    TryAgain,
    ValueTooLarge,
    counter,
    strinc,
)
from .keys import Space, pack, range_of, unpack
from .memo import ReadMemo
from .pages import keys_below, pairs_between

__all__ = [
    "CommitUnknownResult",
    "Conflict",
    "InvertedRange",
    "KeyTooLarge",
    "KeyValue",
    "OpenTransaction",
    "ReadMemo",
    "ReadTransaction",
    "ReservedKey",
    "Space",
    "Store",
    "StoreClosed",
    "StoreFormatUnknown",
    "StoreInUse",
    "Transaction",
    "TransactionFinished",
    "TransactionTooLarge",
    "TransactionTooOld",
    "TryAgain",
    "ValueTooLarge",
    "counter",
    "keys_below",
    "open_store",
    "pack",
    "pairs_between",
    "public_url",
    "range_of",
    "strinc",
    "unpack",
]

_FORMS = (
    "sqlite:///relative/path.db, sqlite:////absolute/path.db, postgresql://user@host/database, "
    "fdb://relative/path/to/fdb.cluster or fdb:///absolute/path/to/fdb.cluster"
)
_POSTGRES = {"postgresql", "postgres"}
_SCHEME = re.compile(r"[A-Za-z0-9+.-]+")


def open_store(url: str, *, read_only: bool = False) -> Store:
    """Opens the store at ``url``: for SQLite written as for SQLAlchemy, a path after the third slash; for PostgreSQL as
    for libpq, with ``schema`` and ``connections`` as further parameters.

    ``read_only``: nothing is written, the store is not made or migrated if it has to be, and commits raise
    FailedPrecondition. A file of SQLite can then be opened while another process serves it.

    Raises InvalidArgument for other URLs, Unimplemented for stores to come or without their extra, and what
    ``SqliteStore`` and ``PostgresStore`` raise.
    """
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "sqlite":
        path = rest.removeprefix("/")
        if not rest.startswith("/") or path.strip("/") == "" or path.startswith(":") or "?" in path:
            raise InvalidArgument(f"{url!r} does not name a file: write {_FORMS}")
        if read_only:
            from .sqlite.read_only import SqliteReadOnlyStore

            return SqliteReadOnlyStore(Path(path))
        from .sqlite.store import SqliteStore

        return SqliteStore(Path(path))
    if separator and scheme in _POSTGRES:
        try:
            from .postgres.store import PostgresStore
            from .postgres.url import parse
        except ImportError as error:
            raise Unimplemented("PostgreSQL needs the extra: pip install 'lakemark[server,postgres]'") from error
        return PostgresStore(parse(url), read_only=read_only)
    if separator and scheme == "fdb":
        from .fdb.store import FdbStore
        from .fdb.url import parse as parse_fdb

        return FdbStore(parse_fdb(url), read_only=read_only)
    # Quoted only if it is the name of a scheme: a mistyped URL may hold a password there.
    named = repr(scheme) if separator and _SCHEME.fullmatch(scheme) else "this"
    raise InvalidArgument(f"{named} names no kind of store: write {_FORMS}")


def public_url(url: str) -> str:
    """The URL of an opened store as it may be logged: without what is secret in it."""
    scheme = url.partition("://")[0]
    if scheme in _POSTGRES:
        from .postgres.url import parse

        return parse(url).public_url
    return url if scheme in {"sqlite", "fdb"} else f"{scheme}://..."
