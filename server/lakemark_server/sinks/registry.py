"""Sinks as they are kept in the store: created, paused, resumed and dropped by users, each with its consumer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from lakemark_core.errors import AlreadyExists, FailedPrecondition, InvalidArgument, LimitExceeded, SinkNotFound
from lakemark_proto.store.v1.store_pb2 import SinkProgress, SinkRecord
from lakemark_proto.v1 import sinks_pb2 as pb
from lakemark_proto.v1.events_pb2 import (
    SINK_ALTERED,
    SINK_CREATED,
    SINK_DROPPED,
    Event,
    EventFilter,
    EventKind,
    SinkDetail,
)
from lakemark_server.context.clock import ClockMs, now_ms
from lakemark_server.events import consumers
from lakemark_server.events.consumers import END, Consumer, Consumers, Start
from lakemark_server.events.log import EventLog
from lakemark_server.kv import ReadTransaction, Store, Transaction
from lakemark_server.sinks import dead_letters, definitions, senders
from lakemark_server.sinks.dead_letters import CLEARED_A_TIME, Letter, SinkId
from lakemark_server.sinks.policies import SinkPolicy
from lakemark_server.store.keyspace import SINK_PROGRESS, SINKS, SINKS_CHANGED
from lakemark_server.store.mutations import Mutation, Mutations

SINKS_MAX: Final = 50
"""In a catalog: each has a thread in every process of the service."""
SINKS_OF_STORE_MAX: Final = 500
MANAGER: Final = "sink"

_Change: TypeAlias = Callable[[Mutation, SinkRecord], None]


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """A sink with how it fares. ``lag_events``: how many the log has behind its place; ``lag_ms``: since when."""

    record: SinkRecord
    progress: SinkProgress
    consumer: Consumer
    runner: str
    lag_events: int
    lag_ms: int
    letters: int


class Sinks:
    """Thread-safe. Catalogs are named in lower case. ``policy``: what the operator allows webhooks."""

    def __init__(
        self,
        store: Store,
        log: EventLog,
        registered: Consumers,
        clock: ClockMs = now_ms,
        policy: SinkPolicy = SinkPolicy(),  # noqa: B008 - immutable
    ) -> None:
        self._store, self._log, self._consumers, self._clock = store, log, registered, clock
        self._policy = policy
        self._mutations = Mutations(store, clock)

    def create(
        self,
        catalog: str,
        name: str,
        kind: pb.WebhookSink | pb.KafkaSink | pb.MailSink,
        secrets: pb.SinkSecrets,
        wanted: EventFilter,
        start: Start = END,
        *,
        owner: str = "",
        paused: bool = False,
        request_id: str = "",
    ) -> SinkStatus:
        """Raises AlreadyExists, InvalidName, InvalidArgument, LimitExceeded, and what ``Consumers.locate`` raises.

        FailedPrecondition: the client for Kafka is not installed, or the service has no mail server.
        """
        record = definitions.draft(catalog, name, kind, secrets, self._policy, owner=owner, paused=paused)
        senders.check(record, self._policy, self._clock)
        sink = SinkId(catalog, name)
        consumer = self._consumers.draft(catalog, consumer_name(name), wanted, owner=owner, managed_by=MANAGER)
        position = self._consumers.locate(catalog, start)

        def body(mutation: Mutation) -> pb.Sink:
            tx = mutation.tx
            if tx.get(SINKS.key(*sink)) is not None:
                raise AlreadyExists(f"sink {name!r} of catalog {catalog!r} exists already", name=name)
            _check_room(tx, catalog)
            self._consumers.create_within(mutation, consumer, position)
            record.created_ms = mutation.now_ms
            _put(mutation, sink, record)
            mutation.tell(_event(SINK_CREATED, record, wanted, request_id))
            return pb.Sink(name=name)

        self._mutations.once(request_id, f"CreateSink {catalog}.{name}", pb.Sink, body)
        return self.get(sink)

    def get(self, sink: SinkId) -> SinkStatus:
        """Raises SinkNotFound."""
        return self._status(sink, self._store.read(lambda tx: find(tx, sink)))

    def list(self, catalog: str) -> list[SinkStatus]:
        """In order of name."""
        records = self._store.read(
            lambda tx: [SinkRecord.FromString(v) for _, v in tx.get_range(*SINKS.range(catalog))]
        )
        return [self._status(SinkId(catalog, record.name), record) for record in records]

    def pause(self, sink: SinkId, *, request_id: str = "") -> SinkStatus:
        """Lets it deliver nothing until it is resumed. Raises SinkNotFound."""

        def change(mutation: Mutation, record: SinkRecord) -> None:
            record.paused = True

        self._alter(sink, "PauseSink", change, request_id)
        return self.get(sink)

    def resume(self, sink: SinkId, start: Start | None = None, *, request_id: str = "") -> SinkStatus:
        """Goes on where the sink is (None), or from another place; a failing one tries again at once.

        Raises SinkNotFound, and what ``Consumers.locate`` raises.
        """
        position = None if start is None else self._consumers.locate(sink.catalog, start)

        def change(mutation: Mutation, record: SinkRecord) -> None:
            record.paused = False
            if position is not None:
                self._consumers.seek_within(mutation, sink.catalog, consumer_name(sink.name), position)

        self._alter(sink, "ResumeSink", change, request_id)
        return self.get(sink)

    def set_secrets(self, sink: SinkId, secrets: pb.SinkSecrets, *, request_id: str = "") -> SinkStatus:
        """Replaces all of its secrets. Raises SinkNotFound, InvalidArgument."""

        def change(mutation: Mutation, record: SinkRecord) -> None:
            record.CopyFrom(definitions.with_secrets(record, secrets))
            senders.check(record, self._policy, self._clock)

        self._alter(sink, "SetSinkSecrets", change, request_id)
        return self.get(sink)

    def drop(self, sink: SinkId, *, if_exists: bool = False, request_id: str = "") -> bool:
        """Removes the sink with its dead letters. Whether there was one. Raises SinkNotFound."""

        def body(mutation: Mutation) -> pb.DropSinkResponse:
            tx = mutation.tx
            if tx.get(SINKS.key(*sink)) is None and if_exists:
                return pb.DropSinkResponse()
            record = find(tx, sink)
            wanted = consumers.find(tx, sink.catalog, consumer_name(sink.name)).record.filter
            tx.clear(SINKS.key(*sink))
            tx.clear(SINK_PROGRESS.key(*sink))
            dead_letters.forget(tx, sink)
            self._consumers.drop_within(mutation, sink.catalog, consumer_name(sink.name))
            tx.add(SINKS_CHANGED, 1)
            mutation.tell(_event(SINK_DROPPED, record, wanted, request_id))
            return pb.DropSinkResponse(dropped=True)

        kind = f"DropSink {sink.catalog}.{sink.name}"
        return self._mutations.once(request_id, kind, pb.DropSinkResponse, body).answer.dropped

    def letters(self, sink: SinkId, after: int, limit: int) -> Sequence[Letter]:
        """Dead letters behind the id ``after``, in order; at most ``limit``. Raises SinkNotFound."""

        def body(tx: ReadTransaction) -> Sequence[Letter]:
            find(tx, sink)
            return list(dead_letters.page(tx, sink, after, limit))

        return self._store.read(body)

    def resend(self, sink: SinkId, letters: Sequence[int], *, everything: bool = False) -> int:
        """Asks for another attempt at these dead letters, or all. Returns how many there are. Raises SinkNotFound,
        FailedPrecondition for a sink that is paused, InvalidArgument."""
        self._store.read(lambda tx: _require_running(find(tx, sink)))
        return self._each(sink, letters, everything, resend=True)

    def drop_letters(self, sink: SinkId, letters: Sequence[int], *, everything: bool = False) -> int:
        """Removes these dead letters, or all. Returns how many there were. Raises SinkNotFound, InvalidArgument."""
        return self._each(sink, letters, everything, resend=False)

    def _each(self, sink: SinkId, letters: Sequence[int], everything: bool, *, resend: bool) -> int:
        """Letter by letter, so that asking again does no harm, in several transactions if there are many."""
        if everything == bool(letters):
            raise InvalidArgument("name the dead letters by their ids, or say all of them")
        change = dead_letters.mark if resend else dead_letters.remove
        changed, after, rest = 0, 0, list(letters)
        while True:
            if everything:
                rest = self._store.read(lambda tx, after=after: dead_letters.ids(tx, sink, after, CLEARED_A_TIME))  # type: ignore[misc]
            now, rest = rest[:CLEARED_A_TIME], rest[CLEARED_A_TIME:]
            if not now:
                self._store.read(lambda tx: find(tx, sink))
                return changed

            def body(mutation: Mutation, now: Sequence[int] = now) -> int:
                find(mutation.tx, sink)
                return sum(change(mutation.tx, sink, letter_id) for letter_id in now)

            changed += self._mutations.run(body)
            after = now[-1]

    def _alter(self, sink: SinkId, what: str, change: _Change, request_id: str) -> None:
        def body(mutation: Mutation) -> pb.Sink:
            record = find(mutation.tx, sink)
            change(mutation, record)
            record.revision += 1
            _put(mutation, sink, record)
            wanted = consumers.find(mutation.tx, sink.catalog, consumer_name(sink.name)).record.filter
            mutation.tell(_event(SINK_ALTERED, record, wanted, request_id))
            return pb.Sink(name=sink.name)

        self._mutations.once(request_id, f"{what} {sink.catalog}.{sink.name}", pb.Sink, body)

    def _status(self, sink: SinkId, record: SinkRecord) -> SinkStatus:
        consumer = self._consumers.get(sink.catalog, consumer_name(sink.name))
        progress, letters = self._store.read(lambda tx: (progress_of(tx, sink), dead_letters.count(tx, sink)))
        lag = self._log.lag(sink.catalog, consumer.place.offset)
        now = self._clock()
        return SinkStatus(record, progress, consumer, consumer.member(now), lag.events, lag.ms(now), letters)


def consumer_name(name: str) -> str:
    """The name of a sink's consumer."""
    return f"{MANAGER}:{name}"


