"""What a sink is configured with: what is allowed, what is kept secret, and what of it is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

from lakemark_core.errors import InvalidArgument, InvalidName
from lakemark_proto.store.v1.store_pb2 import SinkRecord
from lakemark_proto.v1 import sinks_pb2 as pb
from lakemark_server.sinks.mail import MailPolicy
from lakemark_server.sinks.policies import SinkPolicy
from lakemark_server.sinks.signatures import key_of
from lakemark_server.sinks.webhook import WebhookPolicy, WebhookTarget

NAME_CHARS_MAX: Final = 100
OWNER_CHARS_MAX: Final = 200
URL_CHARS_MAX: Final = 2_000
HEADERS_MAX: Final = 20
TEXT_CHARS_MAX: Final = 8_000
"""Of the value of a header or property: a certificate has some thousand."""
SIGNING_SECRETS_MAX: Final = 2
RECIPIENTS_MAX: Final = 20
ADDRESS_CHARS_MAX: Final = 254
TIMEOUT_MS_DEFAULT: Final = 10_000
TIMEOUT_MS_LEAST: Final = 100
TIMEOUT_MS_MOST: Final = 60_000
ATTEMPTS_DEFAULT: Final = 8
ATTEMPTS_MOST: Final = 100

KAFKA_PROPERTIES: Final = frozenset(
    {
        "compression.type",
        "enable.ssl.certificate.verification",
        "message.max.bytes",
        "sasl.mechanism",
        "sasl.username",
        "security.protocol",
        "socket.timeout.ms",
        "ssl.ca.pem",
        "ssl.certificate.pem",
        "ssl.endpoint.identification.algorithm",
    }
)
"""Of librdkafka. None of them reads a file of the service's machine or loads a library, as others do."""

KAFKA_SECRETS: Final = frozenset({"sasl.password", "ssl.key.pem", "ssl.key.password"})

_NAME: Final = re.compile(r"[a-z0-9_-]+", re.ASCII)
_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,100}", re.ASCII)
_HOST: Final = re.compile(r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]", re.ASCII)
_SERVER: Final = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}", re.ASCII)
_ADDRESS: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?", re.ASCII)
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_OWN_HEADERS: Final = frozenset({"host", "connection", "transfer-encoding", "user-agent", "expect", "upgrade", "te"})
_OWN_PREFIXES: Final = ("content-", "webhook-", "lakemark-", "proxy-")


def sink_name(name: str) -> str:
    """The name. Raises InvalidName."""
    if not _NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX:
        raise InvalidName(
            f"sink name {name[:NAME_CHARS_MAX]!r} is not legal: use up to {NAME_CHARS_MAX} lower-case letters, digits "
            "and any of _ -",
            name=name,
        )
    return name


def draft(
    catalog: str,
    name: str,
    kind: pb.WebhookSink | pb.KafkaSink | pb.MailSink,
    secrets: pb.SinkSecrets,
    policy: SinkPolicy,
    *,
    owner: str = "",
    paused: bool = False,
) -> SinkRecord:
    """A sink to be created. Raises InvalidName, InvalidArgument, FailedPrecondition (the service sends no mail); no
    message holds a secret."""
    if len(owner) > OWNER_CHARS_MAX:
        raise InvalidArgument(f"the owner of a sink has at most {OWNER_CHARS_MAX} characters")
    record = SinkRecord(catalog=catalog, name=sink_name(name), owner=owner, paused=paused)
    if isinstance(kind, pb.WebhookSink):
        record.webhook.CopyFrom(_webhook(kind, policy.webhook))
    elif isinstance(kind, pb.KafkaSink):
        record.kafka.CopyFrom(_kafka(kind))
    else:
        record.mail.CopyFrom(_mail(kind, policy.mail))
    return with_secrets(record, secrets)


