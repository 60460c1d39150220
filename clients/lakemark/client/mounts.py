"""Mounts: databases of outside Hive Metastores, read through under names of ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from uuid import uuid4

from lakemark.arguments import Between, checked
from lakemark.client.calls import Calls
from lakemark_proto.v1 import mounts_pb2 as pb
from lakemark_proto.v1.mounts_pb2_grpc import MountServiceStub


@dataclass(frozen=True, slots=True)
class Mount:
    """The database ``name`` here is ``database`` of the Metastore at ``uri``; answers are kept for ``cache_ms``."""

    catalog: str
    name: str
    uri: str
    database: str
    cache_ms: int
    owner: str
    created_ms: int


@checked
class Mounts:
    """``client.mounts``. ``catalog`` "" is the default catalog."""

    def __init__(self, calls: Calls) -> None:
        self._call = calls
        self._stub = MountServiceStub(calls.channel)

    def create(
        self,
        name: str,
        uri: str,
        database: str = "",
        *,
        cache_s: Annotated[float, Between(0, 86_400)] = 10,
        catalog: str = "",
    ) -> Mount:
        """Shows a database of the Metastore at ``uri`` (``thrift://host:9083``) under a name here, to be read.

        ``database`` "": of the same name. Raises AlreadyExists (also for a database of ours), InvalidName,
        InvalidArgument.
        """
        request = pb.CreateMountRequest(
            catalog=catalog,
            name=name,
            uri=uri,
            database=database,
            cache_ms=int(cache_s * 1_000),
            request_id=str(uuid4()),
        )
        return _from(self._call(self._stub.CreateMount, request, mutation=True, tell_user=True))

    def get(self, name: str, *, catalog: str = "") -> Mount:
        """Raises NotFound."""
        return _from(self._call(self._stub.GetMount, pb.GetMountRequest(catalog=catalog, name=name)))

    def list(self, *, catalog: str = "") -> list[Mount]:
        """In order of name."""
        return [_from(one) for one in self._call(self._stub.ListMounts, pb.ListMountsRequest(catalog=catalog)).mounts]

    def drop(self, name: str, *, if_exists: bool = False, catalog: str = "") -> bool:
        """Whether there was one. Nothing happens outside. Raises NotFound."""
        request = pb.DropMountRequest(catalog=catalog, name=name, if_exists=if_exists, request_id=str(uuid4()))
        return self._call(self._stub.DropMount, request, mutation=True).dropped


def _from(message: pb.Mount) -> Mount:
    return Mount(
        message.catalog,
        message.name,
        message.uri,
        message.database,
        message.cache_ms,
        message.owner,
        message.created_ms,
    )
