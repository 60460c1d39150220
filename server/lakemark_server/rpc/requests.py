"""What is read of a request before its method runs: the message, who sends it, how long it may take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from lakemark_core.errors import InvalidArgument
from lakemark_core.user import USER_KEY
from lakemark_server.context import caller
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


def caller_of(context: Context) -> caller.Name:
    """Makes a text of who the client says it is, and where its connection comes from.

    For the thread of the event loop. The text can be made later and by any thread, also when the call is over: gRPC
    ends the process if the context is asked then.
    """
    return partial(_caller_text, context.invocation_metadata() or (), context.peer())


def _caller_text(metadata: Iterable[tuple[str, str | bytes]], peer: str) -> str:
    told = dict(metadata).get(USER_KEY, "")
    user = told.decode(errors="replace") if isinstance(told, bytes) else told
    return f"{user} ({peer})" if user else peer


def deadline_of(context: Context, request_s_max: float) -> Deadline:
    """A new deadline, also for a request without a time limit, because its client can leave."""
    seconds = context.time_remaining()
    return Deadline.after(request_s_max if seconds is None else min(seconds, request_s_max))
