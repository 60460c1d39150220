"""The client's side of TLS without a socket, so that a test decides which bytes come when."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import pytest

from tests.certificates import Authority


class TlsClient:
    """Shakes hands when it is made: ``tell`` takes what it sends, ``hear`` gives what the server answers."""

    def __init__(self, authority: Authority, tell: Callable[[bytes], object], hear: Callable[[], bytes]) -> None:
        context = ssl.create_default_context(cafile=str(authority.ca))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                tell(self._outgoing.read())
                self._incoming.write(hear())
        tell(self._outgoing.read())

    def sent(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._outgoing.read()

    def ended(self) -> bytes:
        """What says that nothing more comes."""
        with pytest.raises(ssl.SSLWantReadError):
            self._tls.unwrap()
        return self._outgoing.read()

    def received(self, data: bytes) -> bytes:
        self._incoming.write(data)
        plain = []
        try:
            while piece := self._tls.read(1 << 20):
                plain.append(piece)
        except ssl.SSLWantReadError:
            pass
        return b"".join(plain)
