"""Delivers the events of one sink, in order, step by step, for whoever holds the sink's lease.

At least once: how far it is done is written after the receiver has confirmed, and a while later (``SAVE_MS``), so that
a busy sink does not cost a transaction for each event. A worker that dies within that time leaves events that the next
one delivers again.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from lakemark_core.errors import EventsLost, EventsTrimmed, LakemarkError, OffsetUnknown
from lakemark_core.messages.cloud_events import event_id
from lakemark_proto.store.v1.store_pb2 import DeadLetterRecord, SinkProgress
from lakemark_proto.v1.events_pb2 import Event
from lakemark_server.context.clock import ClockMs
from lakemark_server.events import consumers, filters
from lakemark_server.events.consumers import Consumers, EventPosition, Start
from lakemark_server.events.feed import EventSource, Following
from lakemark_server.events.log import EventLog
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.sinks import dead_letters, registry
from lakemark_server.sinks.backoff import RetryPauses
from lakemark_server.sinks.dead_letters import LetterLimits, LettersFull, SinkId
from lakemark_server.sinks.delivery import DeliveryFailed, EventRefused, Sender
from lakemark_server.sinks.registry import consumer_name
from lakemark_server.store.keyspace import SINK_PROGRESS
from lakemark_server.store.mutations import Mutation, Mutations

SAVE_MS: Final = 500
"""How long after a delivery its place is written at the latest, while the sink is busy."""
PASSED_SAVE_MS: Final = 5_000
"""The same of events that do not fit the filter: every commit of a lake would cost a transaction otherwise."""
RESEND_LOOK_MS: Final = 1_000
STUCK_MS: Final = 60_000
"""How long a sink waits that only a user can help."""
IDLE_S: Final = 1.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerRules:
    """``attempts_max``: after so many, events become dead letters; below 0: never."""

    attempts_max: int
    pauses: RetryPauses = field(default_factory=RetryPauses)
    limits: LetterLimits = field(default_factory=LetterLimits)


@dataclass(slots=True)
class _Retry:
    """What is waited for after an attempt that failed."""

    attempts: int = 0
    due_ms: int = 0


class SinkWorker:
    """For one thread; to be closed. Begins where the consumer is.

    ``store`` is fenced: nothing is written once the lease is lost. ``feed`` is shared with all who read events in this
    process. Raises ConsumerNotFound, SinkNotFound.
    """

    def __init__(
        self,
        store: Store,
        clock: ClockMs,
        sink: SinkId,
        sender: Sender,
        rules: WorkerRules,
        chance: random.Random,
        feed: EventSource,
    ) -> None:
        self._store, self._clock, self._sink = store, clock, sink
        self._sender, self._rules, self._chance = sender, rules, chance
        self._feed = feed
        self._consumers = Consumers(store, EventLog(store), clock)
        self._mutations = Mutations(store, clock)

        def read(tx: ReadTransaction) -> tuple[consumers.Consumer, SinkProgress]:
            registry.find(tx, sink)
            return consumers.find(tx, sink.catalog, consumer_name(sink.name)), registry.progress_of(tx, sink)

        consumer, self._progress = store.read(read)
        self._filter = filters.filter_of(consumer.record.filter)
        self._start = self._saved = consumer.position
        self._epoch = consumer.position.epoch  # the store's, once reading has begun
        self._reader: Following | None = None  # None: reading has not begun
        self._arrived = threading.Event()  # there may be new events
        self._pending: deque[Event] = deque()
        self._retry = _Retry()
        self._whole = False  # there was no more then
        self._saved_ms = self._looked_ms = clock()
        self._delivered = False  # since it was last saved
        self._told = ""  # the error that was last logged
        self._progress.next_attempt_ms = 0

    def step(self) -> float:
        """One attempt, or one look for events. Returns how many seconds to ``wait`` until the next; 0: go on.

        Raises LakemarkError if the store fails, LeaseLost, SinkNotFound, DeliveryAborted: then nobody must use this
        worker again.
        """
        now = self._clock()
        if now < self._retry.due_ms:
            return (self._retry.due_ms - now) / 1_000
        if now - self._looked_ms >= RESEND_LOOK_MS and self._resend():
            return 0.0
        try:
            if not self._pending:
                self._fill()
        except (EventsTrimmed, EventsLost, OffsetUnknown) as error:
            self._stop_for_user(error)
            return STUCK_MS / 1_000
        if self._pending:
            self._deliver()
        self._save_if_due()
        return 0.0 if self._pending or not self._whole else self._idle_s()

    def wait(self, seconds: float) -> None:
        """Waits so long, at most ``IDLE_S``, or until the log has more; for a worker that ``is_idle``."""
        self._arrived.wait(min(seconds, IDLE_S))

    @property
    def is_idle(self) -> bool:
        """Whether it waits for events, and for nothing else."""
        return self._whole and not self._pending and self._retry.due_ms <= self._clock()

    def finish(self) -> None:
        """Writes how far it is. Raises LakemarkError."""
        if self._done() != self._saved or self._delivered:
            self._save()

    def close(self) -> None:
        """Reads no more."""
        if self._reader is not None:
            self._reader.close()

    def _done(self) -> EventPosition:
        """Up to where everything is delivered, given up or not wanted."""
        if self._pending:
            return EventPosition(self._pending[0].offset - 1, self._epoch)
        if self._reader is None:
            return self._start
        return EventPosition(self._reader.upto, self._epoch)

    def _fill(self) -> None:
        catalog = self._sink.catalog
        if self._reader is None:
            start = self._consumers.locate(catalog, Start(self._start.offset, self._start.epoch))
            self._reader = self._feed.watch(catalog, start.offset, start.epoch, self._filter, self._arrived.set)
            self._epoch = start.epoch
        self._arrived.clear()  # first: what comes from now on is another look
        delivery = self._reader.take()
        self._whole = not delivery.more
        self._pending.extend(delivery.decoded())

    def _deliver(self) -> None:
        """One attempt at the first pending events."""
        batch = [event for event, _ in zip(self._pending, range(self._sender.events_max), strict=False)]
        try:
            count = self._sender.send(batch)
        except EventRefused as error:
            self._note_failure(error.message, failing=False)
            self._give_up(1, error.message)
        except DeliveryFailed as error:
            self._note_failure(error.message)
            self._retry.attempts += 1
            if error.counts and 0 <= self._rules.attempts_max <= self._retry.attempts:
                self._give_up(min(error.events, len(batch)), error.message)
            else:
                pause_s = self._rules.pauses.pause_s(self._retry.attempts, error.retry_after_s, self._chance)
                self._wait_until(self._clock() + int(pause_s * 1_000))
        else:
            self._note_success(count)
            self._drop(count)

    def _drop(self, count: int) -> None:
        for _ in range(count):
            self._pending.popleft()
        self._retry = _Retry()

    def _give_up(self, count: int, reason: str) -> None:
        """Makes the first pending events dead letters and goes on behind them, in one transaction."""
        given_up = [self._pending[at] for at in range(count)]
        position = EventPosition(given_up[-1].offset, self._epoch)
        attempts = max(1, self._retry.attempts)
        try:
            self._save(position, [(event, reason, attempts) for event in given_up])
        except LettersFull as error:
            self._stop_for_user(error)
            return
        _log.warning(
            "events became dead letters", sink=self._sink.name, catalog=self._sink.catalog, reason=reason,
            events=[event_id(event) for event in given_up[:10]], count=count,
        )  # fmt: skip
        self._drop(count)

    def _resend(self) -> bool:
        """Another attempt at a dead letter, if one was asked for."""
        letter = self._store.read(lambda tx: dead_letters.next_marked(tx, self._sink))
        if letter is None:
            self._looked_ms = self._clock()
            return False
        record = DeadLetterRecord()
        record.CopyFrom(letter.record)
        try:
            if letter.record.HasField("event"):  # else it was dropped meanwhile
                self._sender.send([letter.record.event], resent=True)
                self._note_success(1)
        except (DeliveryFailed, EventRefused) as error:
            record.reason, record.failed_ms = error.message, self._clock()
            record.attempts += 1
            self._progress.failed_attempts += 1
            self._mutations.run(lambda mutation: self._put_back(mutation, letter.letter_id, record))
            return True
        self._mutations.run(lambda mutation: self._remove(mutation, letter.letter_id))
        return True

    def _put_back(self, mutation: Mutation, letter_id: int, record: DeadLetterRecord) -> None:
        registry.find(mutation.tx, self._sink)
        dead_letters.replace(mutation.tx, self._sink, letter_id, record)
        self._put_progress(mutation)

    def _remove(self, mutation: Mutation, letter_id: int) -> None:
        registry.find(mutation.tx, self._sink)
        dead_letters.remove(mutation.tx, self._sink, letter_id)
        self._put_progress(mutation)

    def _note_success(self, count: int) -> None:
        self._progress.delivered += count
        self._progress.last_delivered_ms = self._clock()
        self._progress.next_attempt_ms = 0
        self._delivered = True
        if self._progress.failing_since_ms:
            self._progress.failing_since_ms = 0
            self._told = ""
            _log.info("the sink delivers again", sink=self._sink.name, catalog=self._sink.catalog)
            self._saved_ms = 0

    def _note_failure(self, reason: str, *, failing: bool = True) -> None:
        now = self._clock()
        progress = self._progress
        progress.failed_attempts += 1
        progress.last_error, progress.last_error_ms = reason, now
        if failing:
            progress.failing_since_ms = progress.failing_since_ms or now
        if reason != self._told:
            self._told = reason
            _log.warning("a delivery failed", sink=self._sink.name, catalog=self._sink.catalog, reason=reason)

    def _wait_until(self, due_ms: int) -> None:
        self._retry.due_ms = self._progress.next_attempt_ms = due_ms
        self._save()

    def _stop_for_user(self, error: LakemarkError) -> None:
        """Waits, because going on would lose events, or cannot work; looks again now and then."""
        self._note_failure(error.message)
        self._retry.due_ms = self._clock() + STUCK_MS
        self._progress.next_attempt_ms = 0
        self._save()

    def _idle_s(self) -> float:
        if self._delivered:
            return max(0.0, self._saved_ms + SAVE_MS - self._clock()) / 1_000
        return IDLE_S

    def _save_if_due(self) -> None:
        since_ms = self._clock() - self._saved_ms
        if self._done() != self._saved and since_ms >= (SAVE_MS if self._delivered else PASSED_SAVE_MS):
            self._save()

    def _save(self, position: EventPosition | None = None, given_up: Sequence[tuple[Event, str, int]] = ()) -> None:
        """Writes how far the sink is and how it fares. Raises LettersFull (nothing is written), SinkNotFound."""
        place = self._done() if position is None else position
        progress = SinkProgress()
        progress.CopyFrom(self._progress)

        def body(mutation: Mutation) -> None:
            registry.find(mutation.tx, self._sink)
            for number, (event, reason, attempts) in enumerate(given_up, progress.letters_made + 1):
                letter = DeadLetterRecord(event=event, reason=reason, failed_ms=mutation.now_ms, attempts=attempts)
                dead_letters.add(mutation.tx, self._sink, number, letter, self._rules.limits)
            if place != self._saved:
                self._consumers.move_within(mutation, self._sink.catalog, consumer_name(self._sink.name), place)
            self._put_progress(mutation, letters_made=progress.letters_made + len(given_up))

        self._mutations.run(body)
        self._progress.letters_made += len(given_up)
        self._saved, self._saved_ms, self._delivered = place, self._clock(), False

    def _put_progress(self, mutation: Mutation, letters_made: int | None = None) -> None:
        progress = SinkProgress()
        progress.CopyFrom(self._progress)
        if letters_made is not None:
            progress.letters_made = letters_made
        mutation.tx.set(SINK_PROGRESS.key(*self._sink), progress.SerializeToString())
