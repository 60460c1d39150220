"""What kind of table is written or read, and the key by which its rows are changed."""

from __future__ import annotations

from collections.abc import Sequence

from lakemark import Client
from lakemark_core.errors import InvalidArgument, UnsupportedOperation
from lakemark_core.table_kind import KEY_PROPERTY, TableKind
from lakemark_core.types import Schema


def kind_of_table(client: Client, table: str) -> TableKind:
    """As the table's properties say. Raises TableNotFound."""
    return client.tables.get(table).table_kind


def key_columns(keys: str | Sequence[str] | None, kind: TableKind, table: str) -> Sequence[str]:
    """The columns by which rows are found: those of ``keys``, else the table's key.

    Raises InvalidArgument if there are none, or if ``keys`` are not the table's key.
    """
    given = [keys] if isinstance(keys, str) else keys
    if given is None:
        if not kind.key:
            raise InvalidArgument(
                f"{table} has no key: name the columns that tell its rows apart, as in keys=['id'], or create the "
                f"table with the property {KEY_PROPERTY}"
            )
        return kind.key
    if kind.key and {name.lower() for name in given} != {name.lower() for name in kind.key}:
        raise InvalidArgument(
            f"keys={list(given)} are not the key of {table}, which is {', '.join(kind.key)}: rows of one key would "
            "become several; leave keys out"
        )
    return given


def require_no_key(kind: TableKind, table: str) -> None:
    """Raises UnsupportedOperation if rows cannot simply be added."""
    if kind.key:
        raise UnsupportedOperation(
            f"{table} has a key ({', '.join(kind.key)}), and appended rows could have one that is there already: use "
            "upsert, or overwrite to load the whole table",
            table=table,
        )


def require_partitions_in_key(kind: TableKind, schema: Schema | None, table: str) -> None:
    """Raises UnsupportedOperation if rows of one partition could have the keys of rows in another one."""
    if not kind.key or schema is None:
        return
    others = kind.partitions_beside_key(schema)
    if others:
        raise UnsupportedOperation(
            f"the key of {table} ({', '.join(kind.key)}) lacks the partition column{'s' if len(others) > 1 else ''} "
            f"{', '.join(others)}, so rows of a partition that stays could have the keys of the new rows: use upsert, "
            "or overwrite the whole table",
            table=table,
        )
