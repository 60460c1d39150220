"""Iterators over events: those that there are, or those that come, over any number of connections."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Final, Self, TypeAlias

from lakemark.client.calls import Calls
from lakemark.client.events import Event, event_from
from lakemark_core.errors import ConsumerTaken, LakemarkError
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.events_pb2_grpc import EventServiceStub

_Response: TypeAlias = pb.WatchEventsResponse | pb.ListEventsResponse

ACKNOWLEDGE_S: Final = 1.0
"""How often a consumer tells the service how far it is, at most."""

LAST_WORD_S: Final = 5.0
"""How long the end of a stream waits for the service."""


class EventStream(Iterator[Event]):
    """The events that were asked for, in order. For one thread; ``close`` it, or use it in a ``with`` block.

    If the service goes away, it goes on where it was as soon as the service, or another one of its addresses, answers.
    ``upto``: all events up to this offset were given out or left out by the filter. ``end``: the offset of the last
    event that there was, when the service said so last.

    Of a consumer: asking for the next event says that one is done with those before. The service is told about once a
    second. What it was not told comes again, in this program or another member of the group.
    """

    def __init__(self, calls: Calls, request: pb.WatchEventsRequest, *, follow: bool, acknowledge: bool) -> None:
        self.upto = 0
        self.epoch = 0
        self.end = 0
        self._calls = calls
        self._stub = EventServiceStub(calls.channel)
        self._request = request
        self._acknowledges = acknowledge and bool(request.consumer)
        self._token = 0
        self._done = self._told = -1  # offsets: what the program is done with, what the service knows of it
        self._told_s = 0.0
        if request.consumer:
            request.member = request.member or secrets.token_hex(8)
        self._follows = follow
        self._responses = self._follow() if follow else self._list()
        self._batch: Iterator[pb.Event] = iter(())
        self._given = -1  # the offset that was given out last
        self._begun = False
        self._receive()  # what is wrong with the request is told now, and "from now on" begins now

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        self._done = max(self._done, self._given)
        while True:
            for message in self._batch:
                self._given = message.offset
                return event_from(message)
            if self._begun:  # all of the response is done with, what the filter left out too
                self._done = max(self._done, self.upto)
                self._acknowledge(ACKNOWLEDGE_S)
            self._receive()

    @property
    def token(self) -> int:
        """Of a consumer: what acknowledgements by hand need (``Consumers.acknowledge``)."""
        return self._token

    def acknowledge(self) -> None:
        """Tells the service at once that a consumer is done with all events up to the one that was given out last."""
        self._done = max(self._done, self._given)
        self._acknowledge(0)

    def close(self) -> None:
        """Ends it. The service is told what a consumer is done with: all but the last event that it was given."""
        try:
            if self._acknowledges or self._token:
                # While the stream still has the consumer. If it fails, these events come again: that is no error.
                with contextlib.suppress(LakemarkError):
                    self._tell(self._done if self._acknowledges else 0, leave=bool(self._token))
        finally:
            self._responses.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _receive(self) -> None:
        response = next(self._responses)
        if isinstance(response, pb.WatchEventsResponse) and response.waiting:
            return
        self.upto, self.epoch = response.upto, response.epoch
        self._begun = True
        self._batch = iter(response.events)

    def _follow(self) -> Generator[_Response]:
        for response in self._calls.follow(self._stub.WatchEvents, self._go_on, (ConsumerTaken,)):
            self._token, self.end = response.token, max(self.end, response.end)
            yield response

    def _go_on(self) -> pb.WatchEventsRequest:
        """The request for a new stream, from where this one is."""
        if self._request.consumer:
            self._acknowledge(0)
            self._done = self._told = self._given = -1  # the consumer may have been moved
        elif self._begun:
            self._request.begin.CopyFrom(pb.EventPosition(after=self.upto, epoch=self.epoch))
        return self._request

    def _list(self) -> Generator[_Response]:
        asked = self._request
        request = pb.ListEventsRequest(catalog=asked.catalog, begin=asked.begin, filter=asked.filter)
        if asked.consumer:
            consumer = self._calls(
                self._stub.GetConsumer, pb.GetConsumerRequest(catalog=asked.catalog, name=asked.consumer)
            )
            request.begin.CopyFrom(pb.EventPosition(after=consumer.offset, epoch=consumer.epoch))
            request.filter.CopyFrom(consumer.filter)
        whole = False
        while not whole:
            response = self._calls(self._stub.ListEvents, request)
            whole = response.whole
            yield response
            request.begin.CopyFrom(pb.EventPosition(after=response.upto, epoch=response.epoch))
        self._acknowledge(0)

    def _acknowledge(self, interval_s: float) -> None:
        if not self._acknowledges or self._done <= self._told or time.monotonic() < self._told_s + interval_s:
            return
        try:
            self._tell(self._done)
        except ConsumerTaken:
            if not self._follows:
                raise
            # The stream ends for the same reason, and begins again where the consumer is then.
        self._told, self._told_s = self._done, time.monotonic()

    def _tell(self, done: int, *, leave: bool = False) -> None:
        request = pb.AcknowledgeEventsRequest(
            catalog=self._request.catalog,
            consumer=self._request.consumer,
            offset=max(0, done),
            epoch=self.epoch,
            token=self._token,
            leave=leave,
        )
        self._calls(self._stub.AcknowledgeEvents, request, timeout_s=LAST_WORD_S if leave else None)
