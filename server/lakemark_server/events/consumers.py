"""Consumers: places in the log of a catalog that the service remembers for somebody, each with a filter and a name.

A consumer says how far it is done (``acknowledge``) and goes on from there, on whatever process and after whatever
time. It is told every event at least once: what it was told and did not acknowledge comes again.

Several members can share a consumer as a group. One of them has it, under a lease; the others wait for it. While
somebody has the consumer, only acknowledgements with the token of that lease count.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from lakemark_core.errors import (
    AlreadyExists,
    ConsumerNotFound,
    ConsumerTaken,
    EventsTrimmed,
    FailedPrecondition,
    InvalidArgument,
    InvalidName,
    LimitExceeded,
)
from lakemark_proto.store.v1.store_pb2 import ConsumerPlace, ConsumerRecord
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_server.context.clock import ClockMs, now_ms
from lakemark_server.events.filters import filter_of
from lakemark_server.events.log import EventLog
from lakemark_server.kv import ReadTransaction, Store, strinc
from lakemark_server.store import event_log, leases
from lakemark_server.store.keyspace import CONSUMER_PLACES, CONSUMERS
from lakemark_server.store.leases import Lease, LeaseLost, Leases
from lakemark_server.store.mutations import Mutation, Mutations

CONSUMERS_MAX: Final = 1_000
"""In a catalog."""

NAME_CHARS_MAX: Final = 128
OWNER_CHARS_MAX: Final = 200
_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]+", re.ASCII)


class EventPosition(NamedTuple):
    """Behind the event with this offset, as it is in a store of this epoch."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin: behind an offset (0: at the first event that is kept), or at the ``end``.

    ``epoch``: that of the event at the offset; None: not known.
    """

    after: int = 0
    epoch: int | None = None
    end: bool = False


BEGINNING: Final = Start()
END: Final = Start(end=True)


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer as it is stored. ``lease``: who has it, if anybody did since it was created."""

    record: ConsumerRecord
    place: ConsumerPlace
    lease: Lease | None

    @property
    def position(self) -> EventPosition:
        """Up to which event it is done."""
        return EventPosition(self.place.offset, self.place.epoch)

    def member(self, now_ms: int) -> str:
        """Who has it now; "": nobody."""
        return self.lease.holder if self.lease is not None and now_ms <= self.lease.expires_ms else ""


