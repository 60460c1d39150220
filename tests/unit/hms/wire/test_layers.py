"""TLS without a socket: what ends it, who waits for whom, and keys that cannot be used."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from lakemark_hms.wire.layers import Certificates, LayerError, TlsLayer
from tests.certificates import Authority, Certificate
from tests.tls_client import TlsClient

SECONDS = 20


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> Certificate:
    return authority.signed("service")


@pytest.fixture
def layer(own: Certificate) -> TlsLayer:
    return Certificates(str(own.certificate), str(own.key)).layer()


def client_of(layer: TlsLayer, authority: Authority) -> TlsClient:
    client = TlsClient(authority, layer.received, layer.answers)
    assert layer.open
    client.received(layer.answers())
    return client


def test_nothing_is_kept_after_the_end(layer: TlsLayer, authority: Authority) -> None:
    client = client_of(layer, authority)
    assert layer.received(client.sent(b"last")) == b"last"
    assert not layer.ended
    assert layer.received(client.ended()) == b""
    assert layer.ended
    for _ in range(3):
        assert layer.received(b"x" * 1000) == b""
    assert layer._incoming.pending == 0


def test_the_last_words_and_the_end_may_come_together(layer: TlsLayer, authority: Authority) -> None:
    client = client_of(layer, authority)
    assert layer.received(client.sent(b"last") + client.ended() + b"x" * 1000) == b"last"
    assert layer.ended
    assert client.received(layer.sent(b"reply")) == b"reply"


def test_what_comes_does_not_wait_for_the_whole_of_a_reply(layer: TlsLayer, authority: Authority) -> None:
    client = client_of(layer, authority)
    request, reply = client.sent(b"request"), bytes(range(256)) * (1 << 12)
    lock = layer._lock = _Lock()  # type: ignore[assignment]
    sent: list[bytes] = []
    worker = threading.Thread(target=lambda: sent.append(layer.sent(reply)))
    worker.start()
    assert lock.given_back.wait(SECONDS)
    lock.go_on.set()  # for this thread, too
    assert layer.received(request) == b"request"
    assert layer.answers() == b""
    worker.join(SECONDS)
    assert lock.taken > 3  # by the reply more than once
    assert client.received(sent[0]) == reply


class _Lock:
    """Whoever gives it back first waits until it may go on."""

    def __init__(self) -> None:
        self.given_back, self.go_on = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self.taken = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self.taken += 1

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        self.given_back.set()
        assert self.go_on.wait(SECONDS)


def test_a_bad_record_ends_it(layer: TlsLayer, authority: Authority) -> None:
    client = client_of(layer, authority)
    client.sent(b"x")
    with pytest.raises(LayerError, match="TLS failed"):
        layer.received(b"\x17\x03\x03\x00\x20" + b"x" * 32)
    with pytest.raises(ssl.SSLError):  # an OSError
        layer.sent(b"reply")


def test_a_key_with_a_password_is_refused_and_nobody_is_asked(own: Certificate, tmp_path: Path) -> None:
    key = serialization.load_pem_private_key(own.key.read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(OSError, match="is encrypted"):
        Certificates(str(own.certificate), str(locked))
