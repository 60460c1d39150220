"""Consumers of events: places in the log of a catalog that the service keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import uuid4

from lakemark.arguments import Natural, checked
from lakemark.client.calls import Calls
from lakemark.client.events import Event, Place, filter_from, position_of
from lakemark_core.errors import InvalidArgument
from lakemark_core.messages.cloud_events import kind_word
from lakemark_core.user import user_name
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.events_pb2_grpc import EventServiceStub


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer. It is done with all events up to ``offset`` in ``epoch``.

    ``end``: the offset of the last event that there is. ``moved_ms``: when the offset last changed. ``member``: who of
    its group has it now; "": nobody. ``managed_by``: a part of the service that it belongs to; "": it is a client's.
    """

    catalog: str
    name: str
    patterns: tuple[str, ...]
    kinds: tuple[str, ...]
    owner: str
    created_ms: int
    offset: int
    epoch: int
    moved_ms: int
    end: int
    member: str
    managed_by: str

    @property
    def behind(self) -> int:
        """How many events there are that it is not done with, those of others included."""
        return max(0, self.end - self.offset)


@checked
class Consumers:
    """``client.consumers``. ``catalog`` "" is the default catalog. ``client.events(consumer=...)`` reads as one."""

    def __init__(self, calls: Calls) -> None:
        self._call = calls
        self._stub = EventServiceStub(calls.channel)

    def create(
        self,
        name: str,
        after: Place = None,
        *,
        epoch: Natural | None = None,
        catalog: str = "",
        database: str | None = None,
        table: str | None = None,
        patterns: Iterable[str] = (),
        kinds: Iterable[str] = (),
        owner: str | None = None,
    ) -> Consumer:
        """Creates a consumer. The place and the filter are as in ``Client.events``: None: from now on.

        ``owner`` None: this user. Raises AlreadyExists, InvalidName, LimitExceeded, InvalidArgument, EventsTrimmed,
        EventsLost, OffsetUnknown.
        """
        request = pb.CreateConsumerRequest(
            catalog=catalog,
            name=name,
            filter=filter_from(database, table, kinds, patterns),
            begin=position_of(after, epoch),
            owner=user_name() if owner is None else owner,
            request_id=str(uuid4()),
        )
        return _consumer(self._call(self._stub.CreateConsumer, request, mutation=True))

    def get(self, name: str, catalog: str = "") -> Consumer:
        """The consumer. Raises ConsumerNotFound."""
        return _consumer(self._call(self._stub.GetConsumer, pb.GetConsumerRequest(catalog=catalog, name=name)))

    def list(self, catalog: str = "") -> Iterator[Consumer]:
        """All consumers of a catalog, in order of name."""
        token = ""
        while True:
            request = pb.ListConsumersRequest(catalog=catalog, page_token=token)
            answer = self._call(self._stub.ListConsumers, request)
            yield from map(_consumer, answer.consumers)
            token = answer.next_page_token
            if not token:
                return

    def seek(self, name: str, after: Place, *, epoch: Natural | None = None, catalog: str = "") -> Consumer:
        """Moves the consumer, forward or back. Whoever reads as it goes on from there.

        Raises ConsumerNotFound, EventsTrimmed, EventsLost, OffsetUnknown.
        """
        request = pb.SeekConsumerRequest(
            catalog=catalog, name=name, to=position_of(after, epoch), request_id=str(uuid4())
        )
        return _consumer(self._call(self._stub.SeekConsumer, request, mutation=True))

    def acknowledge(
        self, name: str, upto: Natural | Event, *, epoch: Natural | None = None, catalog: str = "", token: Natural = 0
    ) -> int:
        """Notes that the consumer is done with all events up to this one. Returns the offset where it is now.

        Never moves it back. ``epoch`` belongs to an offset; an event has its own. ``token``: that of the stream by
        which the events came (``EventStream.token``); 0: they were listed. Raises ConsumerTaken, ConsumerNotFound,
        OffsetUnknown, EventsLost.
        """
        if isinstance(upto, Event):
            offset, epoch = upto.offset, upto.epoch
        elif epoch is None:
            raise InvalidArgument("an offset is acknowledged together with its epoch")
        else:
            offset = upto
        request = pb.AcknowledgeEventsRequest(catalog=catalog, consumer=name, offset=offset, epoch=epoch, token=token)
        return self._call(self._stub.AcknowledgeEvents, request).offset

    def drop(self, name: str, *, if_exists: bool = False, catalog: str = "") -> bool:
        """Drops the consumer. Returns whether there was one. Raises ConsumerNotFound, FailedPrecondition."""
        request = pb.DropConsumerRequest(catalog=catalog, name=name, if_exists=if_exists, request_id=str(uuid4()))
        return self._call(self._stub.DropConsumer, request, mutation=True).dropped


def _consumer(message: pb.Consumer) -> Consumer:
    return Consumer(
        catalog=message.catalog,
        name=message.name,
        patterns=tuple(message.filter.patterns),
        kinds=tuple(map(kind_word, message.filter.kinds)),
        owner=message.owner,
        created_ms=message.created_ms,
        offset=message.offset,
        epoch=message.epoch,
        moved_ms=message.moved_ms,
        end=message.end,
        member=message.member,
        managed_by=message.managed_by,
    )