class Consumers:
    """Thread-safe. Catalogs are named in lower case. Consumers are named as they were created."""

    def __init__(
        self,
        store: Store,
        log: EventLog,
        clock: ClockMs = now_ms,
        *,
        consumers_max: int = CONSUMERS_MAX,
        known_end: Callable[[str], int] = lambda catalog: 0,
    ) -> None:
        """``known_end``: an offset that the log of a catalog has reached, by what this process knows already."""
        self._store, self._log = store, log
        self._known_end = known_end
        self._epoch: int | None = None  # the store's, which does not change while anybody serves it
        self._max = consumers_max
        self._mutations = Mutations(store, clock)
        self._leases = Leases(store, clock)

    def locate(self, catalog: str, start: Start) -> EventPosition:
        """The place that is meant now. Raises EventsTrimmed, EventsLost, OffsetUnknown, InvalidArgument."""
        extent = self._log.extent(catalog)
        if start.end:
            if start.after:
                raise InvalidArgument("say either behind which offset to begin, or that it is the end")
            return EventPosition(extent.last, extent.epoch)
        if start.after < 0:
            raise InvalidArgument(f"the first event has offset 1; {start.after} is no offset")
        if start.epoch is not None and not 0 <= start.epoch <= extent.epoch:
            raise InvalidArgument(f"this store has not reached epoch {start.epoch}; it is in {extent.epoch}")
        return EventPosition(self._log.begin(catalog, start.after, start.epoch).after, extent.epoch)

    def create(
        self,
        catalog: str,
        name: str,
        wanted: pb.EventFilter,
        start: Start = BEGINNING,
        *,
        owner: str = "",
        managed_by: str = "",
        request_id: str = "",
    ) -> Consumer:
        """Raises AlreadyExists, InvalidName, InvalidArgument, LimitExceeded, and what ``locate`` raises."""
        draft = self.draft(catalog, name, wanted, owner=owner, managed_by=managed_by)
        position = self.locate(catalog, start)
        self._mutations.once(
            request_id,
            f"CreateConsumer {catalog}.{name}",
            ConsumerRecord,
            lambda mutation: self.create_within(mutation, draft, position),
        )
        return self.get(catalog, name)

    def draft(
        self, catalog: str, name: str, wanted: pb.EventFilter, *, owner: str = "", managed_by: str = ""
    ) -> ConsumerRecord:
        """A consumer to be created. Raises InvalidName, InvalidArgument."""
        if not _is_legal(name):
            raise InvalidName(
                f"consumer name {name[:NAME_CHARS_MAX]!r} is not legal: use up to {NAME_CHARS_MAX} letters, digits and "
                "any of _ . : -",
                name=name,
            )
        if len(owner) > OWNER_CHARS_MAX:
            raise InvalidArgument(f"the owner of a consumer has at most {OWNER_CHARS_MAX} characters")
        filter_of(wanted)
        return ConsumerRecord(catalog=catalog, name=name, filter=wanted, owner=owner, managed_by=managed_by)

    def create_within(self, mutation: Mutation, draft: ConsumerRecord, position: EventPosition) -> ConsumerRecord:
        """Creates the consumer together with other changes. Raises AlreadyExists, LimitExceeded."""
        tx, key = mutation.tx, CONSUMERS.key(draft.catalog, draft.name)
        if tx.get(key) is not None:
            raise AlreadyExists(f"consumer {draft.name!r} of catalog {draft.catalog!r} exists already", name=draft.name)
        if len(tx.get_range(*CONSUMER_PLACES.range(draft.catalog), limit=self._max, snapshot=True)) == self._max:
            raise LimitExceeded(
                f"catalog {draft.catalog!r} has {self._max} consumers, and may not have more: drop some"
            )
        record = ConsumerRecord(created_ms=mutation.now_ms)
        record.MergeFrom(draft)
        tx.set(key, record.SerializeToString())
        _put_place(mutation, record, position)
        # Tokens of an earlier consumer of this name are smaller than the time.
        leases.revoke(tx, lease_name(draft.catalog, draft.name), mutation.now_ms)
        return record

    def get(self, catalog: str, name: str) -> Consumer:
        """Raises ConsumerNotFound."""
        return self._store.read(lambda tx: find(tx, catalog, name))

    def list(self, catalog: str, after: str = "", limit: int = 0) -> list[Consumer]:
        """The consumers of a catalog in order of name, beginning behind ``after``."""
        begin, end = CONSUMERS.range(catalog)
        begin = strinc(CONSUMERS.key(catalog, after[:NAME_CHARS_MAX])) if after else begin

        def body(tx: ReadTransaction) -> list[Consumer]:
            pairs = tx.get_range(begin, end, limit=limit) if begin < end else []
            return [_consumer(tx, ConsumerRecord.FromString(value)) for _, value in pairs]

        return self._store.read(body)

    def drop(self, catalog: str, name: str, *, if_exists: bool = False, request_id: str = "") -> bool:
        """Whether there was one. Raises ConsumerNotFound; FailedPrecondition if a part of the service manages it."""

        def body(mutation: Mutation) -> pb.DropConsumerResponse:
            try:
                manager = find(mutation.tx, catalog, name).record.managed_by
            except ConsumerNotFound:
                if if_exists:
                    return pb.DropConsumerResponse()
                raise
            if manager:
                raise FailedPrecondition(f"consumer {name!r} belongs to {manager}, and goes with it")
            self.drop_within(mutation, catalog, name)
            return pb.DropConsumerResponse(dropped=True)

        kind = f"DropConsumer {catalog}.{name}"
        return self._mutations.once(request_id, kind, pb.DropConsumerResponse, body).answer.dropped

    def drop_within(self, mutation: Mutation, catalog: str, name: str) -> None:
        """Removes the consumer, if there is one, together with other changes. Who has it is told at the next word."""
        mutation.tx.clear(CONSUMERS.key(catalog, name))
        mutation.tx.clear(CONSUMER_PLACES.key(catalog, name))
        leases.forget(mutation.tx, lease_name(catalog, name))

    def move_within(self, mutation: Mutation, catalog: str, name: str, position: EventPosition) -> None:
        """Notes where the consumer is, together with other changes. Who may is the caller's matter.

        Raises ConsumerNotFound.
        """
        _put_place(mutation, find(mutation.tx, catalog, name).record, position)

    def seek_within(self, mutation: Mutation, catalog: str, name: str, position: EventPosition) -> None:
        """Moves the consumer together with other changes, and takes it from whoever has it. Raises ConsumerNotFound."""
        consumer = find(mutation.tx, catalog, name)
        leases.revoke(mutation.tx, lease_name(catalog, name))
        _put_place(mutation, consumer.record, position)

    def seek(self, catalog: str, name: str, start: Start, *, request_id: str = "") -> Consumer:
        """Moves the consumer, forward or back, and takes it from whoever has it.

        Raises ConsumerNotFound, and what ``locate`` raises.
        """
        position = self.locate(catalog, start)

        def body(mutation: Mutation) -> ConsumerPlace:
            consumer = find(mutation.tx, catalog, name)
            leases.revoke(mutation.tx, lease_name(catalog, name))
            return _put_place(mutation, consumer.record, position)

        self._mutations.once(request_id, f"SeekConsumer {catalog}.{name}", ConsumerPlace, body)
        return self.get(catalog, name)

    def acknowledge(
        self, catalog: str, name: str, done: EventPosition, token: int = 0, *, leave: bool = False
    ) -> EventPosition:
        """Notes that the consumer is done with all events up to ``done``. Returns where it is now.

        Never moves it back. ``token``: of the lease under which the events were read; 0: nobody has the consumer.
        ``leave``: and gives that lease back.

        Raises ConsumerNotFound, ConsumerTaken, OffsetUnknown, EventsLost, InvalidArgument.
        """
        position = self._seen(catalog, done)

        def body(mutation: Mutation) -> EventPosition:
            consumer = find(mutation.tx, catalog, name)
            _check_token(consumer, token, mutation.now_ms)
            if leave:
                leases.revoke(mutation.tx, lease_name(catalog, name))
            if position.offset <= consumer.position.offset:
                return consumer.position
            _put_place(mutation, consumer.record, position)
            return position

        return self._mutations.run(body)

    def _seen(self, catalog: str, done: EventPosition) -> EventPosition:
        """The place of an event that a consumer has seen. Raises OffsetUnknown, EventsLost, InvalidArgument."""
        if self._epoch is None:
            self._epoch = self._store.read(event_log.epoch)
        if done.epoch == self._epoch and 0 <= done.offset <= self._known_end(catalog):
            return done
        try:
            return self.locate(catalog, Start(done.offset, done.epoch))
        except EventsTrimmed:  # there was such an event
            return EventPosition(done.offset, self._epoch)

    def hold(self, catalog: str, name: str, member: str, ttl_ms: int) -> Lease | None:
        """The consumer for this member, who is unique; None while another one has it.

        The lease is to be renewed with ``keep``, and its token to be given with acknowledgements. Raises
        ConsumerNotFound, InvalidArgument.
        """
        self.get(catalog, name)
        return self._leases.acquire(lease_name(catalog, name), member, ttl_ms)

    def keep(self, lease: Lease, ttl_ms: int) -> Lease:
        """Renews what ``hold`` gave. Raises ConsumerTaken."""
        return _taken(lambda: self._leases.renew(lease, ttl_ms))

    def leave(self, lease: Lease) -> None:
        """Gives the consumer back, so that another member can have it at once."""
        self._leases.release(lease)


