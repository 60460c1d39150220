"""Listeners as they are stored: created, paused, resumed, dropped, and described with the place of their consumer."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable
from typing import Final

from lakemark_core.errors import AlreadyExists, InvalidArgument, InvalidName, LimitExceeded, NotFound
from lakemark_proto.v1 import listeners_pb2 as pb
from lakemark_proto.v1.events_pb2 import EventFilter as FilterMessage
from lakemark_server.context import caller
from lakemark_server.context.clock import ClockMs, now_ms
from lakemark_server.events.consumers import Consumers, EventPosition, Start, find
from lakemark_server.events.filters import filter_of
from lakemark_server.events.log import EventLog
from lakemark_server.kv import ReadTransaction, Store, keys_below
from lakemark_server.listeners.addresses import parse_addresses
from lakemark_server.store.keyspace import LISTENER_FUNCTIONS, LISTENER_PROBLEMS, LISTENER_STATES, LISTENERS
from lakemark_server.store.mutations import Mutation, Mutations

NAME_CHARS_MAX: Final = 100
LISTENERS_MAX: Final = 100
"""In a catalog."""

PROBLEMS_TOLD_MAX: Final = 1_000
COMPARE_INTERVAL_MS: Final = 3_600_000
COMPARE_INTERVAL_MS_MIN: Final = 10_000
COMPARE_INTERVAL_MS_MAX: Final = 30 * 86_400_000
OVERWRITES_MAX: Final = 1_000

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_MANAGER: Final = "a listener"


class ListenerNotFound(NotFound):
    """There is no listener of that name."""

    code = "listener_not_found"


def consumer_of(name: str) -> str:
    """The name of a listener's consumer."""
    return f"listener:{name}"


