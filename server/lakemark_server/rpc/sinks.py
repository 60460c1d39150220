"""SinkService over the sinks."""

from __future__ import annotations

from typing import Final

import grpc

from lakemark_core.errors import InvalidArgument
from lakemark_proto.v1 import sinks_pb2 as pb
from lakemark_proto.v1.events_pb2 import EventPosition
from lakemark_proto.v1.sinks_pb2_grpc import SinkServiceServicer
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog.names import legal_catalog
from lakemark_server.events.consumers import END, Start
from lakemark_server.rpc.catalog import page_limit
from lakemark_server.rpc.declaration import method
from lakemark_server.rpc.pages import decode_token, encode_token
from lakemark_server.sinks import definitions, registry
from lakemark_server.sinks.dead_letters import Letter, SinkId
from lakemark_server.sinks.registry import Sinks, SinkStatus

LETTERS_A_PAGE: Final = 100
IDS_MAX: Final = 1_000
Context = grpc.ServicerContext


class SinkServicer(SinkServiceServicer):
    def __init__(self, sinks: Sinks) -> None:
        self._sinks = sinks

    @method(Rank.WRITE)
    def CreateSink(self, request: pb.CreateSinkRequest, context: Context) -> pb.Sink:
        return _sink(
            self._sinks.create(
                legal_catalog(request.catalog),
                request.name,
                _receiver(request),
                request.secrets,
                request.filter,
                _start(request.begin) if request.HasField("begin") else END,
                owner=request.owner,
                paused=request.paused,
                request_id=request.request_id,
            )
        )

    @method(Rank.READ)
    def GetSink(self, request: pb.GetSinkRequest, context: Context) -> pb.Sink:
        return _sink(self._sinks.get(_sink_id(request.catalog, request.name)))

    @method(Rank.READ)
    def ListSinks(self, request: pb.ListSinksRequest, context: Context) -> pb.ListSinksResponse:
        return pb.ListSinksResponse(sinks=map(_sink, self._sinks.list(legal_catalog(request.catalog))))

    @method(Rank.WRITE)
    def PauseSink(self, request: pb.PauseSinkRequest, context: Context) -> pb.Sink:
        return _sink(self._sinks.pause(_sink_id(request.catalog, request.name), request_id=request.request_id))

    @method(Rank.WRITE)
    def ResumeSink(self, request: pb.ResumeSinkRequest, context: Context) -> pb.Sink:
        start = _start(request.begin) if request.HasField("begin") else None
        sink = _sink_id(request.catalog, request.name)
        return _sink(self._sinks.resume(sink, start, request_id=request.request_id))

    @method(Rank.WRITE)
    def SetSinkSecrets(self, request: pb.SetSinkSecretsRequest, context: Context) -> pb.Sink:
        sink = _sink_id(request.catalog, request.name)
        return _sink(self._sinks.set_secrets(sink, request.secrets, request_id=request.request_id))

    @method(Rank.WRITE)
    def DropSink(self, request: pb.DropSinkRequest, context: Context) -> pb.DropSinkResponse:
        sink = _sink_id(request.catalog, request.name)
        dropped = self._sinks.drop(sink, if_exists=request.if_exists, request_id=request.request_id)
        return pb.DropSinkResponse(dropped=dropped)

    @method(Rank.READ)
    def ListDeadLetters(self, request: pb.ListDeadLettersRequest, context: Context) -> pb.ListDeadLettersResponse:
        limit = page_limit(request.page_size, default=LETTERS_A_PAGE)
        (after,) = decode_token(request.page_token, int) if request.page_token else (0,)
        letters = self._sinks.letters(_sink_id(request.catalog, request.name), after, limit)
        token = encode_token(letters[-1].letter_id) if letters else ""
        return pb.ListDeadLettersResponse(letters=map(_letter, letters), next_page_token=token)

    @method(Rank.WRITE)
    def ResendDeadLetters(self, request: pb.ResendDeadLettersRequest, context: Context) -> pb.ResendDeadLettersResponse:
        sink = _sink_id(request.catalog, request.name)
        return pb.ResendDeadLettersResponse(letters=self._sinks.resend(sink, _ids(request), everything=request.all))

    @method(Rank.WRITE)
    def DropDeadLetters(self, request: pb.DropDeadLettersRequest, context: Context) -> pb.DropDeadLettersResponse:
        sink = _sink_id(request.catalog, request.name)
        return pb.DropDeadLettersResponse(letters=self._sinks.drop_letters(sink, _ids(request), everything=request.all))


def _receiver(request: pb.CreateSinkRequest) -> pb.WebhookSink | pb.KafkaSink | pb.MailSink:
    for kind, receiver in (("webhook", request.webhook), ("kafka", request.kafka), ("mail", request.mail)):
        if request.WhichOneof("kind") == kind:
            return receiver
    raise InvalidArgument("a sink needs a receiver: a webhook, Kafka, or mail")


def _sink_id(catalog: str, name: str) -> SinkId:
    return SinkId(legal_catalog(catalog), name)


def _start(position: EventPosition) -> Start:
    return Start(position.after, position.epoch if position.HasField("epoch") else None, position.end)


def _ids(request: pb.ResendDeadLettersRequest | pb.DropDeadLettersRequest) -> list[int]:
    if len(request.ids) > IDS_MAX or any(letter_id < 1 for letter_id in request.ids):
        raise InvalidArgument(f"a request names 1 to {IDS_MAX} dead letters by their ids, which begin with 1")
    return list(dict.fromkeys(request.ids))


def _letter(letter: Letter) -> pb.DeadLetter:
    record = letter.record
    return pb.DeadLetter(
        id=letter.letter_id,
        event=record.event,
        reason=record.reason,
        failed_ms=record.failed_ms,
        attempts=record.attempts,
        resending=letter.resending,
    )


def _sink(status: SinkStatus) -> pb.Sink:
    record, progress = status.record, status.progress
    kind = record.WhichOneof("kind")
    return pb.Sink(
        catalog=record.catalog,
        name=record.name,
        filter=status.consumer.record.filter,
        webhook=definitions.shown_webhook(record) if kind == "webhook" else None,
        kafka=definitions.shown_kafka(record) if kind == "kafka" else None,
        mail=record.mail if kind == "mail" else None,
        owner=record.owner,
        created_ms=record.created_ms,
        state=registry.state(status),
        offset=status.consumer.place.offset,
        epoch=status.consumer.place.epoch,
        lag_events=status.lag_events,
        lag_ms=status.lag_ms,
        delivered=progress.delivered,
        failed_attempts=progress.failed_attempts,
        dead_letters=status.letters,
        last_delivered_ms=progress.last_delivered_ms,
        last_error=progress.last_error,
        last_error_ms=progress.last_error_ms,
        failing_since_ms=progress.failing_since_ms,
        next_attempt_ms=progress.next_attempt_ms,
        runner=status.runner,
    )