def lease_name(catalog: str, name: str) -> str:
    """The lease of a consumer (``store.leases``), whose token counts in ``Consumers.acknowledge``."""
    return f"consumer:{catalog}:{name}"


def _is_legal(name: str) -> bool:
    return len(name) <= NAME_CHARS_MAX and _NAME.fullmatch(name) is not None


def find(tx: ReadTransaction, catalog: str, name: str) -> Consumer:
    """The consumer. Raises ConsumerNotFound."""
    stored = tx.get(CONSUMERS.key(catalog, name)) if _is_legal(name) else None
    if stored is None:
        name = name[:NAME_CHARS_MAX]
        raise ConsumerNotFound(f"catalog {catalog!r} has no consumer {name!r}; create it first", name=name)
    return _consumer(tx, ConsumerRecord.FromString(stored))


def _consumer(tx: ReadTransaction, record: ConsumerRecord) -> Consumer:
    place = tx.get(CONSUMER_PLACES.key(record.catalog, record.name))
    held = leases.find(tx, lease_name(record.catalog, record.name))
    return Consumer(
        record,
        ConsumerPlace() if place is None else ConsumerPlace.FromString(place),
        held if held and held.holder else None,
    )


def _put_place(mutation: Mutation, record: ConsumerRecord, position: EventPosition) -> ConsumerPlace:
    place = ConsumerPlace(offset=position.offset, epoch=position.epoch, moved_ms=mutation.now_ms)
    mutation.tx.set(CONSUMER_PLACES.key(record.catalog, record.name), place.SerializeToString())
    return place


def _check_token(consumer: Consumer, token: int, now_ms: int) -> None:
    lease = consumer.lease
    if token == (lease.token if lease is not None else 0) or (not token and not consumer.member(now_ms)):
        return
    member = consumer.member(now_ms)
    raise ConsumerTaken(
        f"{member or 'nobody'} has consumer {consumer.record.name!r} now, or it was moved: this acknowledgement does "
        "not count; read again from where the consumer is",
        member=member,
    )


def _taken(work: Callable[[], Lease]) -> Lease:
    try:
        return work()
    except LeaseLost as error:
        _, catalog, name = error.details["lease"].split(":", 2)
        raise ConsumerTaken(
            f"another member has consumer {name!r} of catalog {catalog!r} now, or it was moved or dropped; read again "
            "from where it is"
        ) from error
