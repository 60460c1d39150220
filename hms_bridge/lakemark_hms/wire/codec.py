"""Thrift messages: TBinaryProtocol headers in Python, structs by the C codec of Apache thrift.

A message is a header (name, kind, sequence number) and one struct. There are no frames on the socket, so the end of a
message is found only by walking its struct. The C codec walks against an empty specification: it allocates nothing,
checks every length against the bytes that are there, and stops at 64 levels of nesting, its built-in limit.
"""

from __future__ import annotations

from io import BytesIO
from struct import Struct as Layout
from typing import Any, NamedTuple, TypeVar

from thrift.protocol import fastbinary

from lakemark_thrift.base import DeclaredError, Struct
from lakemark_thrift.services import Method

CALL, REPLY, EXCEPTION, ONEWAY = 1, 2, 3, 4

# Numbers of TApplicationException.
UNKNOWN_METHOD, INVALID_MESSAGE_TYPE, MISSING_RESULT, INTERNAL_ERROR, PROTOCOL_ERROR = 1, 2, 5, 6, 7

METHOD_NAME_BYTES_MAX = 128
STRUCT_BYTES_MAX = 2**31 - 1

_VERSION_1 = 0x80010000
_I32 = Layout("!i")
_U32 = Layout("!I")
_NAME_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.")

T = TypeVar("T", bound="Struct | DeclaredError")


class WireError(Exception):
    """The bytes are not what the protocol asks for; the text says why."""


class TruncatedError(WireError):
    """The bytes end inside a struct; at least ``missing`` more are needed."""

    def __init__(self, missing: int) -> None:
        super().__init__("the bytes end inside a struct")
        self.missing = missing


class EncodeError(Exception):
    """A struct to be sent holds what its type cannot hold, which is a defect of the caller."""


class Header(NamedTuple):
    """The head of a message. ``body`` is the offset at which the struct starts."""

    name: str
    kind: int
    seqid: int
    body: int


class _Source:
    """What the C codec reads from: protocol and transport in one."""

    __slots__ = ("container_length_limit", "cstringio_buf", "string_length_limit", "trans")

    def __init__(self, data: bytes, at: int, length_max: int) -> None:
        # The C codec trusts the position. Beyond the end it would read other memory.
        if not 0 <= at <= len(data):
            raise TruncatedError(at - len(data))
        self.cstringio_buf = BytesIO(data)  # shares the bytes
        self.cstringio_buf.seek(at)
        self.string_length_limit = length_max
        self.container_length_limit = length_max
        self.trans = self

    def cstringio_refill(self, partial: bytes, wanted: int) -> BytesIO:
        """Called when ``wanted`` bytes are needed and only ``partial`` are there."""
        if wanted > self.string_length_limit:
            raise WireError(f"a string of {wanted} bytes, the limit is {self.string_length_limit}")
        raise TruncatedError(wanted - len(partial))


class _Nothing:
    """A struct without fields: decoding into it skips all of them."""


_SKIP: list[Any] = [_Nothing, ()]
_NOTHING = _Nothing()


def read_header(data: bytes, at: int = 0) -> Header | None:
    """The header at ``at``, or None when more bytes are needed. Raises WireError as soon as they cannot become one."""
    have = len(data) - at
    if have < 1:
        return None
    first = data[at]
    if first not in (0x80, 0x00) or (first == 0x80 and have >= 2 and data[at + 1] != 0x01):
        raise WireError(f"this is not a Thrift binary message: {_guess(data[at : at + 16])}")
    if have < 4:
        return None
    if first == 0x80:
        return _strict_header(data, at)
    return _old_header(data, at)


def _strict_header(data: bytes, at: int) -> Header | None:
    if len(data) - at < 8:
        return None
    kind, length = data[at + 3], _I32.unpack_from(data, at + 4)[0]
    end = _name_end(data, at + 8, length)
    if end is None or len(data) < end + 4:
        return None
    return Header(data[at + 8 : end].decode(), kind, _I32.unpack_from(data, end)[0], end + 4)


def _old_header(data: bytes, at: int) -> Header | None:
    """The form of clients that do not write a version: name, kind, sequence number."""
    end = _name_end(data, at + 4, _I32.unpack_from(data, at)[0])
    if end is None or len(data) < end + 5:
        return None
    return Header(data[at + 4 : end].decode(), data[end], _I32.unpack_from(data, end + 1)[0], end + 5)


def _name_end(data: bytes, at: int, length: int) -> int | None:
    """Where the method name ends, or None while it is not complete. Raises WireError if the bytes are not a name's."""
    if not 0 < length <= METHOD_NAME_BYTES_MAX:
        raise WireError(f"a method name of {length} bytes: not a Thrift binary message, or one in frames")
    name = data[at : at + length]
    if not _NAME_BYTES.issuperset(name):
        raise WireError(f"a method name cannot hold these bytes: {_guess(name[:16])}")
    return at + length if len(name) == length else None


