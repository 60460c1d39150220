"""Webhooks through the whole service: what arrives, what is told of a receiver that fails, and what nobody may see."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakemark import Client
from lakemark.cli.app import run
from lakemark.client.sinks import Sink, new_secret
from lakemark.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    InvalidName,
    OffsetUnknown,
    SinkNotFound,
)
from lakemark_server.process import Service
from tests.integration.grpc_server import connected, running_service
from tests.integration.sinks.conftest import SINK_SETTINGS
from tests.webhooks import SECRET, WAIT_S, Behaviour, WebhookReceiver, answering, cutting, hanging


def _until(ask: Callable[[], Any]) -> Any:
    """Asks until the answer is true."""
    until_s = time.monotonic() + WAIT_S
    while not (answer := ask()):
        assert time.monotonic() < until_s
        time.sleep(0.01)
    return answer


def _sink(client: Client, name: str, fits: Callable[[Sink], bool]) -> Sink:
    """The sink, once it is so."""

    def fitting() -> Sink | None:
        sink = client.sinks.get(name)
        return sink if fits(sink) else None

    sink = _until(fitting)
    assert isinstance(sink, Sink)
    return sink


def _databases(receiver: WebhookReceiver) -> list[str]:
    return [event["data"]["database"] for event in receiver.delivered]


def test_events_arrive_in_order(client: Client, receiver: WebhookReceiver) -> None:
    client.databases.create("before")
    sink = client.sinks.create_webhook("hook", receiver.url, SECRET, patterns=["sales"])
    assert (sink.state, sink.kind, sink.receiver["url"]) == ("active", "webhook", receiver.url)
    client.databases.create("sales")
    client.databases.create("other")
    client.tables.create("sales.orders", {"id": "bigint"})
    with client.begin("sales.orders") as writer:
        writer.write(pa.table({"id": [1, 2]}))
        writer.commit()
    client.tables.drop("sales.orders")
    receiver.wait_for(lambda: len(receiver.delivered) == 4)
    kinds = [event["type"].removeprefix("io.lakemark.") for event in receiver.delivered]
    assert kinds == ["database_created", "table_created", "committed", "table_dropped"]
    assert receiver.delivered[2]["data"]["commit"]["added_rows"] == 2
    done = _sink(client, "hook", lambda sink: not sink.lag_events)
    assert (done.delivered, done.failed_attempts, done.dead_letters, done.lag_s) == (4, 0, 0, 0)
    assert done.runner
    assert client.consumers.get("sink:hook").managed_by == "sink"
    with pytest.raises(FailedPrecondition, match="belongs to sink"):
        client.consumers.drop("sink:hook")


def test_a_sink_begins_where_it_is_told_to_and_gathers_batches(client: Client, receiver: WebhookReceiver) -> None:
    for number in range(20):
        client.databases.create(f"d{number:02}")
    client.sinks.create_webhook("all", receiver.url, SECRET, after=0, batch=True, kinds=["database_created"])
    receiver.wait_for(lambda: len(receiver.delivered) >= 21)
    assert _databases(receiver) == ["default", *(f"d{number:02}" for number in range(20))]
    assert len(receiver.requests) <= 2
    with pytest.raises(OffsetUnknown):
        client.sinks.create_webhook("far", receiver.url, SECRET, after=10_000)


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (hanging, "did not answer within 0.1 s"),
        (cutting, "cut the connection"),
        (answering(500), "500 Internal Server Error"),
        (answering(429, retry_after="1"), "429 Too Many Requests"),
        (answering(307, location="http://127.0.0.2/"), "redirects are not followed"),
    ],
)
def test_a_failure_is_told_and_tried_again(
    client: Client, receiver: WebhookReceiver, behaviour: Behaviour, words: str
) -> None:
    receiver.script.append(behaviour)
    # Only who waits for the end of it is in a hurry: on a busy machine an answer may take a tenth of a second.
    timeout_ms = 100 if behaviour is hanging else 10_000
    client.sinks.create_webhook("hook", receiver.url, SECRET, timeout_ms=timeout_ms, kinds=["database_created"])
    began = time.monotonic()
    client.databases.create("a")
    client.databases.create("b")
    receiver.wait_for(lambda: len(receiver.delivered) == 2)
    assert _databases(receiver) == ["a", "b"]
    if behaviour.status == 429:
        assert time.monotonic() - began >= 1, "Retry-After is honoured"
    sink = _sink(client, "hook", lambda sink: sink.delivered == 2 and not sink.lag_events)
    assert words in sink.last_error
    assert (sink.state, sink.failing_since_ms, sink.failed_attempts, sink.dead_letters) == ("active", 0, 1, 0)


def test_one_failing_sink_holds_up_neither_others_nor_commits(client: Client, receiver: WebhookReceiver) -> None:
    with WebhookReceiver() as dead:
        dead.otherwise = hanging
        client.sinks.create_webhook("dead", dead.url, SECRET, timeout_ms=60_000)
        client.sinks.create_webhook("alive", receiver.url, SECRET, kinds=["database_created"])
        for name in ("a", "b", "c"):
            client.databases.create(name)
        receiver.wait_for(lambda: len(receiver.delivered) == 3)
        assert client.sinks.get("dead").delivered == 0
        assert client.sinks.get("dead").lag_events > 0
        assert client.sinks.drop("dead"), "a delivery that hangs does not hold up the end of its sink"


def test_dead_letters_are_kept_sent_again_and_dropped(client: Client, receiver: WebhookReceiver) -> None:
    receiver.otherwise = answering(500)
    client.sinks.create_webhook("hook", receiver.url, SECRET, attempts_max=2, kinds=["database_created"])
    for name in ("a", "b", "c"):
        client.databases.create(name)
    sink = _sink(client, "hook", lambda sink: sink.dead_letters == 3)
    assert (sink.state, sink.failed_attempts, sink.delivered) == ("failing", 6, 0)
    letters = list(client.sinks.dead_letters("hook"))
    assert [(letter.id, letter.event.database, letter.attempts) for letter in letters] == [
        (1, "a", 2),
        (2, "b", 2),
        (3, "c", 2),
    ]
    assert "500" in letters[0].reason
    assert client.sinks.resend("hook", [1]) == 1
    again = _until(lambda: [one for one in client.sinks.dead_letters("hook") if one.attempts == 3])
    assert [(letter.id, letter.resending) for letter in again] == [(1, False)]

    receiver.otherwise = answering(204)
    assert client.sinks.drop_letters("hook", [2, 99]) == 1
    assert client.sinks.resend("hook") == 2
    done = _sink(client, "hook", lambda sink: not sink.dead_letters)
    assert _databases(receiver) == ["a", "c"]
    assert {request.headers.get("lakemark-resent") for request in receiver.requests[-2:]} == {"true"}
    assert done.state == "active"
    with pytest.raises(InvalidArgument, match="name the dead letters"):
        client.sinks.resend("hook", [])


def test_a_sink_whose_dead_letters_are_full_waits(tmp_path: Path, receiver: WebhookReceiver) -> None:
    receiver.otherwise = answering(500)
    with running_service(tmp_path, **SINK_SETTINGS, sink_letters_max=2) as service, connected(service) as client:
        client.sinks.create_webhook("hook", receiver.url, SECRET, attempts_max=1, kinds=["database_created"])
        for name in ("a", "b", "c", "d"):
            client.databases.create(name)
        sink = _sink(client, "hook", lambda sink: "are full" in sink.last_error)
        assert (sink.dead_letters, sink.next_attempt_ms) == (2, 0)
        assert sink.lag_events >= 2
        receiver.otherwise = answering(204)
        client.sinks.resend("hook")
        client.sinks.resume("hook")
        receiver.wait_for(lambda: sorted(_databases(receiver)) == ["a", "b", "c", "d"])


def test_a_sink_is_paused_and_goes_on_where_it_was_or_elsewhere(client: Client, receiver: WebhookReceiver) -> None:
    client.sinks.create_webhook("hook", receiver.url, SECRET, paused=True, kinds=["database_created"])
    client.databases.create("a")
    assert client.sinks.get("hook").state == "paused"
    with pytest.raises(FailedPrecondition, match="is paused: resume it first"):
        client.sinks.resend("hook")
    client.sinks.resume("hook")
    receiver.wait_for(lambda: _databases(receiver) == ["a"])
    assert client.sinks.pause("hook").state == "paused"
    client.databases.create("b")
    client.sinks.resume("hook", end=True)
    client.databases.create("c")
    receiver.wait_for(lambda: _databases(receiver) == ["a", "c"])
    client.sinks.resume("hook", after=0)
    receiver.wait_for(lambda: _databases(receiver) == ["a", "c", "default", "a", "b", "c"])


def test_secrets_are_seen_by_nobody(
    service: Service, client: Client, receiver: WebhookReceiver, capfd: pytest.CaptureFixture[str]
) -> None:
    other = new_secret()
    header = "Bearer hidden-header"
    url = receiver.url + "?token=hidden-query"
    receiver.script.extend([answering(500)] * 2)
    sink = client.sinks.create_webhook("hook", url, SECRET, headers={"Authorization": header}, attempts_max=1)
    client.databases.create("a")
    _sink(client, "hook", lambda sink: sink.dead_letters > 0)
    changed = client.sinks.set_webhook_secrets("hook", [other, SECRET], headers={"Authorization": header})
    # The one that delivers hears of its new secrets soon, but perhaps after the next event.
    for number in range(100):
        known = len(receiver.delivered)
        client.databases.create(f"b{number}")
        receiver.wait_for(lambda known=known: len(receiver.delivered) > known)
        if len(receiver.requests[-1].headers["webhook-signature"].split()) == 2:
            break
    else:
        pytest.fail("no request was signed with both secrets")
    assert receiver.requests[-1].headers["Authorization"] == header
    assert receiver.requests[-1].path.endswith("?token=hidden-query")
    events = [event.cloud_event() for event in client.events(0, follow=False)]
    told = repr(
        (sink, changed, client.sinks.list(), events, list(client.sinks.dead_letters("hook")), receiver.delivered)
    )
    run(["--server", service.grpc_address, "--json", "sinks", "show", "hook"])
    captured = capfd.readouterr()
    assert "Authorization" in told
    assert "sink_created" in told
    for text in (told, captured.out, captured.err):
        for secret in (SECRET, other, SECRET.removeprefix("whsec_"), "hidden-header", "hidden-query"):
            assert secret not in text


def test_what_is_wrong_with_a_sink_is_told(client: Client, tmp_path: Path, receiver: WebhookReceiver) -> None:
    create = client.sinks.create_webhook
    with pytest.raises(InvalidArgument, match="secret of a webhook is whsec_") as refused:
        create("a", receiver.url, "whsec_c2hvcnQ=")
    assert "c2hvcnQ" not in refused.value.message
    for url, words in {
        "ftp://example.com/": "begins with https://",
        "https://user:pw@example.com/": "no user and no password",
        "https://example.com/#x": "behind #",
        "https://exa mple.com/": "printable ASCII",
        "https:///path": "needs a URL",
        "https://example.com:99999/": "needs a URL",
    }.items():
        with pytest.raises(InvalidArgument, match=words):
            create("a", url, SECRET)
    for headers in ({"Host": "x"}, {"webhook-id": "x"}, {"X": "a\r\nY: b"}, {"A b": "x"}):
        with pytest.raises(InvalidArgument, match="header"):
            create("a", receiver.url, SECRET, headers=headers)
    with pytest.raises(InvalidName, match="sink name"):
        create("No", receiver.url, SECRET)
    with pytest.raises(InvalidArgument, match="timeout_ms is 99999"):
        create("a", receiver.url, SECRET, timeout_ms=99_999)
    with pytest.raises(InvalidArgument, match="no event can fit"):
        create("a", receiver.url, SECRET, kinds=["quota_changed"], patterns=["sales"])
    with pytest.raises(SinkNotFound, match="has no sink 'none'"):
        client.sinks.get("none")
    create("a", receiver.url, SECRET)
    with pytest.raises(AlreadyExists):
        create("a", receiver.url, SECRET)
    assert client.sinks.drop("a")
    assert not client.sinks.drop("a", if_exists=True)
    create("a", receiver.url, SECRET)
    strict = running_service(tmp_path / "strict")
    with strict as service, connected(service) as other, pytest.raises(InvalidArgument, match="webhook_plain_http"):
        other.sinks.create_webhook("a", receiver.url, SECRET)


def test_the_command_line(
    service: Service, receiver: WebhookReceiver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret"

    def call(*arguments: str) -> str:
        capsys.readouterr()
        assert run(["--server", service.grpc_address, "sinks", *arguments]) == 0
        return capsys.readouterr().out

    secret.write_text(call("secret"))
    headers = tmp_path / "headers"
    headers.write_text("X-Team=lake\n")
    made = call(
        *("create", "webhook", "hook", receiver.url, "--secret-file", str(secret), "--headers-file", str(headers)),
        *("--attempts-max", "1", "--kind", "database_created", "--only", "sales*"),
    )
    assert made == f"sink hook delivers to {receiver.url}\n"
    receiver.script.append(answering(410))
    assert run(["--server", service.grpc_address, "databases", "create", "sales"]) == 0
    _until(lambda: json.loads(call("show", "hook", "--json"))["dead_letters"])
    assert "410 Gone" in call("list")
    assert "header" in call("show", "hook")
    assert "410 Gone" in call("dead-letters", "hook")
    (letter,) = json.loads(call("dead-letters", "hook", "--json"))
    assert letter["event"]["type"] == "io.lakemark.database_created"
    assert call("resend", "hook", "--all") == "sink hook sends 1 dead letter again\n"
    receiver.wait_for(lambda: receiver.delivered)
    assert receiver.requests[-1].headers["X-Team"] == "lake"
    assert call("pause", "hook") == "sink hook is paused\n"
    assert call("resume", "hook", "--after", "0").startswith("sink hook goes on behind offset 0")
    assert call("set-secrets", "hook", "--secret-file", str(secret)) == "sink hook has other secrets\n"
    assert call("drop-letters", "hook", "--all").endswith("of sink hook dropped\n")
    assert call("drop", "hook") == "sink hook is dropped\n"
