"""Which data files belong to what a backup holds: they are no part of it, and a restored store needs them."""

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
"""A table takes some milliseconds, and a backup should not wait long for a number that is only told."""


def data_needed(store: Store) -> DataNeeded:
    """As the store is now, which may be a little later than the backup. A table that cannot be read hinders nothing.

    Raises what reading the store raises.
    """
    heads = Heads(store)
    names = heads.names()
    lake_tables = [one for one in names if one.entry.kind == catalog_pb2.LAKE]
    files = size_bytes = 0
    uncounted = max(0, len(lake_tables) - TABLES_COUNTED_MAX)
    places = {one.owner.location for one in names if one.owner is not None}
    for one in lake_tables[:TABLES_COUNTED_MAX]:
        try:
            head = heads.files(one.entry.table_id)
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
    """Those that are not below another one, in order. Pure."""
    found: list[str] = []
    for location in sorted({one.rstrip("/") + "/" for one in locations if one}):
        if not found or not location.startswith(found[-1]):
            found.append(location)
    return [one.rstrip("/") for one in found]