def find(tx: ReadTransaction, sink: SinkId) -> SinkRecord:
    """The sink. Raises SinkNotFound."""
    stored = tx.get(SINKS.key(*sink)) if sink.name else None
    if stored is None:
        raise SinkNotFound(f"catalog {sink.catalog!r} has no sink {sink.name!r}", name=sink.name)
    return SinkRecord.FromString(stored)


def progress_of(tx: ReadTransaction, sink: SinkId) -> SinkProgress:
    """How the sink fares; empty if it has done nothing yet."""
    stored = tx.get(SINK_PROGRESS.key(*sink), snapshot=True)
    return SinkProgress() if stored is None else SinkProgress.FromString(stored)


def all_of(tx: ReadTransaction) -> list[SinkRecord]:
    """The sinks of all catalogs."""
    return [SinkRecord.FromString(value) for _, value in tx.get_range(*SINKS.range(), snapshot=True)]


def state(status: SinkStatus) -> pb.SinkState.ValueType:
    """Paused by somebody, failing since its last attempt, or active. Pure."""
    if status.record.paused:
        return pb.SINK_PAUSED
    return pb.SINK_FAILING if status.progress.failing_since_ms else pb.SINK_ACTIVE


def _put(mutation: Mutation, sink: SinkId, record: SinkRecord) -> None:
    mutation.tx.set(SINKS.key(*sink), record.SerializeToString())
    mutation.tx.add(SINKS_CHANGED, 1)


def _check_room(tx: Transaction, catalog: str) -> None:
    for space, most, whose in (
        (SINKS.range(catalog), SINKS_MAX, f"catalog {catalog!r}"),
        (SINKS.range(), SINKS_OF_STORE_MAX, "this store"),
    ):
        if len(tx.get_range(*space, limit=most, snapshot=True)) >= most:
            raise LimitExceeded(f"{whose} has {most} sinks, and may not have more: drop some")


def _require_running(record: SinkRecord) -> None:
    if record.paused:
        raise FailedPrecondition(f"sink {record.name!r} is paused: resume it first")


def _event(kind: EventKind.ValueType, record: SinkRecord, wanted: EventFilter, request_id: str) -> Event:
    detail = SinkDetail(name=record.name, receiver=definitions.receiver(record), filter=wanted, paused=record.paused)
    return Event(kind=kind, catalog=record.catalog, request_id=request_id, sink=detail)
