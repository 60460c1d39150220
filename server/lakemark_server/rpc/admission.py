"""Admission of gRPC requests: the tenant of each request, when it is received, and whether it may go ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from lakemark_core.errors import DeadlineExceeded, InvalidArgument
from lakemark_server.admission.ranks import Rank
from lakemark_server.admission.tenants import Entered, Tenants
from lakemark_server.catalog.names import DEFAULT_CATALOG, NAME_CHARS_MAX, catalog_name
from lakemark_server.rpc.wire_scan import find_text

_DEPTH_MAX: Final = 2

RECEIVE_S_MAX: Final = 120.0
"""From the turn of a request until it is whole."""


def tenant_reader(request: Descriptor) -> Callable[[bytes], str]:
    """A function that finds the tenant of such a request before the request is decoded.

    The tenant is the request's field ``catalog``, or that of the first object which the request names. A request that
    names nothing is the default tenant's.
    """
    path = tuple((field.number, field.is_repeated) for field in _path(request, _DEPTH_MAX))

    def read(data: bytes) -> str:
        text = find_text(data, path)
        # No catalog has so long a name. The request will fail, and must not count as another tenant's.
        if not text or len(text) > NAME_CHARS_MAX:
            return DEFAULT_CATALOG
        return catalog_name(text.decode(errors="replace"))

    return read if path else lambda _: DEFAULT_CATALOG


def _path(message: Descriptor, depth: int) -> list[FieldDescriptor]:
    if "catalog" in message.fields_by_name:
        return [message.fields_by_name["catalog"]]
    if depth:
        for field in message.fields:
            if field.message_type is not None:
                below = _path(field.message_type, depth - 1)
                if below:
                    return [field, *below]
    return []


class Receiving:
    """Bounds how many requests are received at a time.

    gRPC holds a whole message in memory before the service can look at it, and its size is not known before. Each of
    the messages that are received at a time may be as large as gRPC's limit; the others wait with what fits into one
    window of HTTP/2.

    ``turns``: how many requests of one rank are received at a time; twice as many for writes.
    """

    def __init__(self, turns: int) -> None:
        self._turns = {rank: asyncio.Semaphore(2 * turns if rank is Rank.WRITE else turns) for rank in Rank}
        self._since: dict[asyncio.Task[Any], float] = {}  # the calls being received, oldest first
        self._late: set[asyncio.Task[Any]] = set()
        self._watching = False

    async def message(self, rank: Rank, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        """The call's only message. Raises InvalidArgument if there is none, DeadlineExceeded if it is slow."""
        async with self._turns[rank]:
            data = await self._in_time(context)
        if not isinstance(data, bytes):  # the end of a stream without messages
            raise InvalidArgument("the call has no request")
        return data

    async def _in_time(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> object:
        """One timer serves all calls: one for each, started and stopped, would cost a small request 50 us."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._since[task] = asyncio.get_running_loop().time()
        if not self._watching:
            self._watch()
        try:
            return await context.read()
        except asyncio.CancelledError:
            if task in self._late and not task.uncancel():
                raise DeadlineExceeded(f"the request did not come whole within {RECEIVE_S_MAX:g} s") from None
            raise
        finally:
            del self._since[task]
            self._late.discard(task)

    def _watch(self) -> None:
        """Ends the calls whose time is over, and runs again when the next one's is."""
        loop = asyncio.get_running_loop()
        for task, since in self._since.items():
            if task in self._late:
                continue
            if loop.time() < since + RECEIVE_S_MAX:
                self._watching = True
                loop.call_at(since + RECEIVE_S_MAX, self._watch)
                return
            self._late.add(task)
            task.cancel()
        self._watching = False


class Admission:
    """Whether a request of one method may go ahead."""

    def __init__(self, rank: Rank, request: Descriptor, tenants: Tenants) -> None:
        self.rank = rank
        self._tenants = tenants
        self._tenant_of = tenant_reader(request)

    def enter(self, data: bytes) -> Entered | None:
        """Counts the request until ``leave`` is called with the result. Raises Overloaded. Does not block."""
        if self.rank is Rank.VITAL:
            return None
        return self._tenants.enter(self._tenant_of(data), self.rank)

    def leave(self, entered: Entered | None) -> None:
        if entered is not None:
            self._tenants.leave(entered)
