"""The kinds of sinks there are, and how each delivers."""

from __future__ import annotations

from lakemark_proto.store.v1.store_pb2 import SinkRecord
from lakemark_server.context.clock import ClockMs
from lakemark_server.sinks import definitions
from lakemark_server.sinks.delivery import Sender
from lakemark_server.sinks.kafka import KafkaSender
from lakemark_server.sinks.webhook import WebhookPolicy, WebhookSender


def sender_of(record: SinkRecord, policy: WebhookPolicy, clock: ClockMs) -> Sender:
    """The way to a sink's receiver, which is not asked yet.

    Raises FailedPrecondition: what it needs is not installed, or refuses the configuration.
    """
    if record.HasField("webhook"):
        return WebhookSender(definitions.webhook_target(record), policy, clock)
    return KafkaSender(record)


def check(record: SinkRecord, policy: WebhookPolicy, clock: ClockMs) -> None:
    """Raises what ``sender_of`` raises."""
    sender_of(record, policy, clock).close()
