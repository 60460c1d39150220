"""Hand-made calls: methods and fields of later releases, which the bindings of Hive 2.3 lack."""

import socket
from typing import Any

from lakemark_hms.wire import codec
from lakemark_thrift.services import METHODS


class Raw:
    """One connection. ``call`` returns the decoded result struct, ``answer`` the bytes after the header."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)

    def close(self) -> None:
        self._socket.close()

    def answer(self, name: str, body: bytes) -> bytes:
        """``body``: the serialized arguments. Raises AssertionError with the text of an application error."""
        self._socket.sendall(codec.message_head(name, codec.CALL, 1) + body)
        data = b""
        while (header := codec.read_header(data)) is None or not _is_whole(data, header.body):
            chunk = self._socket.recv(1 << 20)
            assert chunk, "the server closed the connection"
            data += chunk
        assert header.kind == codec.REPLY, data
        return data[header.body :]

    def call(self, name: str, /, **arguments: Any) -> Any:
        """The result struct: ``success``, or one of the declared exceptions under its name."""
        method = METHODS[name]
        args = method.args(**arguments)
        assert method.result is not None
        return codec.decode_struct(method.result, self.answer(name, codec.encode_struct(args)))


def _is_whole(data: bytes, at: int) -> bool:
    if not data.endswith(b"\0"):
        return False
    try:
        codec.end_of_struct(data, at)
    except codec.TruncatedError:
        return False
    return True
