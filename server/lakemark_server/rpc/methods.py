"""What lies between gRPC and the servicers: bytes to messages and back, threads, admission, deadlines, errors.

Requests arrive on the event loop (``rpc.loop``) as bytes. A thread of a lane runs a servicer's ordinary method. It
decodes and encodes too, so that a large request or a slow plan delays no other request. What a servicer offers in
``quick`` runs on the loop itself and costs no thread: small requests that wait for a batch (``timeline.jobs``), and
plans that take less time than the way to a thread and back (``rpc.plans``).
Whether its tenant may make a request, and whether there is room for it, is decided before the request waits or runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import grpc
import structlog
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from lakemark_core.errors import Internal, LakemarkError, Unimplemented
from lakemark_server.admission.ranks import Rank
from lakemark_server.admission.tenants import Entered, Tenants
from lakemark_server.context import caller, deadline
from lakemark_server.context.deadline import Deadline
from lakemark_server.metrics.process import REQUEST_ERRORS, REQUESTS
from lakemark_server.rpc.admission import Admission, Receiving
from lakemark_server.rpc.declaration import rank_of
from lakemark_server.rpc.errors import abort
from lakemark_server.rpc.lanes import Lanes
from lakemark_server.rpc.quick import QUICK_BYTES_MAX, Quick
from lakemark_server.rpc.requests import Context, caller_of, deadline_of, decoder
from lakemark_server.rpc.streams import streamed

T = TypeVar("T")
_PROTOCOL: Final = "grpc"
_Call: TypeAlias = Callable[[bytes, Context], Awaitable[bytes]]
_log = structlog.get_logger(__name__)


class Methods(grpc.GenericRpcHandler):
    """All methods of some services. The servicer's method of the same name serves each, or the entry of that name in
    its ``quick``. None has a stream of requests; some answer with a stream (``rpc.streams``).

    They are not registered one by one with gRPC, whose asyncio server does work for each registered method at each
    request. ``request_s_max``: the longest time of a request whose client has set no deadline, or a later one. Raises
    TypeError for a method that declares no rank.
    """

    def __init__(
        self,
        servicers: Mapping[ServiceDescriptor, object],
        lanes: Lanes,
        tenants: Tenants,
        receiving: Receiving,
        request_s_max: float,
    ) -> None:
        def handler(servicer: object, method: MethodDescriptor) -> grpc.RpcMethodHandler[Any, Any]:
            rank = rank_of(servicer, method.name)
            admission = Admission(rank, method.input_type, tenants)
            behaviour = getattr(servicer, method.name)
            if method.server_streaming:
                stream = streamed(method, behaviour, lanes, admission, request_s_max)
                return grpc.stream_stream_rpc_method_handler(_received(stream, method.name, rank, receiving))
            quick = getattr(servicer, "quick", {}).get(method.name)
            call = _measured(_served(method, behaviour, quick, lanes, admission, request_s_max), method.name)
            return grpc.stream_unary_rpc_method_handler(_received(call, method.name, rank, receiving))

        self._handlers = {
            f"/{service.full_name}/{method.name}": handler(servicer, method)
            for service, servicer in servicers.items()
            for method in service.methods
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        return self._handlers.get(str(handler_call_details.method))


def _served(
    method: MethodDescriptor,
    behaviour: Callable[[Any, Any], Any],
    quick: Quick | None,
    lanes: Lanes,
    admission: Admission,
    request_s_max: float,
) -> _Call:
    decoded = decoder(method.input_type)

    def whole(data: bytes, context: Context, until: Deadline, name: caller.Name) -> bytes:
        with deadline.within(until), caller.named(name):
            until.check()  # it may have waited long for this thread
            answer: bytes = behaviour(decoded(data), context).SerializeToString()
            return answer

    async def in_lane(data: bytes, context: Context) -> bytes:
        until = deadline_of(context, request_s_max)
        return await by_thread(data, context, until, caller_of(context), admission.enter(data))

    async def by_thread(
        data: bytes, context: Context, until: Deadline, name: caller.Name, entered: Entered | None
    ) -> bytes:
        try:
            work = partial(whole, data, context, until, name)
            answer = lanes.run(admission.rank, work, len(data), partial(admission.leave, entered))
        except LakemarkError:
            admission.leave(entered)
            raise
        try:
            return await answer
        except asyncio.CancelledError:
            until.abandon()
            raise
        finally:
            del answer  # it may hold an error, whose traceback holds this frame and with it the request

    async def quickly(data: bytes, context: Context) -> bytes:
        if quick is None or len(data) > QUICK_BYTES_MAX:
            return await in_lane(data, context)
        name = caller_of(context)
        with caller.named(name):
            taken = quick.takes(decoded(data))
        if taken is None:
            return await in_lane(data, context)
        until = deadline_of(context, request_s_max)
        entered = admission.enter(data)
        try:
            with lanes.on_loop(admission.rank, len(data)), deadline.within(until):
                answer = await quick.answer(taken)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                until.abandon()
            admission.leave(entered)
            raise
        if answer is None:
            return await by_thread(data, context, until, name, entered)
        admission.leave(entered)
        return answer.SerializeToString()

    return in_lane if quick is None else quickly


def _measured(call: _Call, method: str) -> _Call:
    async def answer(data: bytes, context: Context) -> bytes:
        since = time.perf_counter()
        try:
            return await call(data, context)
        finally:
            REQUESTS.observe(time.perf_counter() - since, _PROTOCOL, method)

    return answer


def _received(
    call: Callable[[bytes, Context], Awaitable[T]], method: str, rank: Rank, receiving: Receiving
) -> Callable[[object, Context], Awaitable[T]]:
    """Serves a unary call as a stream of requests, so that its request is received only when its turn has come."""

    async def answer(_: object, context: Context) -> T:
        try:
            return await call(await receiving.message(rank, context), context)
        except LakemarkError as error:
            REQUEST_ERRORS.add(_PROTOCOL, method, error.code)
            return await abort(context, error)
        except NotImplementedError:
            return await abort(context, Unimplemented(f"{method} is not available in this release"))
        except Exception as error:
            _log.exception("request failed", method=method)
            REQUEST_ERRORS.add(_PROTOCOL, method, Internal.code)
            error.__traceback__ = None  # its frames hold the request
            defect = Internal(f"{method} failed by a defect of the service; its log has the details")
            return await abort(context, defect)

    return answer
