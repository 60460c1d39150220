"""The kinds of sinks there are, and how each delivers."""

from __future__ import annotations

from lakemark_proto.store.v1.store_pb2 import SinkRecord
from lakemark_server.context.clock import ClockMs
from lakemark_server.sinks import definitions
from lakemark_server.sinks.delivery import Sender
from lakemark_server.sinks.kafka import KafkaSender
from lakemark_server.sinks.mail import ATTEMPT_MS, MailSender
from lakemark_server.sinks.policies import SinkPolicy
from lakemark_server.sinks.webhook import WebhookSender


def sender_of(record: SinkRecord, policy: SinkPolicy, clock: ClockMs) -> Sender:
    """The way to a sink's receiver, which is not asked yet.

    Raises FailedPrecondition: what it needs is not installed, or refuses the configuration.
    """
    if record.HasField("webhook"):
        return WebhookSender(definitions.webhook_target(record), policy.webhook, clock)
    if record.HasField("mail"):
        return MailSender(record.mail.to, policy.mail)
    return KafkaSender(record)


def check(record: SinkRecord, policy: SinkPolicy, clock: ClockMs) -> None:
    """Raises what ``sender_of`` raises."""
    sender_of(record, policy, clock).close()


def attempt_ms(record: SinkRecord) -> int:
    """About how long an attempt may take; 0: as long as it takes."""
    if record.HasField("mail"):
        return ATTEMPT_MS
    return record.webhook.timeout_ms


def attempts_max(record: SinkRecord) -> int:
    """After how many attempts that count a sink gives an event up; -1: never."""
    if record.HasField("mail"):
        return definitions.ATTEMPTS_DEFAULT
    return record.webhook.attempts_max if record.HasField("webhook") else -1
