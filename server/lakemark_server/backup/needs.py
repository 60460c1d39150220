"""The data files that belong to a backup's metadata. They are not part of it, but a restored store needs them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lakemark_core.errors import LakemarkError
from lakemark_proto.v1 import catalog_pb2
from lakemark_server.kv import Store
from lakemark_server.verify import Heads

from .manifest import DataNeeded

DIRECTORIES_MAX: Final = 100
TABLES_COUNTED_MAX: Final = 20_000
"""Counting a table takes some milliseconds, and a backup should not wait long for a number that is only shown."""


def data_needed(store: Store) -> DataNeeded:
    """What the store needs now, which may be a little later than the backup. Skips tables that cannot be read.

    Raises what reading the store raises.
    """
    heads = Heads(store)
    names = heads.names()
    lake_tables = [table for table in names if table.entry.kind == catalog_pb2.LAKE]
    files = size_bytes = 0
    uncounted = max(0, len(lake_tables) - TABLES_COUNTED_MAX)
    places = {table.owner.location for table in names if table.owner is not None}
    for table in lake_tables[:TABLES_COUNTED_MAX]:
        try:
            head = heads.files(table.entry.table_id)
        except LakemarkError:
            uncounted += 1
            continue
        if head is not None:
            files += head.files
            size_bytes += head.bytes
            places.add(head.location)
    directories = outermost(places)
    return DataNeeded(
        lake_tables=len(lake_tables),
        warehouse_tables=len(names) - len(lake_tables),
        files=files,
        bytes=size_bytes,
        directories=directories[:DIRECTORIES_MAX],
        directories_left_out=max(0, len(directories) - DIRECTORIES_MAX),
        uncounted_tables=uncounted,
    )


def outermost(locations: Iterable[str]) -> list[str]:
    """The locations that are not below another one, in order. Pure."""
    outer: list[str] = []
    for location in sorted({location.rstrip("/") + "/" for location in locations if location}):
        if not outer or not location.startswith(outer[-1]):
            outer.append(location)
    return [location.rstrip("/") for location in outer]