def with_secrets(record: SinkRecord, secrets: pb.SinkSecrets) -> SinkRecord:
    """The record with these secrets instead of its own. Raises InvalidArgument."""
    if record.HasField("webhook"):
        _check_webhook_secrets(secrets)
    elif record.HasField("mail"):
        if secrets.ByteSize():
            raise InvalidArgument("a sink of mail has no secrets: the password of the mail server is a setting")
    else:
        _check_kafka_secrets(secrets)
    changed = SinkRecord()
    changed.CopyFrom(record)
    changed.secrets.CopyFrom(secrets)
    return changed


def webhook_target(record: SinkRecord) -> WebhookTarget:
    """What a webhook's sender needs."""
    given = record.webhook
    return WebhookTarget(
        given.url,
        dict(record.secrets.headers),
        tuple(map(key_of, record.secrets.signing_secrets)),
        given.batch,
        given.timeout_ms / 1_000,
    )


def shown_webhook(record: SinkRecord) -> pb.WebhookSink:
    """The configuration without secrets."""
    shown = pb.WebhookSink(header_names=sorted(record.secrets.headers))
    shown.MergeFrom(record.webhook)
    shown.url = _shown_url(record.webhook.url)
    return shown


def shown_kafka(record: SinkRecord) -> pb.KafkaSink:
    """The configuration without secrets."""
    shown = pb.KafkaSink(secret_names=sorted(record.secrets.properties))
    shown.MergeFrom(record.kafka)
    return shown


def receiver(record: SinkRecord) -> str:
    """Where it delivers to, for the log and for events: ``webhook https://example.com/hook``."""
    if record.HasField("webhook"):
        return f"webhook {_shown_url(record.webhook.url)}"
    if record.HasField("mail"):
        return f"mail {', '.join(record.mail.to)}"
    return f"kafka {record.kafka.bootstrap_servers} {record.kafka.topic}"


def _shown_url(url: str) -> str:
    front, mark, _ = url.partition("?")
    return front + ("?…" if mark else "")


def _webhook(given: pb.WebhookSink, policy: WebhookPolicy) -> pb.WebhookSink:
    _check_url(given.url, policy)
    timeout_ms = given.timeout_ms or TIMEOUT_MS_DEFAULT
    if not TIMEOUT_MS_LEAST <= timeout_ms <= TIMEOUT_MS_MOST:
        raise InvalidArgument(f"timeout_ms is {timeout_ms}: it must be {TIMEOUT_MS_LEAST} to {TIMEOUT_MS_MOST}")
    if given.attempts_max > ATTEMPTS_MOST:
        raise InvalidArgument(f"attempts_max is {given.attempts_max}: at most {ATTEMPTS_MOST}, or -1 never to give up")
    attempts_max = max(-1, given.attempts_max) or ATTEMPTS_DEFAULT
    return pb.WebhookSink(url=given.url, batch=given.batch, timeout_ms=timeout_ms, attempts_max=attempts_max)


