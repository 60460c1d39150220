"""What is read of a request before its method runs: the message, who sends it, how long it may take."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from lakemark_core.errors import InvalidArgument
from lakemark_core.user import USER_KEY
from lakemark_server.context.deadline import Deadline

Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"


def decoder(request: Descriptor) -> Callable[[bytes], Message]:
    """A function that makes such a message of its bytes, and raises InvalidArgument for other bytes."""
    request_type: type[Message] = GetMessageClass(request)

    def decoded(data: bytes) -> Message:
        try:
            return request_type.FromString(data)
        except DecodeError as error:
            raise InvalidArgument(f"the request is not a {request_type.DESCRIPTOR.full_name}: {error}") from error

    return decoded


def caller_of(context: Context) -> str:
    """Who the client says it is, and where its connection comes from."""
    told = dict(context.invocation_metadata() or ()).get(USER_KEY, "")
    user = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
    return f"{user} ({context.peer()})" if user else str(context.peer())


def deadline_of(context: Context, request_s_max: float) -> Deadline:
    """A new deadline, also for a request without a time limit, because its client can leave."""
    seconds = context.time_remaining()
    return Deadline.after(request_s_max if seconds is None else min(seconds, request_s_max))
