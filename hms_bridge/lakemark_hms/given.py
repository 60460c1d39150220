"""What Hive asks every client for: these functions raise NotGiven where it is null."""

from __future__ import annotations

from typing import TypeVar

from lakemark_hms.errors import NotGiven
from lakemark_hms.names import DatabaseName, database_name
from lakemark_hms.wire.cut import Cut
from lakemark_hms.wire.dispatch import Call
from lakemark_server.catalog.names import NAME_CHARS_MAX
from lakemark_thrift.base import DeclaredError, Struct

T = TypeVar("T", bound="Struct | DeclaredError")


def given_database(text: str | None, catalog: str | None = None) -> DatabaseName:
    """``database_name``; clients of Hive 3 write ``@catalog#`` for null. Raises InvalidName, too."""
    if text is None or (text.startswith("@") and text.endswith("#")):
        raise NotGiven("the name of the database is null: give one")
    return database_name(text, catalog)


def given_name(kind: str, name: str | None) -> str:
    """A name that is not null; ``kind`` ("table", "function") is for the message."""
    if name is None:
        raise NotGiven(f"the name of the {kind} is null: give one")
    return name


def given_number(name: str, number: int | None) -> int:
    """A number that Hive's clients always send; ``name`` is its field's, for the message."""
    if number is None:
        raise NotGiven(f"{name} is not set: give a number")
    return number


def short(name: str | None) -> str:
    """A name that a client sent as messages quote it, which may be as long as a message can be."""
    return repr(name if name is None or len(name) <= NAME_CHARS_MAX else f"{name[:NAME_CHARS_MAX]}…")


def given_struct(call: Call, kind: type[T], *path: int) -> Cut[T]:
    """The struct at a path of field ids in the arguments (``Call.cut``)."""
    sent = call.cut(kind, *path)
    if not sent:
        raise NotGiven(f"{call.name} needs a {kind.__name__}, and got none: give one")
    return sent[0]


def table_of_partitions(
    database: str | None, table: str | None, catalog: str | None = None
) -> tuple[DatabaseName, str]:
    """The names of a table whose partitions are meant. Raises InvalidName, too."""
    return given_database(database, catalog), given_name("table", table)