def _check_url(url: str, policy: WebhookPolicy) -> None:
    parts = _split(url)
    if parts.scheme not in ("https", "http"):
        raise InvalidArgument("the URL of a webhook begins with https://")
    if parts.scheme == "http" and not policy.plain_http:
        raise InvalidArgument(
            "the URL of a webhook begins with https://; whoever runs the service can allow http:// (webhook_plain_http)"
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidArgument("the URL of a webhook has no user and no password: give a header Authorization instead")
    if parts.fragment:
        raise InvalidArgument("the URL of a webhook has no part behind #: it would not be sent")


def _split(url: str) -> SplitResult:
    wrong = f"a webhook needs a URL like https://example.com/hook: printable ASCII, at most {URL_CHARS_MAX} characters"
    if not url.isascii() or not url.isprintable() or " " in url or len(url) > URL_CHARS_MAX:
        raise InvalidArgument(wrong)
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        named = re.sub(r":[0-9]+$", "", host)
        if parts.hostname and _HOST.fullmatch(named) and (parts.port is None or parts.port > 0):
            return parts
    except ValueError as error:
        raise InvalidArgument(f"{wrong}: {error}") from error
    raise InvalidArgument(wrong)


def _check_webhook_secrets(secrets: pb.SinkSecrets) -> None:
    if secrets.properties:
        raise InvalidArgument("a webhook has headers and signing secrets; properties are those of Kafka")
    if not 1 <= len(secrets.signing_secrets) <= SIGNING_SECRETS_MAX:
        raise InvalidArgument(
            f"a webhook has 1 to {SIGNING_SECRETS_MAX} signing secrets, by which receivers know that a request is from "
            "here; 'lakemark sinks secret' makes one"
        )
    for secret in secrets.signing_secrets:
        key_of(secret)
    if len(secrets.headers) > HEADERS_MAX:
        raise InvalidArgument(f"a webhook has at most {HEADERS_MAX} headers of its own")
    for name, value in secrets.headers.items():
        lowered = name.lower()
        if not _HEADER.fullmatch(name) or lowered in _OWN_HEADERS or lowered.startswith(_OWN_PREFIXES):
            raise InvalidArgument(f"{name[:100]!r} is no header that a sink can set")
        _check_text(f"the value of header {name}", value)
        if not value.isascii() or not value.isprintable():
            raise InvalidArgument(f"the value of header {name} has characters other than printable ASCII ones")


def _kafka(given: pb.KafkaSink) -> pb.KafkaSink:
    servers = [server.strip() for server in given.bootstrap_servers.split(",") if server.strip()]
    if not servers or len(given.bootstrap_servers) > URL_CHARS_MAX or not all(map(_SERVER.fullmatch, servers)):
        raise InvalidArgument("bootstrap_servers is a list of brokers like broker-1:9092,broker-2:9092")
    if not _TOPIC.fullmatch(given.topic) or given.topic in (".", ".."):
        raise InvalidArgument("a topic of Kafka has up to 249 letters, digits and any of . _ -")
    if given.format not in pb.KafkaFormat.values():
        raise InvalidArgument(f"this service knows no format of messages with number {given.format}")
    _check_properties(given.properties, KAFKA_PROPERTIES, KAFKA_SECRETS, "is a secret: give it as one")
    return pb.KafkaSink(
        bootstrap_servers=",".join(servers), topic=given.topic, format=given.format, properties=given.properties
    )


def _mail(given: pb.MailSink, policy: MailPolicy) -> pb.MailSink:
    policy.check()
    if not 1 <= len(given.to) <= RECIPIENTS_MAX:
        raise InvalidArgument(f"a sink of mail has 1 to {RECIPIENTS_MAX} recipients")
    for address in given.to:
        if len(address) > ADDRESS_CHARS_MAX or not _ADDRESS.fullmatch(address):
            raise InvalidArgument(f"{address[:ADDRESS_CHARS_MAX]!r} is not a mail address such as ops@example.com")
        if not policy.allows(address):
            raise InvalidArgument(
                f"this service sends no mail to {address}: whoever runs it can allow the domain (LAKEMARK_MAIL_DOMAINS)"
            )
    return pb.MailSink(to=list(dict.fromkeys(given.to)))


def _check_kafka_secrets(secrets: pb.SinkSecrets) -> None:
    if secrets.headers or secrets.signing_secrets:
        raise InvalidArgument("headers and signing secrets are those of webhooks; Kafka has secret properties")
    _check_properties(secrets.properties, KAFKA_SECRETS, KAFKA_PROPERTIES, "is no secret: give it as a plain property")


def _check_properties(
    properties: Mapping[str, str], allowed: frozenset[str], elsewhere: frozenset[str], why_not: str
) -> None:
    for name, value in properties.items():
        if name in elsewhere:
            raise InvalidArgument(f"property {name} {why_not}")
        if name not in allowed:
            raise InvalidArgument(
                f"{name[:100]!r} is no property that a sink can set; there are {', '.join(sorted(allowed))}"
            )
        _check_text(f"property {name}", value)


def _check_text(what: str, value: str) -> None:
    if len(value) > TEXT_CHARS_MAX:
        raise InvalidArgument(f"{what} has {len(value):,} characters; at most {TEXT_CHARS_MAX:,}")
