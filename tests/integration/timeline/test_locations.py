"""No two lake tables share a directory: a rollback in one would delete files of the other."""

from __future__ import annotations

from pathlib import Path

from lakemark_proto.v1 import catalog_pb2 as c
from tests.wire import Wire, refused


def test_a_location_belongs_to_one_table_until_it_is_dropped(wire: Wire, tmp_path: Path) -> None:
    wire.create(location=f"file:{tmp_path}/place")
    first = wire.table.table
    wire.table.table = f"{first}_other"
    with refused("location_taken", f"lake table default.{first} has its directory there"):
        wire.create(location=f"{tmp_path}/place/")
    wire.table.table = first
    wire.catalog.DropTable(c.DropTableRequest(name=wire.table))
    wire.create(location=f"{tmp_path}/place")
