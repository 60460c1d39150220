"""One delivery of a webhook, against a real HTTP server that behaves badly."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from lakemark_proto.v1 import events_pb2 as pb
from lakemark_server.sinks.addresses import networks
from lakemark_server.sinks.delivery import DeliveryAborted, DeliveryFailed, EventRefused
from lakemark_server.sinks.signatures import key_of
from lakemark_server.sinks.webhook import BODY_BYTES_MAX, WebhookPolicy, WebhookSender, WebhookTarget
from tests.webhooks import SECRET, Behaviour, WebhookReceiver, answering, cutting, dripping, hanging

LOCAL = WebhookPolicy(networks(["127.0.0.0/8"]), plain_http=True)
NOW_MS = 1_800_000_000_123
TIMEOUT_S = 0.3


def _events(*offsets: int) -> list[pb.Event]:
    return [pb.Event(offset=offset, kind=pb.COMMITTED, catalog="hive", database="d", table="t") for offset in offsets]


def _sender(url: str, *, batch: bool = False, timeout_s: float = 10.0, policy: WebhookPolicy = LOCAL) -> WebhookSender:
    target = WebhookTarget(url, {"Authorization": "Bearer x"}, (key_of(SECRET),), batch, timeout_s)
    return WebhookSender(target, policy, lambda: NOW_MS)


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as running:
        yield running


def test_a_request_is_a_signed_cloud_event(receiver: WebhookReceiver) -> None:
    assert _sender(receiver.url).send(_events(7, 8)) == 1
    (request,) = receiver.requests
    assert request.path == "/hook"
    assert request.headers["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    assert request.headers["Authorization"] == "Bearer x"
    assert request.headers["webhook-id"] == "hive-0-7"
    assert request.headers["webhook-timestamp"] == str(NOW_MS // 1_000)
    assert [(event["id"], event["data"]["offset"]) for event in request.events] == [("0-7", 7)]
    signed = f"hive-0-7.{NOW_MS // 1_000}.".encode() + request.body
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert request.headers["webhook-signature"] == f"v1,{expected}"


def test_a_batch_is_an_array_and_a_resent_event_says_so(receiver: WebhookReceiver) -> None:
    sender = _sender(receiver.url, batch=True)
    assert sender.send(_events(7, 8, 9)) == 3
    assert sender.send(_events(3), resent=True) == 1
    first, second = receiver.requests
    assert [event["id"] for event in first.events] == ["0-7", "0-8", "0-9"]
    assert first.headers["Content-Type"].startswith("application/cloudevents-batch+json")
    assert first.headers["webhook-id"] == "hive-0-7..0-9"
    assert "lakemark-resent" not in first.headers
    assert second.headers["lakemark-resent"] == "true"


@pytest.mark.parametrize(
    ("behaviour", "words", "retry_after_s"),
    [
        (hanging, r"127.0.0.1:\d+ did not answer within 0.3 s", 0),
        (dripping, r"did not answer within 0.3 s", 0),
        (cutting, r"cut the connection before it answered", 0),
        (answering(500), r"the answer is 500 Internal Server Error; only 2xx counts", 0),
        (answering(404), r"the answer is 404 Not Found", 0),
        (answering(429, retry_after="7"), r"429 Too Many Requests", 7),
        (answering(503, retry_after="Fri, 15 Jan 2027 08:00:10 GMT"), r"503", 9.877),
        (answering(503, retry_after="99999999"), r"503", 3_600),
        (answering(503, retry_after="soon"), r"503", 0),
        (answering(302, location="http://169.254.169.254/"), r"302 Found: redirects are not followed; .*169.254", 0),
        (answering(699), r"the answer is 699", 0),
    ],
)
def test_what_went_wrong_is_told(
    receiver: WebhookReceiver, behaviour: Behaviour, words: str, retry_after_s: float
) -> None:
    receiver.script.append(behaviour)
    sender = _sender(receiver.url, timeout_s=TIMEOUT_S)
    began = time.monotonic()
    with pytest.raises(DeliveryFailed, match=words) as failed:
        sender.send(_events(1))
    assert time.monotonic() - began < 10 * TIMEOUT_S
    assert failed.value.retry_after_s == pytest.approx(retry_after_s, abs=0.01)
    assert sender.send(_events(1)) == 1, "the next attempt is not disturbed"


def test_a_connection_that_the_receiver_has_closed_meanwhile_costs_no_attempt(receiver: WebhookReceiver) -> None:
    sender = _sender(receiver.url)
    sender.send(_events(1))
    receiver.script.append(cutting)
    assert sender.send(_events(2)) == 1
    assert [event["id"] for event in receiver.delivered] == ["0-1", "0-2"]


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(DeliveryFailed, match=rf"127.0.0.1:{port} cannot be connected to: .*refused"):
        _sender(f"http://127.0.0.1:{port}/").send(_events(1))
    with pytest.raises(DeliveryFailed, match="cannot be resolved"):
        _sender("http://no-such-host.invalid/").send(_events(1))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1"]
)
def test_addresses_that_are_not_public_are_refused(host: str) -> None:
    with pytest.raises(DeliveryFailed, match="webhooks are sent to public addresses"):
        _sender(f"http://{host}:1/", policy=WebhookPolicy(plain_http=True)).send(_events(1))


def test_a_name_that_moves_to_a_private_address_is_refused(
    receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: each look-up of the name gives another address. What was checked is what is connected to."""
    port = int(receiver.url.rpartition(":")[2].partition("/")[0])
    answers = itertools.cycle(["127.0.0.1", "127.0.0.2"])
    asked: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: str, *arguments: Any, **named: Any) -> Sequence[Any]:
        asked.append(host)
        return real(next(answers) if host == "rebound.test" else host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    only_first = WebhookPolicy(networks(["127.0.0.1/32"]), plain_http=True)
    sender = _sender(f"http://rebound.test:{port}/hook", policy=only_first)
    assert sender.send(_events(1)) == 1
    assert asked.count("rebound.test") == 1, "the name is looked up once for a connection"
    assert receiver.requests[0].headers["Host"] == f"rebound.test:{port}"
    sender.close()
    with pytest.raises(DeliveryFailed, match=r"'rebound.test' is at 127.0.0.2: webhooks"):
        sender.send(_events(1))
    assert len(receiver.requests) == 1


def test_a_request_has_no_more_than_its_limit(receiver: WebhookReceiver) -> None:
    large = pb.Event(offset=1, catalog="hive", kind=pb.COMMITTED)
    large.commit.metadata["text"] = "x" * (BODY_BYTES_MAX // 2)
    sender = _sender(receiver.url, batch=True)
    assert sender.send([large, large, large]) == 1
    assert max(len(request.body) for request in receiver.requests) <= BODY_BYTES_MAX
    large.commit.metadata["text"] = "x" * BODY_BYTES_MAX
    with pytest.raises(EventRefused, match=r"a request of a webhook has at most 4,194,304"):
        sender.send([large])


def test_an_attempt_under_way_can_be_ended(receiver: WebhookReceiver) -> None:
    receiver.script.append(hanging)
    sender = _sender(receiver.url, timeout_s=60)
    aborting = threading.Timer(0.2, sender.abort)
    aborting.start()
    began = time.monotonic()
    with pytest.raises(DeliveryAborted):
        sender.send(_events(1))
    with pytest.raises(DeliveryAborted):
        sender.send(_events(1))
    assert time.monotonic() - began < 30
    aborting.join()
