"""Translates errors of gRPC into Lakemark's: users never see a ``grpc.RpcError``."""

from __future__ import annotations

from typing import Final

import grpc
from google.protobuf.message import DecodeError

from lakemark_core.errors import (
    AlreadyExists,
    CommitConflict,
    DeadlineExceeded,
    DeadlineUnknown,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    LakemarkError,
    LimitExceeded,
    NotFound,
    Outcome,
    Overloaded,
    Unavailable,
    Unimplemented,
    UnknownOutcome,
    by_code,
)
from lakemark_proto.v1.types_pb2 import ErrorDetail

DETAIL_KEY: Final = "lakemark-error-bin"

_BY_STATUS: Final[dict[grpc.StatusCode, type[LakemarkError]]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgument,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.PERMISSION_DENIED: FailedPrecondition,
    grpc.StatusCode.UNAUTHENTICATED: FailedPrecondition,
    grpc.StatusCode.ABORTED: CommitConflict,
    grpc.StatusCode.RESOURCE_EXHAUSTED: LimitExceeded,
    grpc.StatusCode.INTERNAL: Internal,
    grpc.StatusCode.DATA_LOSS: Internal,
}
_RETRYABLE: Final[dict[grpc.StatusCode, type[LakemarkError]]] = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
}
_UNKNOWN: Final[dict[grpc.StatusCode, type[LakemarkError]]] = {grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineUnknown}
# Phrases in gRPC's messages: the server has no room, and the request never left this machine.
_TOO_MANY: Final = "concurrent rpc limit exceeded"
_NOT_SENT: Final = (
    "failed to connect",
    "connection refused",
    "dns resolution failed",
    "name resolution failure",
    "errors resolving",
)
# Phrases that make waiting pointless: the machine refuses the connection, or does not exist.
_REFUSED: Final = "connection refused"
_NO_MACHINE: Final = ("domain name not found", "name or service not known")


def is_away(error: grpc.RpcError) -> bool:
    """Whether the connection failed: no service has answered."""
    return isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNAVAILABLE and not _from_trailer(error)


def is_not_sent(error: grpc.RpcError) -> bool:
    """Whether the request never left this machine, so that it had no effect."""
    return is_away(error) and _says(error, _NOT_SENT)


def nobody_listens(error: grpc.RpcError) -> bool:
    """Whether the address is wrong or its service is not running. A slow connection is neither."""
    return is_not_sent(error) and _says(error, (_REFUSED, *_NO_MACHINE))


def translate(error: grpc.RpcError, target: str, *, mutation: bool) -> LakemarkError:
    """The error that the service sent; without one, an error that fits the status.

    ``mutation``: whether the request changes something, so that without an answer its outcome is unknown.
    """
    if not isinstance(error, grpc.Call):
        return Internal(f"the call to {target} failed: {error}")
    sent = _from_trailer(error)
    return sent if sent is not None else _from_status(error, target, mutation=mutation)


def _says(error: grpc.RpcError, words: tuple[str, ...]) -> bool:
    text = (error.details() or "") if isinstance(error, grpc.Call) else ""
    return any(phrase in text.lower() for phrase in words)


def _from_trailer(call: grpc.Call) -> LakemarkError | None:
    for key, value in call.trailing_metadata() or ():
        if key == DETAIL_KEY and isinstance(value, bytes):
            try:
                detail = ErrorDetail.FromString(value)
            except DecodeError:
                return None
            return _class_of(detail, call.code())(detail.message, **dict(detail.details))
    return None


def _class_of(detail: ErrorDetail, status: grpc.StatusCode) -> type[LakemarkError]:
    """The class of an error.

    A code that is not known here, from a store or a later release, gets the class of its family: whether to retry and
    whether the change may have happened must not depend on knowing the code.
    """
    known = by_code(detail.code)
    if known.code == detail.code:
        return known
    if detail.outcome == Outcome.RETRYABLE:
        return _RETRYABLE.get(status, Unavailable)
    if detail.outcome == Outcome.UNKNOWN:
        return _UNKNOWN.get(status, UnknownOutcome)
    return _BY_STATUS.get(status, Internal)


def _from_status(call: grpc.Call, target: str, *, mutation: bool) -> LakemarkError:
    status, text = call.code(), call.details() or ""
    match status:
        case grpc.StatusCode.UNAVAILABLE:
            if any(words in text.lower() for words in _NOT_SENT):
                return Unavailable(
                    f"no Lakemark service answers at {target}; is it running? Start one with 'lakemark serve', or give "
                    f"the address of one that runs ({_briefly(text)})",
                    server=target,
                )
            if not mutation:
                return Unavailable(f"the service at {target} went away; try again ({text})", server=target)
            return _unknown(f"the connection to {target} broke ({text})", target)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            what = f"the service at {target} did not answer in time"
            if mutation:
                return DeadlineUnknown(_look(what), server=target)
            return DeadlineExceeded(f"{what}; try again, or give it more time", server=target)
        case grpc.StatusCode.CANCELLED | grpc.StatusCode.UNKNOWN:
            what = f"the service at {target} failed ({text})"
            return _unknown(what, target) if mutation else Unavailable(f"{what}; try again", server=target)
        case grpc.StatusCode.RESOURCE_EXHAUSTED if _TOO_MANY in text.lower():
            return Overloaded(f"the service at {target} has too many requests; try again", server=target)
        case grpc.StatusCode.UNIMPLEMENTED:
            return Unimplemented(f"the service at {target} cannot do this; it may be another release ({text})")
        case _:
            return _BY_STATUS.get(status, Internal)(text or f"the service at {target} answered {status.name}")


def _briefly(text: str) -> str:
    """Shortens gRPC's messages for the two common reasons, which are long and say no more."""
    if _REFUSED in text.lower():
        return _REFUSED
    if any(phrase in text.lower() for phrase in _NO_MACHINE):
        return "there is no machine of this name"
    return text


def _unknown(what: str, target: str) -> UnknownOutcome:
    return UnknownOutcome(_look(what), server=target)


def _look(what: str) -> str:
    return f"{what}: the change may have happened; ask again with the same request id, or look"
