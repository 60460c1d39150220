"""Sinks: events that the service itself delivers, to webhooks, to Kafka and by mail."""

from __future__ import annotations

import base64
import secrets as random_secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args
from uuid import uuid4

from lakemark.arguments import Count, checked
from lakemark.client.calls import Calls
from lakemark.client.events import Event, Place, event_from, filter_from, position_of
from lakemark_core.messages.cloud_events import kind_word
from lakemark_core.user import user_name
from lakemark_proto.v1 import sinks_pb2 as pb
from lakemark_proto.v1.sinks_pb2_grpc import SinkServiceStub

KafkaFormat: TypeAlias = Literal["cloudevents", "protobuf"]
SinkState: TypeAlias = Literal["active", "paused", "failing"]

_FORMATS: Final = dict(zip(get_args(KafkaFormat), (pb.KAFKA_CLOUDEVENTS_JSON, pb.KAFKA_PROTOBUF), strict=True))
_STATES: Final[dict[int, SinkState]] = {
    pb.SINK_ACTIVE: "active",
    pb.SINK_PAUSED: "paused",
    pb.SINK_FAILING: "failing",
}
_SECRET_BYTES: Final = 32
ALARM: Final = "optimization_stopped"
"""The kind of event after which somebody has to do something."""


@dataclass(frozen=True, slots=True)
class Sink:
    """A sink with how it fares.

    ``receiver`` is its configuration without secrets. ``offset``: it is done with all events up to this one;
    ``lag_events`` is how many the log has behind that, ``lag_s`` the age of the first of them in seconds.
    ``delivered`` counts events, repeated ones included. ``last_error`` stays when it is over. Times are milliseconds
    since 1970; 0: never. ``runner``: the process that delivers; "": none at the moment.
    """

    catalog: str
    name: str
    kind: Literal["webhook", "kafka", "mail"]
    receiver: Mapping[str, Any]
    patterns: tuple[str, ...]
    kinds: tuple[str, ...]
    state: SinkState
    owner: str
    created_ms: int
    offset: int
    epoch: int
    lag_events: int
    lag_s: float
    delivered: int
    failed_attempts: int
    dead_letters: int
    last_delivered_ms: int
    last_error: str
    last_error_ms: int
    failing_since_ms: int
    next_attempt_ms: int
    runner: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a sink has given up. ``resending``: another attempt was asked for."""

    id: int
    event: Event
    reason: str
    attempts: int
    failed_ms: int
    resending: bool


def new_secret() -> str:
    """A secret for signatures of a webhook; the receiver needs it, too."""
    return "whsec_" + base64.b64encode(random_secrets.token_bytes(_SECRET_BYTES)).decode()


@checked
class Sinks:
    """``client.sinks``. ``catalog`` "" is the default catalog.

    ``patterns``, ``kinds`` and ``after`` choose events as in ``Client.events``: None: those that come from now on.
    """

    def __init__(self, calls: Calls) -> None:
        self._call = calls
        self._stub = SinkServiceStub(calls.channel)

    def create_webhook(
        self,
        name: str,
        url: str,
        signing_secret: str,
        *,
        headers: Mapping[str, str] | None = None,
        batch: bool = False,
        timeout_ms: Count = 0,
        attempts_max: int = 0,
        patterns: Iterable[str] = (),
        kinds: Iterable[str] = (),
        after: Place = None,
        paused: bool = False,
        catalog: str = "",
    ) -> Sink:
        """Creates a sink that sends events as CloudEvents in HTTP POST requests, signed with ``signing_secret``.

        ``headers`` go with each request and are secret. ``batch``: several events in one request. ``timeout_ms``: of
        an attempt; 0: 10,000. ``attempts_max``: after so many, events become dead letters; 0: 8, negative: never.
        Raises AlreadyExists, InvalidName, InvalidArgument, LimitExceeded, OffsetUnknown, EventsTrimmed.
        """
        request = self._request(name, patterns, kinds, after, paused, catalog)
        request.webhook.CopyFrom(pb.WebhookSink(url=url, batch=batch, timeout_ms=timeout_ms, attempts_max=attempts_max))
        request.secrets.CopyFrom(pb.SinkSecrets(signing_secrets=[signing_secret], headers=headers or {}))
        return self._create(request)

    def create_kafka(
        self,
        name: str,
        bootstrap_servers: str,
        topic: str,
        *,
        format: KafkaFormat = "cloudevents",  # noqa: A002 - what it is called everywhere
        properties: Mapping[str, str] | None = None,
        secret_properties: Mapping[str, str] | None = None,
        patterns: Iterable[str] = (),
        kinds: Iterable[str] = (),
        after: Place = None,
        paused: bool = False,
        catalog: str = "",
    ) -> Sink:
        """Creates a sink that writes events to a topic, those of a table in one partition.

        ``properties`` are librdkafka's, as "security.protocol"; ``secret_properties``, as "sasl.password". Raises as
        ``create_webhook``, and FailedPrecondition if the service has no client for Kafka.
        """
        request = self._request(name, patterns, kinds, after, paused, catalog)
        request.kafka.CopyFrom(
            pb.KafkaSink(
                bootstrap_servers=bootstrap_servers, topic=topic, format=_FORMATS[format], properties=properties or {}
            )
        )
        request.secrets.CopyFrom(pb.SinkSecrets(properties=secret_properties or {}))
        return self._create(request)

    def create_mail(
        self,
        name: str,
        to: Iterable[str],
        *,
        patterns: Iterable[str] = (),
        kinds: Iterable[str] = (ALARM,),
        after: Place = None,
        paused: bool = False,
        catalog: str = "",
    ) -> Sink:
        """Creates a sink that writes mail to these addresses, by default about tables that optimization has stopped on.

        Raises as ``create_webhook``, and FailedPrecondition if the service has no mail server.
        """
        request = self._request(name, patterns, kinds, after, paused, catalog)
        request.mail.CopyFrom(pb.MailSink(to=to))
        return self._create(request)

    def get(self, name: str, *, catalog: str = "") -> Sink:
        """Raises SinkNotFound."""
        return _sink(self._call(self._stub.GetSink, pb.GetSinkRequest(catalog=catalog, name=name)))

    def list(self, *, catalog: str = "") -> tuple[Sink, ...]:
        """The sinks of a catalog in order of name."""
        return tuple(map(_sink, self._call(self._stub.ListSinks, pb.ListSinksRequest(catalog=catalog)).sinks))

    def pause(self, name: str, *, catalog: str = "") -> Sink:
        """Lets it deliver nothing until it is resumed. Raises SinkNotFound."""
        request = pb.PauseSinkRequest(catalog=catalog, name=name, request_id=str(uuid4()))
        return _sink(self._call(self._stub.PauseSink, request, mutation=True))

    def resume(self, name: str, *, after: Place = None, end: bool = False, catalog: str = "") -> Sink:
        """Goes on where the sink is, behind ``after``, or at the ``end`` of the log.

        A failing sink tries again at once. Raises SinkNotFound, OffsetUnknown, EventsTrimmed.
        """
        request = pb.ResumeSinkRequest(catalog=catalog, name=name, request_id=str(uuid4()))
        if after is not None or end:
            request.begin.CopyFrom(position_of(after))
        return _sink(self._call(self._stub.ResumeSink, request, mutation=True))

    def set_webhook_secrets(
        self,
        name: str,
        signing_secrets: Iterable[str],
        *,
        headers: Mapping[str, str] | None = None,
        catalog: str = "",
    ) -> Sink:
        """Replaces all secrets of a webhook. With two signing secrets each request has a signature by each.

        Raises SinkNotFound, InvalidArgument.
        """
        return self._set(name, catalog, pb.SinkSecrets(signing_secrets=signing_secrets, headers=headers or {}))

    def set_kafka_secrets(self, name: str, properties: Mapping[str, str], *, catalog: str = "") -> Sink:
        """Replaces all secret properties. Raises SinkNotFound, InvalidArgument."""
        return self._set(name, catalog, pb.SinkSecrets(properties=properties))

    def drop(self, name: str, *, if_exists: bool = False, catalog: str = "") -> bool:
        """Drops the sink with its dead letters. Whether there was one. Raises SinkNotFound."""
        request = pb.DropSinkRequest(catalog=catalog, name=name, if_exists=if_exists, request_id=str(uuid4()))
        return self._call(self._stub.DropSink, request, mutation=True).dropped

    def dead_letters(self, name: str, *, catalog: str = "") -> Iterator[DeadLetter]:
        """Events that were given up, the oldest first. Raises SinkNotFound."""
        token = ""
        while True:
            request = pb.ListDeadLettersRequest(catalog=catalog, name=name, page_token=token)
            answer = self._call(self._stub.ListDeadLetters, request)
            yield from map(_letter, answer.letters)
            token = answer.next_page_token
            if not token:
                return

    def resend(self, name: str, ids: Iterable[int] | None = None, *, catalog: str = "") -> int:
        """Asks for another attempt at these dead letters, or all (None). Returns how many there are.

        Those that arrive are dead letters no more. Raises SinkNotFound, FailedPrecondition (it is paused).
        """
        request = pb.ResendDeadLettersRequest(catalog=catalog, name=name, ids=ids or (), all=ids is None)
        return self._call(self._stub.ResendDeadLetters, request, mutation=True).letters

    def drop_letters(self, name: str, ids: Iterable[int] | None = None, *, catalog: str = "") -> int:
        """Removes these dead letters, or all (None). Returns how many there were. Raises SinkNotFound."""
        request = pb.DropDeadLettersRequest(catalog=catalog, name=name, ids=ids or (), all=ids is None)
        return self._call(self._stub.DropDeadLetters, request, mutation=True).letters

    def _request(
        self, name: str, patterns: Iterable[str], kinds: Iterable[str], after: Place, paused: bool, catalog: str
    ) -> pb.CreateSinkRequest:
        return pb.CreateSinkRequest(
            catalog=catalog,
            name=name,
            filter=filter_from(kinds=kinds, patterns=patterns),
            begin=position_of(after),
            owner=user_name(),
            paused=paused,
            request_id=str(uuid4()),
        )

    def _create(self, request: pb.CreateSinkRequest) -> Sink:
        return _sink(self._call(self._stub.CreateSink, request, mutation=True))

    def _set(self, name: str, catalog: str, given: pb.SinkSecrets) -> Sink:
        request = pb.SetSinkSecretsRequest(catalog=catalog, name=name, secrets=given, request_id=str(uuid4()))
        return _sink(self._call(self._stub.SetSinkSecrets, request, mutation=True))


def _sink(message: pb.Sink) -> Sink:
    kind = _kind(message)
    receiver: dict[str, Any]
    if kind == "mail":
        receiver = {"to": list(message.mail.to)}
    elif kind == "webhook":
        given = message.webhook
        receiver = {
            "url": given.url,
            "batch": given.batch,
            "timeout_ms": given.timeout_ms,
            "attempts_max": given.attempts_max,
            "headers": list(given.header_names),
        }
    else:
        receiver = {
            "bootstrap_servers": message.kafka.bootstrap_servers,
            "topic": message.kafka.topic,
            "format": next(word for word, number in _FORMATS.items() if number == message.kafka.format),
            "properties": dict(message.kafka.properties),
            "secret_properties": list(message.kafka.secret_names),
        }
    return Sink(
        message.catalog,
        message.name,
        kind,
        receiver,
        tuple(message.filter.patterns),
        tuple(map(kind_word, message.filter.kinds)),
        _STATES.get(message.state, "active"),
        message.owner,
        message.created_ms,
        message.offset,
        message.epoch,
        message.lag_events,
        message.lag_ms / 1_000,
        message.delivered,
        message.failed_attempts,
        message.dead_letters,
        message.last_delivered_ms,
        message.last_error,
        message.last_error_ms,
        message.failing_since_ms,
        message.next_attempt_ms,
        message.runner,
    )


def _kind(message: pb.Sink) -> Literal["webhook", "kafka", "mail"]:
    if message.HasField("mail"):
        return "mail"
    return "webhook" if message.HasField("webhook") else "kafka"


def _letter(message: pb.DeadLetter) -> DeadLetter:
    return DeadLetter(
        message.id,
        event_from(message.event),
        message.reason,
        message.attempts,
        message.failed_ms,
        message.resending,
    )
