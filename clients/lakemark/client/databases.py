"""Functions on databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import uuid4

from lakemark.arguments import checked
from lakemark.client.calls import Calls
from lakemark.client.model import Database, database_from
from lakemark_proto.v1 import catalog_pb2 as pb
from lakemark_proto.v1.catalog_pb2_grpc import CatalogServiceStub


@checked
class Databases:
    """``client.databases``."""

    def __init__(self, calls: Calls) -> None:
        self._call = calls
        self._stub = CatalogServiceStub(calls.channel)

    def create(
        self,
        name: str,
        *,
        location: str = "",
        description: str = "",
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> Database:
        """Creates a database.

        ``location`` "": a directory in the service's warehouse. Raises AlreadyExists, InvalidName.
        """
        database = pb.Database(name=name, location=location, description=description, properties=properties)
        request = pb.CreateDatabaseRequest(database=database, if_not_exists=if_not_exists, request_id=str(uuid4()))
        return database_from(self._call(self._stub.CreateDatabase, request, mutation=True))

    def get(self, name: str) -> Database:
        """The database with this name. Raises DatabaseNotFound."""
        return database_from(self._call(self._stub.GetDatabase, pb.GetDatabaseRequest(name=name)))

    def list(self) -> list[str]:
        """The names of all databases, in order."""
        return list(self._names())

    def drop(self, name: str, *, if_exists: bool = False) -> None:
        """Drops a database, which must be empty. Raises DatabaseNotFound, NotEmpty."""
        request = pb.DropDatabaseRequest(name=name, if_exists=if_exists, request_id=str(uuid4()))
        self._call(self._stub.DropDatabase, request, mutation=True, tell_user=True)

    def _names(self) -> Iterator[str]:
        token = ""
        while True:
            answer = self._call(self._stub.ListDatabases, pb.ListDatabasesRequest(page_token=token))
            yield from answer.names
            token = answer.next_page_token
            if not token:
                return
