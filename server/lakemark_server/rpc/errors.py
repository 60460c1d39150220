"""Errors on the wire: one interceptor turns every exception of a method into a gRPC status with details."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import grpc
import structlog

from lakemark.errors import Internal, LakemarkError, Unimplemented
from lakemark_proto.v1.types_pb2 import ErrorDetail

TRAILER = "lakemark-error-bin"
# Clients take 8 kB of metadata unless told otherwise. The message travels twice; in the status each byte that is not
# printable ASCII takes three.
_MESSAGE_COST_MAX = 2_400
_DETAIL_COST_MAX = 600
_DETAILS_COST_MAX = 1_200
_log = structlog.get_logger(__name__)


class ErrorInterceptor(grpc.ServerInterceptor):
    """Wraps unary methods, the only ones that the services have."""

    def __init__(self) -> None:
        self._wrapped: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}  # by method: made at its first request

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        method = str(handler_call_details.method)
        if method not in self._wrapped:
            handler = continuation(handler_call_details)
            if handler is None or handler.unary_unary is None:
                return handler
            self._wrapped[method] = _wrapped(handler, handler.unary_unary, method)
        return self._wrapped[method]


def _wrapped(
    handler: grpc.RpcMethodHandler[Any, Any], inner: Callable[[Any, grpc.ServicerContext], Any], method: str
) -> grpc.RpcMethodHandler[Any, Any]:
    def call(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return inner(request, context)
        except LakemarkError as error:
            abort(context, error)
        except NotImplementedError:
            abort(context, Unimplemented(f"{method.rsplit('/', 1)[-1]} is not available in this release"))
        except Exception:
            if not context.is_active():
                raise
            _log.exception("request failed", method=method)
            abort(context, Internal(f"{method} failed by a defect of the service; its log has the details"))

    return grpc.unary_unary_rpc_method_handler(
        call, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
    )


def abort(context: grpc.ServicerContext, error: LakemarkError) -> NoReturn:
    """Ends the call with the error's status; code, outcome and details travel in the trailer."""
    message = shortened(error.message, _MESSAGE_COST_MAX)
    detail = ErrorDetail(code=error.code, message=message, outcome=error.outcome.value)
    left = _DETAILS_COST_MAX
    for key, value in error.details.items():
        detail.details[key] = shortened(value, min(left, _DETAIL_COST_MAX))
        left -= wire_cost(detail.details[key])
    context.set_trailing_metadata(((TRAILER, detail.SerializeToString()),))
    context.abort(grpc.StatusCode[error.grpc_status], message)


def wire_cost(text: str) -> int:
    """Bytes that ``text`` takes as the text of a gRPC status."""
    return sum(1 if " " <= char <= "~" else 3 * len(char.encode(errors="replace")) for char in text)


def shortened(text: str, cost_max: int) -> str:
    """The beginning of ``text`` that costs no more, with "…" if something is missing."""
    if wire_cost(text) <= cost_max:
        return text
    left, kept = cost_max - wire_cost("…"), 0
    for char in text:
        left -= wire_cost(char)
        if left < 0:
            break
        kept += 1
    return text[:kept] + "…"
