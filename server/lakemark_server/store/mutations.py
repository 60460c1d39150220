"""Mutations: every change that somebody asks for, or that others can observe, is made through this module.

A mutation is one transaction of the store together with the time at which its changes happen. It makes one change, or
a batch of changes that become durable together. A change that has a request id is made by ``once``: whoever repeats the
request gets the recorded answer, and nothing happens again. Limits of tenants are taken within the change, too
(``admission.quotas.Quotas.take``).

A change tells what it is by ``Mutation.tell``: it becomes an event in the log of its catalog, in the same transaction
(``store.event_log``).

A change decides before it writes. If a batch goes on after one of its changes was refused, that change has written
and told nothing.

What the service writes for its own use (leases, ranges of ids, pages of bases, what it removes when nobody can see it
any more) is no mutation and goes straight to ``Store.transact``; ``tests/unit/store/test_mutations.py`` lists who does
that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from google.protobuf.message import Message

from lakemark_proto.v1.events_pb2 import COMMITTED, Event, EventKind
from lakemark_server.context import caller
from lakemark_server.context.clock import ClockMs
from lakemark_server.kv import ReadTransaction, Store, Transaction
from lakemark_server.metrics.process import COMMITS, EVENTS_TOLD
from lakemark_server.store import event_log, requests

M = TypeVar("M", bound=Message)
T = TypeVar("T")


class Outcome(NamedTuple, Generic[M]):
    """The answer to a request. ``repeated``: an earlier request with the same id recorded it, and nothing happened."""

    answer: M
    repeated: bool


class Mutation:
    """One attempt at a transaction that changes something; ``now_ms`` is the time of all its changes."""

    __slots__ = ("events", "now_ms", "tx")

    def __init__(self, tx: Transaction, now_ms: int) -> None:
        self.tx = tx
        self.now_ms = now_ms
        self.events: list[Event] = []

    def tell(self, event: Event) -> None:
        """Adds the event of a change to the log of its catalog, together with the change.

        It is told of the current caller unless it says by whom it is, as the changes of a batch must.
        The event must not be changed afterwards, nor hold what the caller changes.
        """
        event.time_ms = self.now_ms
        event.by = event.by or caller.current()
        self.events.append(event)

    def once(self, request_id: str, kind: str, answer: type[M], body: Callable[[Mutation], M]) -> Outcome[M]:
        """Runs ``body`` and records its answer, unless ``request_id`` has one already.

        ``kind`` says what is asked for, and of what; it is stored with the answer. An empty id records nothing. Raises
        InvalidArgument if the id was used for another kind of request, or is too long.
        """
        if not request_id:
            return Outcome(body(self), False)
        recorded = requests.find(self.tx, request_id, kind, answer)
        if recorded is not None:
            return Outcome(recorded, True)
        response = body(self)
        requests.record(self.tx, request_id, kind, response, self.now_ms)
        return Outcome(response, False)


def answered(tx: ReadTransaction, request_id: str, kind: str, answer: type[M]) -> M | None:
    """What ``Mutation.once`` has recorded for a request, without a change; None: nothing, or not any more.

    Raises InvalidArgument as that does.
    """
    return requests.find(tx, request_id, kind, answer)


class Mutations:
    """Runs mutations of ``store``; ``clock`` tells their time. Thread-safe.

    On a fenced store they happen only while its lease is held.
    """

    def __init__(self, store: Store, clock: ClockMs) -> None:
        self.store = store
        self.clock = clock
        self._epoch: int | None = None  # the store's, which does not change while anybody serves it

    def run(self, body: Callable[[Mutation], T]) -> T:
        """Commits what ``body`` changes; like the body of any transaction it may run several times."""

        def attempt(tx: Transaction) -> tuple[T, list[Event]]:
            mutation = Mutation(tx, self.clock())
            answer = body(mutation)
            if mutation.events:
                self._append(mutation)
            return answer, mutation.events

        answer, told = self.store.transact(attempt)
        if told:
            _count(told)
        return answer

    def once(self, request_id: str, kind: str, answer: type[M], body: Callable[[Mutation], M]) -> Outcome[M]:
        """A mutation that is one change, made by ``Mutation.once``."""
        return self.run(lambda mutation: mutation.once(request_id, kind, answer, body))

    def _append(self, mutation: Mutation) -> None:
        if self._epoch is None:
            self._epoch = event_log.epoch(mutation.tx)
        by_catalog: dict[str, list[Event]] = {}
        for event in mutation.events:
            by_catalog.setdefault(event.catalog, []).append(event)
        for catalog, events in by_catalog.items():
            event_log.append(mutation.tx, self._epoch, catalog, events)


def _count(told: Sequence[Event]) -> None:
    for kind, count in Counter(event.kind for event in told).items():
        EVENTS_TOLD.add(EventKind.Name(kind).lower(), by=count)
        if kind == COMMITTED:
            COMMITS.add(by=count)
