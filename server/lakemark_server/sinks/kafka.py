"""Kafka: events as records of a topic, those of a table in one partition and in order (docs/sinks.md).

The producer is idempotent and gives up only records that the broker refuses for good: within a partition nothing else
is repeated, left out or exchanged as long as the producer lives. A new producer (after another runner, or an error)
begins with the first event that was not confirmed. So a reader sees an event again only behind itself, and can drop it
by its offset.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from lakemark_core.errors import FailedPrecondition
from lakemark_core.messages.cloud_events import CONTENT_TYPE, cloud_event_json
from lakemark_proto.store.v1.store_pb2 import SinkRecord
from lakemark_proto.v1 import sinks_pb2 as pb
from lakemark_proto.v1.events_pb2 import Event
from lakemark_server.sinks.delivery import DeliveryAborted, DeliveryFailed, EventRefused

EVENTS_MAX: Final = 1_000
ANSWER_S_MAX: Final = 5.0
"""How long an attempt waits for the broker before it is told to have failed. The producer goes on trying."""
BYTES_MAX: Final = 8 << 20
"""Of the records that are on the way at a time, about."""
PROTOBUF_TYPE: Final = "application/protobuf"

_OWN: Final = {
    "enable.idempotence": True,
    "message.timeout.ms": 0,
    "partitioner": "murmur2_random",  # as Java's clients have it
    "client.id": "lakemark",
    "linger.ms": 1,
    "topic.metadata.refresh.interval.ms": 60_000,
    "log.connection.close": False,
}
_QUIET: Final = logging.getLogger("lakemark.sinks.librdkafka")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


@dataclass(slots=True)
class _Sent:
    """A record on its way. ``error`` None and ``done``: the broker has it."""

    done: bool = False
    error: Any = None


class KafkaSender:
    """A ``Sender``. Raises FailedPrecondition if the client for Kafka is not installed, or refuses a property."""

    events_max = EVENTS_MAX

    def __init__(self, record: SinkRecord, answer_s_max: float = ANSWER_S_MAX) -> None:
        try:
            import confluent_kafka
        except ImportError as error:
            raise FailedPrecondition(
                "sinks to Kafka need the extra 'kafka' in the service's environment: pip install 'lakemark[kafka]'"
            ) from error
        self._kafka: Any = confluent_kafka
        self._topic, self._format = record.kafka.topic, record.kafka.format
        self._servers = record.kafka.bootstrap_servers
        self._answer_s_max = answer_s_max
        self._config = {
            **record.kafka.properties,
            **record.secrets.properties,
            **_OWN,
            "bootstrap.servers": self._servers,
        }
        self._sent: dict[tuple[int, int], _Sent] = {}  # by epoch and offset
        self._told = ""  # what the client last said about the brokers
        self._aborted = False
        self._producer: Any = self._made()

    def send(self, events: Sequence[Event], *, resent: bool = False) -> int:
        """Hands the events to the producer, unless it has them, and waits until the broker has some of the first.

        Raises DeliveryFailed, EventRefused, DeliveryAborted.
        """
        try:
            return self._send(events, resent=resent)
        except self._kafka.KafkaException as error:
            raise self._failure(error.args[0]) from error

    def _send(self, events: Sequence[Event], *, resent: bool) -> int:
        if resent:
            self._begin_anew()  # what is on its way would be confirmed to nobody
        taken = self._hand_over(events, resent=resent)
        first = self._sent[_place(events[0])]
        until_s = time.monotonic() + self._answer_s_max
        while not first.done or any(not self._sent[_place(event)].done for event in events[:taken]):
            left_s = until_s - time.monotonic()
            if left_s <= 0 or self._aborted or first.error is not None:
                break
            self._producer.poll(min(left_s, 0.1))
        if self._aborted:
            raise DeliveryAborted("the sink was stopped")
        count = self._confirmed(events[:taken])
        if count:
            return count
        if first.error is not None and self._is_size(first.error) and taken > 1:
            # The broker refuses records together: the first one may be small.
            self._begin_anew()
            return self._send(events[:1], resent=resent)
        if first.error is not None:
            raise self._failure(first.error)
        raise DeliveryFailed(
            f"no broker of {self._servers} has confirmed within {self._answer_s_max:g} s"
            + (f": {self._told}" if self._told else ""),
            counts=False,
        )

    def abort(self) -> None:
        """As ``Sender`` says."""
        self._aborted = True

    def close(self) -> None:
        """As ``Sender`` says."""
        self._producer.purge()
        self._producer.flush(0)
        self._sent.clear()

    def _hand_over(self, events: Sequence[Event], *, resent: bool) -> int:
        """How many of the first events the producer has now."""
        size = 0
        for number, event in enumerate(events):
            place = _place(event)
            if place in self._sent:
                continue
            value = self._value(event)
            size += len(value)
            if number and size > BYTES_MAX:
                return number
            sent = self._sent[place] = _Sent()
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    key=key_of(event),
                    headers=self._headers(event, resent=resent),
                    timestamp=event.time_ms,
                    on_delivery=_note(sent),
                )
            except BufferError:  # the producer is full
                del self._sent[place]
                if not number:
                    raise DeliveryFailed(f"no broker of {self._servers} takes records", counts=False) from None
                return number
            except self._kafka.KafkaException as error:
                del self._sent[place]
                if number and not error.args[0].fatal():
                    return number
                raise
            self._producer.poll(0)
        return len(events)

    def _confirmed(self, events: Sequence[Event]) -> int:
        """How many of the first events the broker has; they are forgotten."""
        count = 0
        for event in events:
            sent = self._sent[_place(event)]
            if not sent.done or sent.error is not None:
                break
            count += 1
        for event in events[:count]:
            del self._sent[_place(event)]
            self._told = ""
        return count

    def _failure(self, error: Any) -> DeliveryFailed | EventRefused:
        """What an error of the first event means. The next attempt begins with a new producer."""
        self._begin_anew(even_if_idle=error.fatal())
        if self._is_size(error):
            return EventRefused(f"topic {self._topic!r} takes no record of this size: {error.str()}")
        return DeliveryFailed(f"topic {self._topic!r} at {self._servers}: {error.str()}", counts=False)

    def _is_size(self, error: Any) -> bool:
        codes = self._kafka.KafkaError
        return error.code() in (codes.MSG_SIZE_TOO_LARGE, codes.INVALID_MSG_SIZE)

    def _begin_anew(self, *, even_if_idle: bool = False) -> None:
        if self._sent or even_if_idle:
            self.close()
            self._producer = self._made()

    def _made(self) -> Any:
        def hear(error: Any) -> None:
            self._told = error.str()

        try:
            return self._kafka.Producer({**self._config, "error_cb": hear}, logger=_QUIET)
        except self._kafka.KafkaException as error:
            raise FailedPrecondition(f"the client for Kafka refuses a property: {error.args[0].str()}") from error

    def _value(self, event: Event) -> bytes:
        if self._format == pb.KAFKA_PROTOBUF:
            return event.SerializeToString()
        return cloud_event_json(event).encode()

    def _headers(self, event: Event, *, resent: bool) -> list[tuple[str, bytes]]:
        content_type = PROTOBUF_TYPE if self._format == pb.KAFKA_PROTOBUF else CONTENT_TYPE
        headers = [
            ("content-type", content_type.encode()),
            ("lakemark-offset", str(event.offset).encode()),
            ("lakemark-epoch", str(event.epoch).encode()),
        ]
        return [*headers, ("lakemark-resent", b"true")] if resent else headers


def key_of(event: Event) -> bytes:
    """The key of an event's record: its table, whatever it is called now; else its database, or its catalog. Pure."""
    if event.table_id:
        return f"table:{event.table_id}".encode()
    if event.database:
        return f"database:{event.catalog}.{event.database}".encode()
    return f"catalog:{event.catalog}".encode()


def _place(event: Event) -> tuple[int, int]:
    return event.epoch, event.offset


def _note(sent: _Sent) -> Any:
    def told(error: Any, _: object) -> None:
        sent.done, sent.error = True, error

    return told
