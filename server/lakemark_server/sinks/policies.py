"""What the operator of the service allows sinks to do."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakemark_server.sinks.mail import MailPolicy
from lakemark_server.sinks.webhook import WebhookPolicy


@dataclass(frozen=True, slots=True)
class SinkPolicy:
    """For each kind of sink that can be restricted."""

    webhook: WebhookPolicy = field(default_factory=WebhookPolicy)
    mail: MailPolicy = field(default_factory=MailPolicy)
