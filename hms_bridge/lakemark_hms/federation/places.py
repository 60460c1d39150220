"""Where in the arguments and results of Metastore calls the names of databases stand. Pure."""

from __future__ import annotations

from typing import Any, Final

from lakemark_thrift.base import Struct
from lakemark_thrift.ttypes import Database

_FIELDS: Final = ("dbname", "db_name", "dbName", "database", "databaseName", "oldDbName")
# The argument is the name of a database.
_BY_NAME: Final = frozenset({"get_database", "drop_database", "get_database_req", "drop_database_req"})
_DEPTH_MAX: Final = 4


def database_in(method: str, args: Struct) -> str | None:
    """The database that the call is about, as it is written; None if it is about no single one."""
    place = _place(method, args)
    return None if place is None else getattr(*place)


def with_database(method: str, args: Struct, name: str) -> None:
    """Lets the call be about another database."""
    place = _place(method, args)
    if place is not None:
        setattr(*place, name)


def _place(method: str, args: Any) -> tuple[Struct, str] | None:
    names = (*_FIELDS, "name") if method in _BY_NAME else _FIELDS
    for holder in (args, *(getattr(args, slot) for slot in args.__slots__)):
        if isinstance(holder, Struct):
            for name in names:
                if name in holder.__slots__ and isinstance(getattr(holder, name), str):
                    return holder, name
            if isinstance(holder, Database):
                return holder, "name"
    return None


def renamed(value: Any, before: str, after: str, depth: int = 0) -> Any:
    """Gives the database its other name in each struct of a result, which is changed."""
    if isinstance(value, list):
        if value and isinstance(value[0], Struct):
            for one in value:
                renamed(one, before, after, depth)
    elif isinstance(value, Struct) and depth < _DEPTH_MAX:
        for slot in value.__slots__:
            held = getattr(value, slot)
            if slot in _FIELDS or (slot == "name" and isinstance(value, Database)):
                if isinstance(held, str) and held.lower() == before:
                    setattr(value, slot, after)
            elif isinstance(held, Struct | list) and slot != "sd":
                renamed(held, before, after, depth + 1)
    return value
