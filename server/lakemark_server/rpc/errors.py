"""Errors on the wire: a gRPC status with details."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc

from lakemark_core.errors import LakemarkError
from lakemark_proto.v1.types_pb2 import ErrorDetail

TRAILER = "lakemark-error-bin"
# Clients accept 8 kB of metadata by default. The message is sent twice; in the status, each byte that is not printable
# ASCII takes three.
_MESSAGE_COST_MAX = 2_400
_DETAIL_COST_MAX = 600
_DETAILS_COST_MAX = 1_200


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: LakemarkError) -> NoReturn:
    """Ends the call with the error's status. The trailer has its code, outcome and details."""
    detail = detail_of(error)
    trailer: list[tuple[str, str | bytes]] = [(TRAILER, detail.SerializeToString())]
    if "retry_after_ms" in error.details:  # for clients that use gRPC's own retries (gRFC A6)
        trailer.append(("grpc-retry-pushback-ms", error.details["retry_after_ms"]))
    await context.abort(grpc.StatusCode[error.grpc_status], detail.message, tuple(trailer))


def detail_of(error: LakemarkError) -> ErrorDetail:
    """The error as a message that is no longer than clients accept by default."""
    message = shortened(error.message, _MESSAGE_COST_MAX)
    detail = ErrorDetail(code=error.code, message=message, outcome=error.outcome.value)
    left = _DETAILS_COST_MAX
    for key, value in error.details.items():
        detail.details[key] = shortened(value, min(left, _DETAIL_COST_MAX))
        left -= wire_cost(detail.details[key])
    return detail


def wire_cost(text: str) -> int:
    """How many bytes ``text`` takes as the text of a gRPC status."""
    return sum(1 if " " <= char <= "~" else 3 * len(char.encode(errors="replace")) for char in text)


def shortened(text: str, cost_max: int) -> str:
    """As much of ``text`` as costs at most ``cost_max``, with "…" at the end if it is cut."""
    if wire_cost(text) <= cost_max:
        return text
    left, kept = cost_max - wire_cost("…"), 0
    for char in text:
        left -= wire_cost(char)
        if left < 0:
            break
        kept += 1
    return text[:kept] + "…"
