"""One message, to a real SMTP server that behaves badly."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from lakemark_core.errors import FailedPrecondition, InvalidArgument
from lakemark_proto.store.v1.store_pb2 import SinkRecord
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1 import sinks_pb2
from lakemark_server.settings import Settings
from lakemark_server.sinks import mail, senders
from lakemark_server.sinks.definitions import draft
from lakemark_server.sinks.delivery import DeliveryAborted, DeliveryFailed
from lakemark_server.sinks.mail import MailPolicy, MailSender
from lakemark_server.sinks.policies import SinkPolicy
from tests.certificates import Authority
from tests.mail_server import Behaviour, MailServer

STOPPED = pb.Event(
    offset=7,
    kind=pb.OPTIMIZATION_STOPPED,
    catalog="hive",
    database="sales",
    table="orders",
    optimization=pb.OptimizationDetail(
        partition="m=1", kind="minor", failures=5, last_error="no space left\r\nBcc: x@y"
    ),
)
COMMITTED = pb.Event(offset=8, kind=pb.COMMITTED, catalog="hive", database="sales", table="ordérs")
PASSWORD = "a secret that nobody may see"  # noqa: S105


def policy_for(server: MailServer, **given: object) -> MailPolicy:
    plain = MailPolicy("127.0.0.1", server.port, "none", sender="lake@example.com")
    return replace(plain, **given)  # type: ignore[arg-type]


def test_a_message_says_what_has_happened_and_what_to_do() -> None:
    with MailServer() as server:
        sender = MailSender(["ops@example.com", "b@example.com"], policy_for(server))
        assert sender.send([STOPPED, COMMITTED]) == 2
        assert sender.send([STOPPED], resent=True) == 1
    first, second = server.messages
    assert first["Subject"] == "[lakemark] optimization stopped: sales.orders m=1 and 1 more"
    assert (first["From"], first["To"]) == ("lake@example.com", "ops@example.com, b@example.com")
    assert server.recipients[0] == ["ops@example.com", "b@example.com"]
    text = first.get_content()
    assert "stopped after 5 failures in a row" in text
    assert "Mend what failed, then: lakemark optimize resume sales.orders" in text
    assert "committed: sales.ordérs" in text
    assert (first["Message-ID"], second["X-Lakemark-Resent"]) == ("<lakemark-hive-0-7..0-8@example.com>", "true")
    assert first["Bcc"] is None


def test_no_more_than_so_many_events_are_in_one_message() -> None:
    with MailServer() as server:
        assert MailSender(["ops@example.com"], policy_for(server)).send([COMMITTED] * 50) == 20


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_mail_goes_encrypted_and_with_a_login(tmp_path: Path, tls: str) -> None:
    authority = Authority(tmp_path)
    signed = authority.signed("127.0.0.1")
    files = str(signed.certificate), str(signed.key)
    with MailServer(Behaviour(tls, ("lake", PASSWORD)), files) as server:
        policy = policy_for(server, tls=tls, user="lake", password=PASSWORD, ca_file=str(authority.ca))
        MailSender(["ops@example.com"], policy).send([STOPPED])
        assert server.encrypted == [True]
        with pytest.raises(DeliveryFailed, match=r"cannot be used: .*certificate verify failed"):
            MailSender(["ops@example.com"], replace(policy, ca_file="")).send([STOPPED])
        with pytest.raises(DeliveryFailed, match="refuses: 535") as wrong:
            MailSender(["ops@example.com"], replace(policy, password=PASSWORD + "!")).send([STOPPED])
    assert not wrong.value.counts
    assert PASSWORD not in f"{wrong.value} {policy}"
    assert wrong.value.__cause__ is None


def test_without_starttls_nothing_is_sent() -> None:
    with MailServer() as server:
        policy = policy_for(server, tls="starttls", user="lake", password=PASSWORD)
        with pytest.raises(DeliveryFailed, match="STARTTLS extension not supported"):
            MailSender(["ops@example.com"], policy).send([STOPPED])
        assert not server.messages


def test_a_refusal_counts_and_a_server_that_is_away_does_not() -> None:
    with MailServer(Behaviour(refused=frozenset({"gone@example.com"}))) as server:
        policy = policy_for(server)
        assert MailSender(["gone@example.com", "ops@example.com"], policy).send([STOPPED]) == 1
        with pytest.raises(DeliveryFailed, match=r"refuses all recipients: gone@example.com: 550 5.1.1") as refused:
            MailSender(["gone@example.com"], policy).send([STOPPED])
        server.behaviour = Behaviour(data_answer="554 5.6.0 this is spam")
        with pytest.raises(DeliveryFailed, match=r"refuses: 554 5.6.0 this is spam") as spam:
            MailSender(["ops@example.com"], policy).send([STOPPED])
        server.behaviour = Behaviour(data_answer="451 4.3.0 later")
        with pytest.raises(DeliveryFailed, match=r"refuses: 451 4.3.0 later") as later:
            MailSender(["ops@example.com"], policy).send([STOPPED])
    with pytest.raises(DeliveryFailed, match=r"cannot be used: .*refused") as away:
        MailSender(["ops@example.com"], policy).send([STOPPED])
    assert [one.value.counts for one in (refused, spam, later, away)] == [True, True, False, False]


def test_recipients_that_are_refused_for_now_are_tried_again() -> None:
    behaviour = Behaviour(refused=frozenset({"ops@example.com"}), refusal="450 4.2.0 greylisted, try again later")
    with MailServer(behaviour) as server, pytest.raises(DeliveryFailed, match="greylisted") as refused:
        MailSender(["ops@example.com"], policy_for(server)).send([STOPPED])
    assert not refused.value.counts


def test_nothing_is_sent_to_domains_that_are_allowed_no_longer() -> None:
    with MailServer() as server:
        policy = policy_for(server, domains=("example.com",))
        with pytest.raises(DeliveryFailed, match=r"sends no mail to ops@other.org: .*LAKEMARK_MAIL_DOMAINS") as told:
            MailSender(["ops@example.com", "ops@other.org"], policy).send([STOPPED])
        assert not server.messages
    assert not told.value.counts


def test_a_sender_may_have_a_name() -> None:
    with MailServer() as server:
        policy = policy_for(server, sender="Lakemark <lake@example.com>")
        assert policy.allows("ops@example.com")
        assert MailSender(["ops@example.com"], policy).send([STOPPED]) == 1
    (message,) = server.messages
    assert message["From"] == "Lakemark <lake@example.com>"
    assert message["Message-ID"] == "<lakemark-hive-0-7..0-7@example.com>"


@pytest.mark.parametrize("sender", ["lake", "Lakemark <lake>", "läke@example.com", "a@b.c, d@e.f", "a@b.c\nBcc: x@y.z"])
def test_a_sender_that_is_no_address_is_refused_at_start(sender: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a mail address such as"):
        _ = Settings(mail_host="mail.example.com", mail_from=sender).sinks


def test_a_message_under_way_is_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        policy = MailPolicy("127.0.0.1", silent.getsockname()[1], "none", sender="lake@example.com")
        sender = MailSender(["ops@example.com"], policy)

        def abort() -> None:
            connection, _ = silent.accept()
            connection.sendall(b"220 here\r\n")
            connection.recv(1_000)  # it says EHLO, and waits for the answer
            sender.abort()

        helper = threading.Thread(target=abort)
        helper.start()
        with pytest.raises(DeliveryAborted):
            sender.send([STOPPED])
        helper.join()


def test_a_server_that_answers_slowly_is_left_within_the_time_of_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "ATTEMPT_MS", 300)
    left = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as slow:
        policy = MailPolicy("127.0.0.1", slow.getsockname()[1], "none", sender="lake@example.com")

        def answer() -> None:
            connection, _ = slow.accept()
            with connection, contextlib.suppress(OSError):
                while not left.wait(0.02):  # each byte is in time, the line has no end
                    connection.sendall(b"2")

        helper = threading.Thread(target=answer)
        helper.start()
        try:
            with pytest.raises(DeliveryFailed, match=r"cannot be used: it took longer than 0\.3 s") as late:
                MailSender(["ops@example.com"], policy).send([STOPPED])
        finally:
            left.set()
            helper.join()
    assert not late.value.counts


def test_the_lease_of_a_sink_outlasts_an_attempt() -> None:
    record = SinkRecord(mail=sinks_pb2.MailSink(to=["ops@example.com"]))
    assert senders.attempt_ms(record) == mail.ATTEMPT_MS


@pytest.mark.parametrize(
    ("to", "told"),
    [
        ([], "1 to 20 recipients"),
        (["ops"], "is not a mail address"),
        (["ops@example.com\nBcc: x@y.org"], "is not a mail address"),
        (["ops@other.org"], "sends no mail to ops@other.org"),
    ],
)
def test_recipients_are_addresses_that_the_operator_allows(to: list[str], told: str) -> None:
    policy = SinkPolicy(mail=MailPolicy("127.0.0.1", 25, "none", sender="lake@example.com"))
    with pytest.raises(InvalidArgument, match=told):
        draft("hive", "alarms", sinks_pb2.MailSink(to=to), sinks_pb2.SinkSecrets(), policy)


def test_a_service_without_a_mail_server_says_so() -> None:
    with pytest.raises(FailedPrecondition, match="LAKEMARK_MAIL_HOST"):
        MailSender(["ops@example.com"], MailPolicy())
    with pytest.raises(FailedPrecondition, match="not sent without TLS"):
        MailSender(["ops@example.com"], MailPolicy("h", 25, "none", "user", sender="lake@example.com"))
    with pytest.raises(FailedPrecondition, match="must be ASCII") as told:
        MailSender(["ops@example.com"], MailPolicy("h", 25, "tls", "user", "pässword", "lake@example.com"))
    assert "ä" not in str(told.value)
