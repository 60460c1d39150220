"""Turns a whole request into the bytes of its answer: runs the handler of its method, and maps its errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from lakemark_core.errors import Internal, LakemarkError
from lakemark_hms.wire import codec
from lakemark_hms.wire.cut import STRUCT, Cut, cut
from lakemark_hms.wire.inbox import Message
from lakemark_thrift.base import DeclaredError, Struct
from lakemark_thrift.services import METHODS, Method

log = logging.getLogger(__name__)

T = TypeVar("T", bound="Struct | DeclaredError")


def _request_of(method: Method) -> str | None:
    """The name of the only argument, if that is a struct."""
    arguments = [field for field in method.args.thrift_spec if field is not None]
    return arguments[0][2] if len(arguments) == 1 and arguments[0][1] == STRUCT else None


_REQUESTS: Final[Mapping[str, str]] = {
    name: request for name, method in METHODS.items() if (request := _request_of(method)) is not None
}


class Session:
    """The state of one connection, from its first to its last call.

    ``user`` and ``groups`` are those of ``set_ugi``, unless the client has proved who it is, by the SASL ``mechanism``;
    ``data`` belongs to the handlers, and is emptied once the connection is closed. The calls of one connection run one
    at a time, so handlers need no lock here.
    """

    __slots__ = ("data", "groups", "mechanism", "peer", "proven", "user")

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.user: str | None = None
        self.groups: list[str] = []
        self.data: dict[str, Any] = {}
        self.proven = False
        self.mechanism = ""

    def prove(self, user: str, mechanism: str) -> None:
        """The client has proved to be this user, and can be no other from now on."""
        self.user, self.proven, self.mechanism = user, True, mechanism


class Call:
    """One request, and the session of its connection."""

    __slots__ = ("_args", "message", "method", "session")

    def __init__(self, method: Method, message: Message, session: Session) -> None:
        self.method = method
        self.message = message
        self.session = session
        self._args: Struct | None = None

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def seqid(self) -> int:
        return self.message.header.seqid

    @property
    def body(self) -> bytes:
        """The serialized struct of the arguments."""
        return self.message.data[self.message.header.body : self.message.end]

    @property
    def args(self) -> Any:
        """The decoded arguments (``lakemark_thrift.services.<method>_args``).

        Raises WireError, also if the only argument is a struct and was not sent.
        """
        if self._args is None:
            args = self.read(self.method.args)
            request = _REQUESTS.get(self.name)
            if request is not None and getattr(args, request) is None:
                raise codec.WireError(f"{self.name} came without its argument {request}")
            self._args = args
        return self._args

    def read(self, kind: type[T]) -> T:
        """The arguments decoded as ``kind``: typed, or as an older release sends them. Raises WireError."""
        return codec.decode_struct(kind, self.message.data, self.message.header.body)

    def cut(self, kind: type[T], *path: int) -> list[Cut[T]]:
        """The structs at a path of field ids in the arguments, with the bytes that the client sent.

        ``call.cut(Partition, 1, 3)`` are the partitions of ``add_partitions_req``: field 3 of argument 1, the request.
        """
        return cut(kind, self.message.data, self.message.header.body, path)


# Returns the method's result, or the bytes of a whole reply; None for a method that returns nothing.
Handler = Callable[[Call], object]

# The declared exception for an error; None if the method declares none that fits.
ErrorMapper = Callable[[Method, Exception], DeclaredError | None]


# Runs a handler for a call, or raises RefusedError instead.
Run = Callable[[Call, Handler], object]


class RefusedError(Exception):
    """The call was not begun and may be repeated later. The text says why and when."""


def run_all(call: Call, handler: Handler) -> object:
    """A Run that refuses nothing."""
    return handler(call)


def no_mapping(_method: Method, _error: Exception) -> DeclaredError | None:
    """An ErrorMapper that maps no error."""
    return None


class Dispatcher:
    """Answers requests by the handlers of their methods.

    An error is answered as itself if the method declares it, else as what ``error_mapper`` returns, else as a
    TApplicationException with its text. Methods without a handler are answered as unknown.
    """

    def __init__(
        self, handlers: Mapping[str, Handler], error_mapper: ErrorMapper = no_mapping, run: Run = run_all
    ) -> None:
        strange = sorted(set(handlers) - set(METHODS))
        if strange:
            raise ValueError(f"handlers for methods that the contract does not have: {', '.join(strange)}")
        self._handlers = dict(handlers)
        self._error_mapper = error_mapper
        self._run = run

    def answer(self, message: Message, session: Session) -> bytes | None:
        """The whole reply, or None if the call gets none. Never raises."""
        header = message.header
        handler = self._handlers.get(header.name)
        if handler is None:
            if header.kind == codec.ONEWAY:
                return None
            text = f"the method {header.name} is not served here"
            return codec.application_error(header.name, header.seqid, codec.UNKNOWN_METHOD, text)
        method = METHODS[header.name]
        try:
            result = self._run(Call(method, message, session), handler)
            if method.oneway or header.kind == codec.ONEWAY:
                return None
            if isinstance(result, bytes):
                return result
            return codec.encode_reply(method, header.seqid, result)
        except RefusedError as error:
            return self.refuse(message, session, str(error))
        except Exception as error:
            reply = self._answer_error(method, header.seqid, error, session)
            return None if method.oneway or header.kind == codec.ONEWAY else reply

    def refuse(self, message: Message, session: Session, reason: str) -> bytes | None:
        """The reply to a call that is not begun. Clients take an application error for a temporary one."""
        header = message.header
        log.info("refused %s from %s: %s", header.name, session.peer, reason)
        if header.kind == codec.ONEWAY:
            return None
        return codec.application_error(header.name, header.seqid, codec.INTERNAL_ERROR, reason)

    def _answer_error(self, method: Method, seqid: int, error: Exception, session: Session) -> bytes:
        if isinstance(error, DeclaredError):
            reply = codec.encode_declared(method, seqid, error)
            if reply is None:  # as Hive's service does where it throws what its interface does not have
                log.info("%s from %s: %s", method.name, session.peer, error)
                reply = codec.application_error(method.name, seqid, codec.INTERNAL_ERROR, f"{method.name}: {error}")
            return reply
        if isinstance(error, codec.WireError):
            log.warning("%s from %s: %s", method.name, session.peer, error)
            return codec.application_error(method.name, seqid, codec.PROTOCOL_ERROR, str(error))
        try:
            mapped = self._error_mapper(method, error)
            reply = None if mapped is None else codec.encode_declared(method, seqid, mapped)
        except Exception:
            log.exception("the error mapper failed on %r", error)
            reply = None
        if reply is not None:
            return reply
        if isinstance(error, LakemarkError) and not isinstance(error, Internal):
            # What the client asked for, of a method that declares no error that fits.
            log.info("%s from %s: %s", method.name, session.peer, error)
        else:
            log.error("%s from %s failed", method.name, session.peer, exc_info=error)
        text = f"{method.name} failed: {error}" if str(error) else f"{method.name} failed: {type(error).__name__}"
        return codec.application_error(method.name, seqid, codec.INTERNAL_ERROR, text)
