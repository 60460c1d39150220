"""What may lie between a socket and the protocol: TLS, and SASL over it or alone. No I/O: bytes in, bytes out.

A layer is fed what was received and gives what it means; it is asked how to send a reply. What it has to say itself, in
a handshake, it leaves in ``answers``. Only one call of a connection runs at a time, but the loop may receive while a
worker sends, so each layer guards what both touch.
"""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

_CHUNK_BYTES: Final = 256 * 1024
_CERTIFICATES_AGE_S: Final = 10.0


class LayerError(Exception):
    """The peer does not speak this layer as it should. ``answer``: bytes for it before the connection is closed."""

    def __init__(self, reason: str, answer: bytes = b"") -> None:
        super().__init__(reason)
        self.answer = answer


class Layer(Protocol):
    """One layer of one connection."""

    @property
    def open(self) -> bool:
        """Whether the handshake is over, so that calls may come."""

    @property
    def ended(self) -> bool:
        """Whether the peer has said that nothing more comes, as the end of a socket does."""

    def received(self, data: bytes) -> bytes:
        """What newly received bytes mean; b"" if nothing yet, or after the end. Raises LayerError."""

    def sent(self, data: bytes) -> bytes:
        """The bytes to send for a whole reply. Raises OSError if the peer has broken the layer."""

    def answers(self) -> bytes:
        """What the layer itself has to send now. Raises OSError if the peer has broken the layer."""


class TlsLayer:
    """TLS of the server's side."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.open = self.ended = False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._lock = threading.Lock()
        self._own = b""

    def received(self, data: bytes) -> bytes:
        with self._lock:
            if self.ended:  # TLS reads no more, so that what was written here would stay
                return b""
            self._incoming.write(data)
            try:
                if not self.open:
                    self._shake_hands()
                return self._read()
            except ssl.SSLWantReadError:
                return b""
            except ssl.SSLError as error:
                self._own += self._outgoing.read()  # an alert
                raise LayerError(f"TLS failed: {error.reason or error}") from None

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
            self.open = True
        finally:
            self._own += self._outgoing.read()

    def _read(self) -> bytes:
        plain: list[bytes] = []
        try:
            while chunk := self._tls.read(_CHUNK_BYTES):
                plain.append(chunk)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:  # the same, once this side has ended too
            self.ended = True
        return b"".join(plain)

    def sent(self, data: bytes) -> bytes:
        view, parts = memoryview(data), []
        while view:
            with self._lock:  # anew for each part, as a large reply takes long to encrypt and the loop may wait
                view = view[self._tls.write(view[:_CHUNK_BYTES]) :]
                # Also what TLS has to say after the handshake, in the order in which it was encrypted.
                parts.append(self._outgoing.read())
        return b"".join(parts)

    def answers(self) -> bytes:
        with self._lock:
            own, self._own = self._own, b""
            return own


class Stacked:
    """A layer on another one."""

    def __init__(self, below: Layer, above: Layer) -> None:
        self._below, self._above = below, above

    @property
    def open(self) -> bool:
        return self._below.open and self._above.open

    @property
    def ended(self) -> bool:
        return self._below.ended or self._above.ended

    def received(self, data: bytes) -> bytes:
        plain = self._below.received(data)
        try:
            return self._above.received(plain) if plain else b""
        except LayerError as error:
            raise LayerError(str(error), self._below.sent(error.answer)) from None

    def sent(self, data: bytes) -> bytes:
        return self._below.sent(self._above.sent(data))

    def answers(self) -> bytes:
        own = self._below.answers()
        above = self._above.answers()
        return own + self._below.sent(above) if above else own


class Certificates:
    """The server's certificate, which is read again when its files have changed. For any number of loops.

    ``client_ca``: a PEM file; clients must have a certificate of one of these. Raises OSError (ssl.SSLError is one) if
    a file cannot be used.
    """

    def __init__(self, certificate: str, key: str, client_ca: str = "") -> None:
        self._files = [name for name in (certificate, key, client_ca) if name]
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self._stamps = self._look()
        self._context = self._load()
        self._looked_at = time.monotonic()

    def layer(self, warn: Callable[[str], None] = lambda _: None) -> TlsLayer:
        """TLS for a new connection. ``warn`` is told if changed files cannot be used; the old ones hold then."""
        now = time.monotonic()
        if now - self._looked_at >= _CERTIFICATES_AGE_S:
            self._looked_at = now
            try:
                stamps = self._look()
                if stamps != self._stamps:
                    self._context = self._load()
                    self._stamps = stamps
            except OSError as error:
                warn(f"the TLS certificate stays as it was read before: {error}")
        return TlsLayer(self._context)

    def _look(self) -> list[int]:
        return [os.stat(name).st_mtime_ns for name in self._files]

    def _refuse_password(self) -> str:
        """Without it OpenSSL asks on the terminal, and waits."""
        raise OSError(f"the key in {self._key or self._certificate} is encrypted: give one without a password")

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._certificate, self._key or None, self._refuse_password)
        if self._client_ca:
            context.load_verify_locations(self._client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