def _guess(start: bytes) -> str:
    """The protocol that these bytes probably belong to."""
    if start[:4] in (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PRI "):
        return "an HTTP request"
    if start[:2] == b"\x16\x03":
        return "a TLS hello, but this port does not speak TLS"
    if start[:1] == b"\x82":
        return "Thrift's compact protocol"
    if start[:2] == b"\x80\x01":
        return "a Thrift message in frames, where none are expected"
    if start[:1] in (b"\x01", b"\x02"):
        return "a SASL negotiation, but this port does not speak SASL"
    return f"it starts with {start!r}"


def end_of_struct(data: bytes, at: int, length_max: int = STRUCT_BYTES_MAX, count: int = 1) -> int:
    """Offset behind the struct at ``at``, or behind ``count`` structs that follow each other.

    Raises TruncatedError when the bytes end before, and WireError when they are malformed, for instance by a string
    that claims more than ``length_max`` bytes.
    """
    source = _Source(data, at, length_max)
    try:
        for _ in range(count):
            fastbinary.decode_binary(_NOTHING, source, _SKIP)
    except WireError:
        raise
    except Exception as error:  # the C codec raises TypeError, ValueError, OverflowError and exceptions of thrift
        raise WireError(f"malformed Thrift struct: {error}") from None
    return source.cstringio_buf.tell()


def decode_struct(kind: type[T], data: bytes, at: int = 0) -> T:
    """The struct at ``at``; fields that ``kind`` does not know are skipped. Raises WireError."""
    return decode_with_end(kind, data, at)[0]


def decode_with_end(kind: type[T], data: bytes, at: int = 0) -> tuple[T, int]:
    """The struct at ``at`` and the offset behind it."""
    # No container can have more elements than the message has bytes: that bounds what is allocated.
    source = _Source(data, at, len(data) - at)
    result = kind()
    try:
        fastbinary.decode_binary(result, source, [kind, kind.thrift_spec])
    except WireError as error:
        raise WireError(f"malformed {kind.__name__}: {error}") from None
    except Exception as error:
        raise WireError(f"malformed {kind.__name__}: {error}") from None
    return result, source.cstringio_buf.tell()


def encode_struct(value: Struct | DeclaredError) -> bytes:
    """The struct alone, without a message around it. Raises EncodeError."""
    kind = type(value)
    try:
        return bytes(fastbinary.encode_binary(value, [kind, kind.thrift_spec]))
    except Exception as error:
        raise EncodeError(f"{kind.__name__} cannot be encoded: {error}") from error


def message_head(name: str, kind: int, seqid: int) -> bytes:
    """A header, always in the strict form, which readers of the old form accept."""
    text = name.encode()
    return _U32.pack(_VERSION_1 | kind) + _I32.pack(len(text)) + text + _I32.pack(seqid)


def encode_call(name: str, seqid: int, args: Struct, kind: int = CALL) -> bytes:
    """A whole request, as a client sends it."""
    return message_head(name, kind, seqid) + encode_struct(args)


def encode_reply(method: Method, seqid: int, success: object = None) -> bytes:
    """A whole reply with what the method returns (nothing when it returns nothing)."""
    head = message_head(method.name, REPLY, seqid)
    if method.result is None or method.success is None:
        return head + b"\0"
    if success is None:
        return application_error(method.name, seqid, MISSING_RESULT, f"{method.name} gave no result")
    result = method.result()
    result.success = success  # type: ignore[attr-defined]
    return head + encode_struct(result)


def encode_declared(method: Method, seqid: int, error: DeclaredError) -> bytes | None:
    """A whole reply with an exception that the method declares; None when it does not declare that one."""
    field_id = method.exceptions.get(type(error))
    if field_id is None:
        return None
    field = b"\x0c" + field_id.to_bytes(2, "big") + encode_struct(error)
    return message_head(method.name, REPLY, seqid) + field + b"\0"


def application_error(name: str, seqid: int, number: int, message: str) -> bytes:
    """A whole reply with a TApplicationException: its text is field 1, its number field 2."""
    text = message.encode("utf-8", "replace")
    body = b"\x0b\x00\x01" + _I32.pack(len(text)) + text + b"\x08\x00\x02" + _I32.pack(number) + b"\0"
    return message_head(name, EXCEPTION, seqid) + body


def read_i32(data: bytes, at: int) -> int:
    """The number at ``at``; WireError when the bytes end before."""
    if at + 4 > len(data):
        raise WireError("the bytes end inside a number")
    return int(_I32.unpack_from(data, at)[0])
