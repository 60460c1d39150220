"""Dropping tables, and bringing them back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

from lakemark.arguments import Natural, checked
from lakemark.client.calls import Calls
from lakemark.client.model import Table, table_from
from lakemark.client.names import parse_table_name
from lakemark_proto.v1 import catalog_pb2 as pb
from lakemark_proto.v1.catalog_pb2_grpc import CatalogServiceStub


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A lake table that was dropped and can be brought back until ``until_ms``, when it is deleted.

    Times are milliseconds since 1970. ``dropped_by``: ``user@host`` and the address of the connection, as far as known.
    ``version``, ``files`` and ``size_bytes`` are those of its main branch when it was dropped; None: unreadable.
    ``keeps_files``: its data files will not be deleted with it.
    """

    name: str
    table_id: int
    location: str
    dropped_ms: int
    until_ms: int
    dropped_by: str
    keeps_files: bool
    version: int | None
    files: int | None
    size_bytes: int | None


def dropped_from(message: pb.DroppedTable) -> DroppedTable:
    """A dropped table, from a message."""
    return DroppedTable(
        name=f"{message.name.database}.{message.name.table}",
        table_id=message.table_id,
        location=message.location,
        dropped_ms=message.dropped_ms,
        until_ms=message.until_ms,
        dropped_by=message.dropped_by,
        keeps_files=message.keeps_files,
        version=message.version if message.HasField("version") else None,
        files=message.files if message.HasField("files") else None,
        size_bytes=message.size_bytes if message.HasField("size_bytes") else None,
    )


@checked
class TableDrops:
    """The part of ``client.tables`` that drops tables and brings them back."""

    _call: Calls
    _stub: CatalogServiceStub

    def drop(self, name: str, *, if_exists: bool = False, purge: bool = True, now: bool = False) -> DroppedTable | None:
        """Drops a table; its name becomes free.

        A lake table can be brought back by ``undrop`` until ``until_ms`` of the result. The result is None if it
        cannot: because of ``now``, or a setting of the table or the service. ``purge``: delete the data when the table
        is deleted, unless the user chose its location. Raises TableNotFound, FailedPrecondition if the table is
        protected.
        """
        request = pb.DropTableRequest(
            name=parse_table_name(name), if_exists=if_exists, purge=purge, now=now, request_id=str(uuid4())
        )
        answer = self._call(self._stub.DropTable, request, mutation=True, tell_user=True)
        return dropped_from(answer.dropped) if answer.HasField("dropped") else None

    def dropped(self, database: str = "") -> list[DroppedTable]:
        """Lake tables that were dropped and can be brought back, in order of name; ``database`` "": of all
        databases."""
        return list(self._dropped(database))

    def undrop(self, name: str, new_name: str = "", *, table_id: Natural = 0) -> Table:
        """Brings a dropped lake table back, with its versions, branches and tags, under its own name or ``new_name``.

        If several had the name, it is the one dropped last, or ``table_id``. Raises TableNotFound if there is none,
        AlreadyExists if the name is taken.
        """
        database, _, table = new_name.rpartition(".")
        request = pb.UndropTableRequest(
            name=parse_table_name(name),
            table_id=table_id,
            new_database=database,
            new_name=table,
            request_id=str(uuid4()),
        )
        return table_from(self._call(self._stub.UndropTable, request, mutation=True, tell_user=True))

    def purge(self, name: str, *, table_id: Natural = 0) -> None:
        """Deletes a dropped lake table before its time is over. ``table_id``: which one, if several had the name.

        Raises TableNotFound if there is none, InvalidArgument if there are several.
        """
        request = pb.PurgeTableRequest(name=parse_table_name(name), table_id=table_id, request_id=str(uuid4()))
        self._call(self._stub.PurgeTable, request, mutation=True, tell_user=True)

    def _dropped(self, database: str) -> Iterator[DroppedTable]:
        token = ""
        while True:
            request = pb.ListDroppedTablesRequest(database=database, page_token=token)
            answer = self._call(self._stub.ListDroppedTables, request)
            yield from map(dropped_from, answer.tables)
            token = answer.next_page_token
            if not token:
                return
