"""The tables of a store in PostgreSQL, which are made, migrated and checked when it is opened; settings of sessions.

``kv`` holds the pairs. A b-tree cannot index keys longer than a third of a page, so the rare pairs with longer keys are
in ``kv_long``. ``log`` holds what the commits of the last seconds wrote (see ``window``); its newest version is the
store's version. All names are looked up in the store's schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, LiteralString

import psycopg
from psycopg import sql

from lakemark_core.errors import FailedPrecondition

from ..api import StoreFormatUnknown

FORMAT: Final = 1
SERVER_VERSION_MIN: Final = 130_000

# The nth statements lead from format n to n + 1. Values are compact already, so PostgreSQL need not compress them.
MIGRATIONS: Final[tuple[tuple[LiteralString, ...], ...]] = (
    (
        "CREATE TABLE format (version integer NOT NULL)",
        "INSERT INTO format VALUES (1)",
        "CREATE TABLE kv (key bytea PRIMARY KEY, value bytea NOT NULL)"
        " WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05)",
        "ALTER TABLE kv ALTER value SET STORAGE EXTERNAL",
        "CREATE TABLE kv_long"
        " (head bytea, digest bytea, key bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY (head, digest))",
        "ALTER TABLE kv_long ALTER value SET STORAGE EXTERNAL",
        "CREATE TABLE log (version bigint PRIMARY KEY, writes bytea NOT NULL)"
        " WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)",
        "ALTER TABLE log ALTER writes SET STORAGE EXTERNAL",
        "INSERT INTO log VALUES ((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, '')",
    ),
)

_SETTINGS: Final = {
    # Always use the index, whatever the statistics say.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}


def session(schema: str, settings: Mapping[str, str]) -> list[sql.SQL | sql.Composed]:
    """The statements at the beginning of a session."""
    wanted = {**_SETTINGS, **settings, "search_path": schema}
    return [
        *(sql.SQL("SET {} = {}").format(sql.Identifier(name), sql.Literal(value)) for name, value in wanted.items()),
        # Acknowledged means on the disk. A setting that waits for other disks, too, is kept.
        sql.SQL(
            "SELECT set_config(name, 'on', false) FROM pg_settings"
            " WHERE name = 'synchronous_commit' AND setting = 'off'"
        ),
    ]


def prepare(driver: psycopg.Connection, schema: str) -> tuple[int, int]:
    """Makes the tables if they are not there, and migrates older ones. Safe if several processes start at once.

    Returns the oid of the log and the store's version. Raises StoreFormatUnknown, FailedPrecondition, psycopg.Error.
    """
    if driver.info.server_version < SERVER_VERSION_MIN:
        raise FailedPrecondition(f"PostgreSQL {SERVER_VERSION_MIN // 10_000} or newer is needed")
    with driver.transaction():
        driver.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"lakemark.{schema}",))
        if not _schema_exists(driver, schema):
            driver.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        known = _known_format(driver)
        for statements in MIGRATIONS[known:]:
            for statement in statements:
                driver.execute(statement)
        if known < FORMAT:
            driver.execute("UPDATE format SET version = %s", (FORMAT,))
        return _log(driver)


def check(driver: psycopg.Connection, schema: str) -> tuple[int, int]:
    """As ``prepare``, for a store that exists in this format. Writes nothing."""
    known = _known_format(driver) if _schema_exists(driver, schema) else 0
    if not known:
        raise FailedPrecondition(f"there is no store in the schema {schema}")
    if known < FORMAT:
        raise StoreFormatUnknown(
            f"the store has format {known}; 'lakemark serve' of this release brings it to format {FORMAT}",
            format=str(known),
        )
    return _log(driver)


def _schema_exists(driver: psycopg.Connection, schema: str) -> bool:
    """Raises FailedPrecondition if this user may not look into it: to such a one, its tables seem not to be there."""
    statement = "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = %s"
    row = driver.execute(statement, (schema,)).fetchone()
    if row is not None and not row[0]:
        raise FailedPrecondition(
            f"this user lacks the right USAGE on the store's schema {schema}: its owner has to GRANT it, and rights on "
            "its tables"
        )
    return row is not None


def _known_format(driver: psycopg.Connection) -> int:
    """0 if there is no store. Raises StoreFormatUnknown for a newer one."""
    written = _format(driver)
    if written > FORMAT:
        raise StoreFormatUnknown(
            f"the store has format {written}, and this release of Lakemark knows formats up to {FORMAT}; "
            "open it with the release that wrote it",
            format=str(written),
        )
    return written


def _log(driver: psycopg.Connection) -> tuple[int, int]:
    row = driver.execute("SELECT 'log'::regclass::oid::bigint, max(version) FROM log").fetchone()
    if row is None or row[1] is None:
        raise StoreFormatUnknown("the store's log is empty: its schema was changed by another program")
    return int(row[0]), int(row[1])


def _format(driver: psycopg.Connection) -> int:
    """0 if there is no store."""
    row = driver.execute("SELECT to_regclass('format')").fetchone()
    if row is None or row[0] is None:
        return 0
    try:
        row = driver.execute("SELECT version FROM format").fetchone()
    except psycopg.errors.UndefinedColumn:
        row = None
    if row is None:
        raise StoreFormatUnknown("the schema holds a table that is not Lakemark's: format")
    return int(row[0])
