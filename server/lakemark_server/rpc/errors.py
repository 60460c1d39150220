"""Errors on the wire: one interceptor turns every exception of a method into a gRPC status with details."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import grpc
import structlog

from lakemark.errors import Internal, LakemarkError, Unimplemented
from lakemark_proto.v1.types_pb2 import ErrorDetail

TRAILER = "lakemark-error-bin"
_DETAIL_CHARS_MAX = 2_000
_MESSAGE_CHARS_MAX = 3_000
_log = structlog.get_logger(__name__)


class ErrorInterceptor(grpc.ServerInterceptor):
    """Wraps unary methods, the only ones that the services have."""

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        inner, method = handler.unary_unary, str(handler_call_details.method)

        def wrapped(request: Any, context: grpc.ServicerContext) -> Any:
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
            wrapped, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )


def abort(context: grpc.ServicerContext, error: LakemarkError) -> NoReturn:
    """Ends the call with the error's status; code, outcome and details travel in the trailer."""
    message = error.message[:_MESSAGE_CHARS_MAX]
    detail = ErrorDetail(
        code=error.code,
        message=message,
        details={key: str(value)[:_DETAIL_CHARS_MAX] for key, value in error.details.items()},
        outcome=error.outcome.value,
    )
    context.set_trailing_metadata(((TRAILER, detail.SerializeToString()),))
    context.abort(grpc.StatusCode[error.grpc_status], message)
