"""EventService over the events domain."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import grpc

from lakemark_core.errors import InvalidArgument
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.events_pb2_grpc import EventServiceServicer
from lakemark_server.admission.limits import Limits
from lakemark_server.admission.ranks import Rank
from lakemark_server.admission.tenants import overloaded
from lakemark_server.catalog.names import legal_catalog
from lakemark_server.events.consumers import Consumer, Consumers, EventPosition, Start
from lakemark_server.events.feed import Watcher
from lakemark_server.events.filters import EventFilter, filter_of, subject_of
from lakemark_server.events.ring import Delivery
from lakemark_server.events.service import Events
from lakemark_server.rpc.catalog import page_limit
from lakemark_server.rpc.declaration import method
from lakemark_server.rpc.loop import grpc_loop
from lakemark_server.rpc.pages import cut
from lakemark_server.rpc.streams import Signal, Stream, Wakes
from lakemark_server.store.leases import Lease

Context = grpc.ServicerContext

LEASE_MS: Final = 10_000
"""After so long without a word of its stream, another member can have a consumer."""

_RENEW_S: Final = LEASE_MS / 1000 / 4
_ASK_S: Final = 1.0  # how often a member that waits for its consumer asks
HEARTBEAT_MS: Final = 5_000
HEARTBEAT_MS_MIN: Final = 100
HEARTBEAT_MS_MAX: Final = 60_000
LISTED_MAX: Final = 1_000
LISTED_PAGES: Final = 20
"""Pages of the log that a request reads to fill its own page."""

LISTED_BYTES: Final = 4 << 20
MEMBER_CHARS_MAX: Final = 100
_RETRY_MS: Final = 1_000.0


class WatcherCounts:
    """How many streams there are, in all and of each tenant. For the thread of the event loop."""

    def __init__(self, limits_of: Callable[[str], Limits], watchers_max: int) -> None:
        self._limits_of = limits_of
        self._max = watchers_max
        self._counts: Counter[str] = Counter()

    @contextmanager
    def one(self, catalog: str) -> Iterator[None]:
        """Counts a stream. Raises Overloaded."""
        allowed = self._limits_of(catalog).watchers
        if self._counts.total() >= self._max:
            raise overloaded(
                f"{self._max} streams of events are open in this process", _RETRY_MS, limit="grpc_watchers_max"
            )
        if self._counts[catalog] >= allowed:
            raise overloaded(
                f"catalog {catalog!r} has {self._counts[catalog]} streams of events open in this process; its quota of "
                f"watchers is {allowed}",
                _RETRY_MS,
                catalog=catalog,
                limit="watchers",
                allowed=str(allowed),
            )
        self._counts[catalog] += 1
        try:
            yield
        finally:
            self._counts[catalog] -= 1
            if not self._counts[catalog]:
                del self._counts[catalog]


class _Held:
    """A consumer that a stream has, and the task that keeps it: however long the client takes to read a response."""

    def __init__(self, consumers: Consumers, stream: Stream, lease: Lease) -> None:
        self.lease = lease
        self._consumers, self._stream = consumers, stream
        self._keeping = asyncio.create_task(self._keep())

    def check(self) -> None:
        """Raises what has ended it: ConsumerTaken, or an error of the store."""
        if self._keeping.done():
            self._keeping.result()

    def end(self) -> None:
        """Gives the consumer back."""
        self._keeping.cancel()
        self._stream.run_last(partial(self._consumers.leave, self.lease))

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_S)
            self.lease = await self._stream.run(partial(self._consumers.keep, self.lease, LEASE_MS), Rank.VITAL)


class EventServicer(EventServiceServicer):
    def __init__(self, events: Events, limits_of: Callable[[str], Limits], watchers_max: int) -> None:
        self._log, self._feed, self._consumers = events.log, events.feed, events.consumers
        self._retention, self._clock = events.retention, events.clock
        self._counts = WatcherCounts(limits_of, watchers_max)
        self._loop = grpc_loop()
        self._wakes = Wakes(self._loop)

    @method(Rank.READ)
    async def WatchEvents(self, request: pb.WatchEventsRequest, stream: Stream) -> None:  # type: ignore[override]
        catalog = legal_catalog(request.catalog)
        heartbeat_s = _heartbeat_ms(request.heartbeat_ms) / 1000
        with self._counts.one(catalog):
            if request.consumer:
                await self._consume(request, catalog, stream, heartbeat_s)
            else:
                wanted = filter_of(request.filter)
                position = await stream.run(lambda: self._consumers.locate(catalog, _start(request.begin)))
                await self._tell(stream, catalog, position, wanted, heartbeat_s)

    async def _consume(self, request: pb.WatchEventsRequest, catalog: str, stream: Stream, heartbeat_s: float) -> None:
        _refuse_both(request)
        member = request.member or secrets.token_hex(8)
        if len(member) > MEMBER_CHARS_MAX:
            raise InvalidArgument(f"the name of a member has at most {MEMBER_CHARS_MAX} characters")
        lease = await self._held(stream, catalog, request.consumer, member, heartbeat_s)
        if lease is None:
            return
        held = _Held(self._consumers, stream, lease)
        try:
            consumer, position = await stream.run(lambda: self._where(catalog, request.consumer))
            await self._tell(stream, catalog, position, filter_of(consumer.record.filter), heartbeat_s, held)
        finally:
            held.end()

    def _where(self, catalog: str, name: str) -> tuple[Consumer, EventPosition]:
        consumer = self._consumers.get(catalog, name)
        offset, epoch = consumer.position
        return consumer, self._consumers.locate(catalog, Start(offset, epoch))

    async def _held(self, stream: Stream, catalog: str, name: str, member: str, heartbeat_s: float) -> Lease | None:
        """The consumer's lease, as soon as nobody else has it; None: the stream is over."""
        never = self._wakes.signal()
        told_s = float("-inf")
        while not stream.until.over():
            lease = await stream.run(lambda: self._consumers.hold(catalog, name, member, LEASE_MS))
            if lease is not None:
                return lease
            if self._loop.time() >= told_s + heartbeat_s:
                consumer = await stream.run(lambda: self._consumers.get(catalog, name))
                offset, epoch = consumer.position
                waiting = pb.WatchEventsResponse(upto=offset, epoch=epoch, waiting=True)
                await stream.send(waiting.SerializeToString())
                told_s = self._loop.time()
            self._feed.check()
            await never.wait(min(_ASK_S, stream.until.remaining_s()))
        return None

    async def _tell(
        self,
        stream: Stream,
        catalog: str,
        position: EventPosition,
        wanted: EventFilter,
        heartbeat_s: float,
        held: _Held | None = None,
    ) -> None:
        """Sends events from the position on, until the stream is over or its client leaves."""
        signal = self._wakes.signal()
        watcher = await stream.run(
            lambda: self._feed.watch(catalog, position.offset, position.epoch, wanted, signal.wake)
        )
        try:
            await self._send_all(stream, watcher, signal, heartbeat_s, held)
        finally:
            watcher.close()

    async def _send_all(
        self, stream: Stream, watcher: Watcher, signal: Signal, heartbeat_s: float, held: _Held | None
    ) -> None:
        told_s = float("-inf")  # the first response is sent at once
        while not stream.until.over():
            signal.clear()
            delivery = watcher.recent()
            if delivery is None:
                delivery = await stream.run(watcher.older)
            if held is not None:
                held.check()
            if delivery.events or self._loop.time() >= told_s + heartbeat_s:
                await stream.send(_response(watcher, delivery, held))
                told_s = self._loop.time()
            if delivery.more:
                await asyncio.sleep(0)  # others have their turn
                continue
            await signal.wait(min(told_s + heartbeat_s - self._loop.time(), stream.until.remaining_s()))

    @method(Rank.READ)
    def ListEvents(self, request: pb.ListEventsRequest, context: Context) -> pb.ListEventsResponse:
        catalog = legal_catalog(request.catalog)
        limit = page_limit(request.page_size, LISTED_MAX)
        if request.consumer:
            _refuse_both(request)
            consumer, position = self._where(catalog, request.consumer)
            wanted = filter_of(consumer.record.filter)
        else:
            wanted = filter_of(request.filter)
            position = self._consumers.locate(catalog, _start(request.begin))
        answer = pb.ListEventsResponse(upto=position.offset, epoch=position.epoch)
        place = self._log.begin(catalog, position.offset, position.epoch)
        size_bytes = 0
        for _ in range(LISTED_PAGES):
            page = self._log.page(catalog, place)
            for event in page.events:
                if wanted.fits(subject_of(event)):
                    size_bytes += event.ByteSize()
                    if len(answer.events) == limit or (answer.events and size_bytes > LISTED_BYTES):
                        return answer
                    answer.events.append(event)
                answer.upto = event.offset
            answer.upto = max(answer.upto, page.position.after)
            if page.whole:
                answer.whole = True
                break
            place = page.position
        return answer

    @method(Rank.READ)
    def GetEventLog(self, request: pb.GetEventLogRequest, context: Context) -> pb.EventLogDescription:
        catalog = legal_catalog(request.catalog)
        summary = self._log.summary(catalog)
        return pb.EventLogDescription(
            catalog=catalog,
            first=summary.extent.first,
            last=summary.extent.last,
            epoch=summary.extent.epoch,
            first_ms=summary.first_ms,
            last_ms=summary.last_ms,
            size_bytes=summary.size_bytes,
            retain_ms=self._retention.ms,
            retain_bytes=self._retention.bytes,
        )

    @method(Rank.WRITE)
    def CreateConsumer(self, request: pb.CreateConsumerRequest, context: Context) -> pb.Consumer:
        catalog = legal_catalog(request.catalog)
        return self._described(
            self._consumers.create(
                catalog,
                request.name,
                request.filter,
                _start(request.begin),
                owner=request.owner,
                request_id=request.request_id,
            )
        )

    @method(Rank.READ)
    def GetConsumer(self, request: pb.GetConsumerRequest, context: Context) -> pb.Consumer:
        return self._described(self._consumers.get(legal_catalog(request.catalog), request.name))

    @method(Rank.READ)
    def ListConsumers(self, request: pb.ListConsumersRequest, context: Context) -> pb.ListConsumersResponse:
        catalog, limit = legal_catalog(request.catalog), page_limit(request.page_size)
        listed = self._consumers.list(catalog, request.page_token, limit + 1)
        page, token = cut(listed, limit, lambda consumer: consumer.record.name)
        end = self._log.extent(catalog).last if page else 0
        return pb.ListConsumersResponse(
            consumers=[self._message(consumer, end) for consumer in page], next_page_token=token
        )

    @method(Rank.WRITE)
    def DropConsumer(self, request: pb.DropConsumerRequest, context: Context) -> pb.DropConsumerResponse:
        dropped = self._consumers.drop(
            legal_catalog(request.catalog), request.name, if_exists=request.if_exists, request_id=request.request_id
        )
        return pb.DropConsumerResponse(dropped=dropped)

    @method(Rank.WRITE)
    def SeekConsumer(self, request: pb.SeekConsumerRequest, context: Context) -> pb.Consumer:
        catalog = legal_catalog(request.catalog)
        return self._described(
            self._consumers.seek(catalog, request.name, _start(request.to), request_id=request.request_id)
        )

    @method(Rank.WRITE)
    def AcknowledgeEvents(self, request: pb.AcknowledgeEventsRequest, context: Context) -> pb.AcknowledgeEventsResponse:
        done = EventPosition(request.offset, request.epoch)
        catalog = legal_catalog(request.catalog)
        offset, epoch = self._consumers.acknowledge(catalog, request.consumer, done, request.token, leave=request.leave)
        return pb.AcknowledgeEventsResponse(offset=offset, epoch=epoch)

    def _described(self, consumer: Consumer) -> pb.Consumer:
        return self._message(consumer, self._log.extent(consumer.record.catalog).last)

    def _message(self, consumer: Consumer, end: int) -> pb.Consumer:
        record, place = consumer.record, consumer.place
        member = consumer.member(self._clock())
        return pb.Consumer(
            catalog=record.catalog,
            name=record.name,
            filter=record.filter,
            owner=record.owner,
            created_ms=record.created_ms,
            offset=place.offset,
            epoch=place.epoch,
            moved_ms=place.moved_ms,
            end=end,
            member=member,
            member_until_ms=consumer.lease.expires_ms if consumer.lease is not None and member else 0,
            managed_by=record.managed_by,
        )


def _response(watcher: Watcher, delivery: Delivery, held: _Held | None) -> bytes:
    """The events are encoded already, and messages that are joined are merged."""
    rest = pb.WatchEventsResponse(
        upto=watcher.upto, epoch=watcher.epoch, end=watcher.end, token=held.lease.token if held is not None else 0
    )
    return delivery.encoded + rest.SerializeToString()


def _start(position: pb.EventPosition) -> Start:
    return Start(position.after, position.epoch if position.HasField("epoch") else None, position.end)


def _refuse_both(request: pb.WatchEventsRequest | pb.ListEventsRequest) -> None:
    if request.HasField("begin") or request.HasField("filter"):
        raise InvalidArgument("a consumer has its own filter and place: give either a consumer or these")


def _heartbeat_ms(asked: int) -> int:
    if asked and not HEARTBEAT_MS_MIN <= asked <= HEARTBEAT_MS_MAX:
        raise InvalidArgument(f"heartbeat_ms is {asked}: it must be 0, or {HEARTBEAT_MS_MIN} to {HEARTBEAT_MS_MAX}")
    return asked or HEARTBEAT_MS
