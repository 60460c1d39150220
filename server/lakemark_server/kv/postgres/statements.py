"""The prepared statements of readers and of the writer, by name. Values are bytea, bytea[] and bigint."""

from __future__ import annotations

from typing import Final

SHORT_KEY_BYTES_MAX: Final = 2_048
"""Longer keys are in ``kv_long``, by their first so many bytes and their digest."""

_LONG_RANGE: Final = (
    "SELECT key, value FROM kv_long WHERE head >= substr($1::bytea, 1, 2048) AND head <= substr($2::bytea, 1, 2048)"
    " AND key >= $1 AND key < $2 ORDER BY key"
)
READ: Final = {
    "begin": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "rollback": "ROLLBACK",
    "state": "SELECT max(version), EXISTS (SELECT FROM kv_long)::int::bigint FROM log",
    "get": "SELECT value FROM kv WHERE key = $1",
    "get_long": "SELECT value FROM kv_long WHERE head = substr($1::bytea, 1, 2048) AND digest = sha256($1)",
    "get_many": "SELECT key, value FROM kv WHERE key = ANY ($1::bytea[])",
    "range": "SELECT key, value FROM kv WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3",
    "range_reverse": "SELECT key, value FROM kv WHERE key >= $1 AND key < $2 ORDER BY key DESC LIMIT $3",
    "long_range": _LONG_RANGE + " LIMIT $3",
    "long_range_reverse": _LONG_RANGE + " DESC LIMIT $3",
}

# The commit runs in READ COMMITTED, where each statement has a snapshot of its own: those after ``lock`` see all that
# was committed before the turn came. In REPEATABLE READ the snapshot would be older than the turn.
WRITE: Final = {
    "begin": "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
    "rollback": "ROLLBACK",
    "commit": "COMMIT",
    # Waits for the turn to commit, then tells the server's time in microseconds.
    "lock": "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    " FROM (SELECT pg_advisory_xact_lock($1)) AS turn",
    "counters": "SELECT key, substr(value, 1, 8) FROM kv WHERE key = ANY ($1::bytea[])",
    "counters_long": "SELECT key, substr(value, 1, 8) FROM kv_long, unnest($1::bytea[]) AS named (name)"
    " WHERE head = substr(name, 1, 2048) AND digest = sha256(name)",
    "news": "SELECT version, CASE WHEN version > $1 THEN writes ELSE '' END FROM log"
    " WHERE version >= $1 ORDER BY version",
    "newest": "SELECT max(version) FROM log",
    "clear_ranges": "DELETE FROM kv USING unnest($1::bytea[], $2::bytea[]) AS cleared (first, last)"
    " WHERE key >= first AND key < last",
    "clear_ranges_long": "DELETE FROM kv_long USING unnest($1::bytea[], $2::bytea[]) AS cleared (first, last)"
    " WHERE key >= first AND key < last",
    "clear": "DELETE FROM kv WHERE key = ANY ($1::bytea[])",
    "clear_long": "DELETE FROM kv_long USING unnest($1::bytea[]) AS named (name)"
    " WHERE head = substr(name, 1, 2048) AND digest = sha256(name)",
    "put": "INSERT INTO kv SELECT * FROM unnest($1::bytea[], $2::bytea[])"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    "put_long": "INSERT INTO kv_long SELECT substr(key, 1, 2048), sha256(key), key, value"
    " FROM unnest($1::bytea[], $2::bytea[]) AS given (key, value)"
    " ON CONFLICT (head, digest) DO UPDATE SET value = excluded.value",
    "log": "INSERT INTO log VALUES ($1, $2)",
    "notify": "SELECT pg_notify($1, '')",
    "trim": "DELETE FROM log WHERE version < $1",
}