class Listeners:
    """Thread-safe. Catalogs are named in lower case."""

    def __init__(self, store: Store, log: EventLog, consumers: Consumers, clock: ClockMs = now_ms) -> None:
        self._store, self._log, self._clock = store, log, clock
        self._consumers = consumers
        self._mutations = Mutations(store, clock)

    def create(self, wanted: pb.Listener, request_id: str = "") -> pb.Listener:
        """``wanted``: catalog, name, uri, patterns, interval, adopt, paused. It begins with a comparison of everything.

        Raises AlreadyExists, InvalidName, InvalidArgument, LimitExceeded.
        """
        draft = pb.Listener()
        draft.CopyFrom(wanted)
        _check(draft)
        draft.compare_interval_ms = draft.compare_interval_ms or COMPARE_INTERVAL_MS
        draft.listener_id = secrets.token_hex(4)
        draft.owner = draft.owner or caller.current()
        catalog, name = draft.catalog, draft.name
        consumer = self._consumers.draft(
            catalog, consumer_of(name), FilterMessage(), owner=draft.owner, managed_by=_MANAGER
        )
        position = self._consumers.locate(catalog, Start(end=True))

        def create(mutation: Mutation) -> pb.Listener:
            tx, key = mutation.tx, LISTENERS.key(catalog, name)
            if tx.get(key) is not None:
                raise AlreadyExists(f"listener {name!r} of catalog {catalog!r} exists already", name=name)
            if len(tx.get_range(*LISTENERS.range(catalog), limit=LISTENERS_MAX, snapshot=True)) == LISTENERS_MAX:
                raise LimitExceeded(f"catalog {catalog!r} has {LISTENERS_MAX} listeners, and may not have more")
            self._consumers.create_within(mutation, consumer, position)
            draft.created_ms = mutation.now_ms
            draft.repairs_asked = 1
            tx.set(key, draft.SerializeToString())
            return draft

        self._mutations.once(request_id, f"CreateListener {catalog}.{name}", pb.Listener, create)
        return self.describe(catalog, name)

    def get(self, catalog: str, name: str) -> pb.Listener:
        """What was configured, alone. Raises ListenerNotFound."""
        return self._store.read(lambda tx: _get(tx, catalog, name))

    def all(self) -> list[pb.Listener]:
        """What was configured in all catalogs."""
        return [pb.Listener.FromString(value) for _, value in keys_below(self._store, LISTENERS)]

    def list(self, catalog: str) -> list[pb.Listener]:
        """The listeners of a catalog in order of name, without problems."""
        names = [str(name) for (name,), _ in keys_below(self._store, LISTENERS, catalog)]
        listeners = []
        for name in names:
            try:
                listeners.append(self.describe(catalog, name, problems=False))
            except NotFound:  # dropped since
                continue
        return listeners

    def describe(self, catalog: str, name: str, *, problems: bool = True) -> pb.Listener:
        """With its state. Raises ListenerNotFound."""

        def body(tx: ReadTransaction) -> tuple[pb.Listener, EventPosition]:
            listener = _get(tx, catalog, name)
            stored = tx.get(LISTENER_STATES.key(catalog, name))
            listener.state.CopyFrom(pb.ListenerState.FromString(stored or b""))
            consumer = find(tx, catalog, consumer_of(name))
            listener.offset, listener.epoch = consumer.position
            listener.runner = consumer.member(self._clock())
            if problems:
                pairs = tx.get_range(*LISTENER_PROBLEMS.range(catalog, name), limit=PROBLEMS_TOLD_MAX)
                listener.problems.extend(pb.ListenerDifference.FromString(value) for _, value in pairs)
            return listener, consumer.position

        listener, position = self._store.read(body)
        listener.condition = _condition(listener)
        lag = self._log.lag(catalog, position.offset)
        listener.lag_events, listener.lag_ms = lag.events, lag.ms(self._clock())
        return listener

    def pause(self, catalog: str, name: str, *, paused: bool, request_id: str = "") -> pb.Listener:
        """Pauses or resumes. Raises ListenerNotFound."""

        def change(listener: pb.Listener) -> None:
            listener.paused = paused

        return self._change(f"PauseListener {paused} {catalog}.{name}", catalog, name, change, request_id)

    def ask_repair(
        self, catalog: str, name: str, overwrites: Iterable[str] = (), *, request_id: str = ""
    ) -> pb.Listener:
        """Asks for a comparison of everything with repair. Raises ListenerNotFound, LimitExceeded."""

        def change(listener: pb.Listener) -> None:
            listener.repairs_asked += 1
            names = {*listener.overwrites, *(one.strip().lower() for one in overwrites)}
            if len(names) > OVERWRITES_MAX:
                raise LimitExceeded(f"at most {OVERWRITES_MAX} objects are overwritten at once; '*' stands for all")
            listener.overwrites[:] = sorted(names)

        return self._change(f"RepairListener {catalog}.{name}", catalog, name, change, request_id)

    def drop(self, catalog: str, name: str, *, if_exists: bool = False, request_id: str = "") -> bool:
        """Whether there was one. What it made outside stays. Raises ListenerNotFound."""

        def body(mutation: Mutation) -> pb.DropListenerResponse:
            tx = mutation.tx
            if tx.get(LISTENERS.key(catalog, name)) is None and if_exists:
                return pb.DropListenerResponse()
            _get(tx, catalog, name)
            tx.clear(LISTENERS.key(catalog, name))
            tx.clear(LISTENER_STATES.key(catalog, name))
            for space in (LISTENER_PROBLEMS, LISTENER_FUNCTIONS):
                tx.clear_range(*space.range(catalog, name))
            self._consumers.drop_within(mutation, catalog, consumer_of(name))
            return pb.DropListenerResponse(dropped=True)

        kind = f"DropListener {catalog}.{name}"
        return self._mutations.once(request_id, kind, pb.DropListenerResponse, body).answer.dropped

    def _change(
        self, kind: str, catalog: str, name: str, change: Callable[[pb.Listener], None], request_id: str
    ) -> pb.Listener:
        def body(mutation: Mutation) -> pb.Listener:
            listener = _get(mutation.tx, catalog, name)
            change(listener)
            mutation.tx.set(LISTENERS.key(catalog, name), listener.SerializeToString())
            return listener

        self._mutations.once(request_id, kind, pb.Listener, body)
        return self.describe(catalog, name)


def _get(tx: ReadTransaction, catalog: str, name: str) -> pb.Listener:
    stored = tx.get(LISTENERS.key(catalog, name)) if 0 < len(name) <= NAME_CHARS_MAX else None
    if stored is None:
        raise ListenerNotFound(f"catalog {catalog!r} has no listener {name[:NAME_CHARS_MAX]!r}", name=name)
    return pb.Listener.FromString(stored)


def _condition(listener: pb.Listener) -> pb.ListenerCondition.ValueType:
    if listener.paused:
        return pb.LISTENER_PAUSED
    return pb.LISTENER_FAILING if listener.state.failing_since_ms else pb.LISTENER_ACTIVE


def _check(draft: pb.Listener) -> None:
    if not _NAME.fullmatch(draft.name) or len(draft.name) > NAME_CHARS_MAX:
        raise InvalidName(
            f"listener name {draft.name[:NAME_CHARS_MAX]!r} is not legal: use up to {NAME_CHARS_MAX} letters, digits "
            "and any of _ . -",
            name=draft.name,
        )
    parse_addresses(draft.uri)
    interval = draft.compare_interval_ms
    if interval and not COMPARE_INTERVAL_MS_MIN <= interval <= COMPARE_INTERVAL_MS_MAX:
        raise InvalidArgument(
            f"everything is compared every {COMPARE_INTERVAL_MS_MIN // 1_000} seconds to 30 days, not {interval} ms"
        )
    filter_of(FilterMessage(patterns=draft.patterns))
