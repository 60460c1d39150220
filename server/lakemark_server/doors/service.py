"""Doors as the facade uses them: a directory for each look-up, and a commit at the call that ends a statement."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from lakemark_core import storage
from lakemark_core.errors import FailedPrecondition, LakemarkError, UnknownOutcome
from lakemark_proto.store.v1.doors_pb2 import DoorSessionRecord
from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.context import deadline
from lakemark_server.context.clock import ClockMs, now_ms
from lakemark_server.context.periodic import PeriodicThread
from lakemark_server.doors import contents, records
from lakemark_server.doors.decisions import (
    IN_DOUBT,
    NO_ROWS,
    CallEnd,
    CallSituation,
    CompleteDirectory,
    calls_of,
    decide,
    given_up,
)
from lakemark_server.doors.directories import MARKER, SUCCESS, GivenDirectory, given_at, new_session
from lakemark_server.doors.keyed_files import BYTES_MAX
from lakemark_server.doors.looks import EarlierLooks
from lakemark_server.doors.publication import Publication, committed, give_up
from lakemark_server.doors.statements import DoorKind, Statement
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.store.mutations import Mutation, Mutations
from lakemark_server.timeline.publication.rollback import delete_files
from lakemark_server.timeline.service import Timeline

USE_NOTED_MS: Final = 5_000
"""How often it is noted that a session is used."""
DOUBT_MS: Final = 20_000
"""A statement whose directory is complete makes its call within this time."""
FAILURE_MARGIN_MS: Final = 3_000
"""Stores tell the times of files in seconds, and a job that ended so soon after a call has begun may have ended before
it."""
CALLS_REMEMBERED: Final = 1_000
LOST_MS: Final = 900_000
"""A call that has not come by then never comes: clients give a call that hangs up after ten minutes."""
EARLIER_MS: Final = 6 * 3_600_000
"""A client that comes back after its connection broke has used it so lately."""
EARLIER_MAX: Final = 200
PRESENCE_S: Final = 5.0
"""How often a process looks whether others have opened sessions, and tells them that its own are open."""
NOTED_AT_ONCE: Final = 500
PAUSES_S: Final = (0.02, 0.1, 0.5, 2.0)
"""Between looks at a directory that is complete but for its _SUCCESS, which a committer writes last."""
SETTLED_MS: Final = 60_000
"""For so long a directory is left where it is once it was decided about."""

_log = structlog.get_logger(__name__)


class StatementRefused(FailedPrecondition):
    """The rows of a statement are not committed, and never will be."""

    code = "statement_refused"


@dataclass(frozen=True, slots=True)
class Door:
    """A name through which rows come into a table. ``branch`` "": main."""

    table_id: int
    kind: DoorKind
    branch: str = ""


class ConnectionCalls:
    """When the latest calls of one connection were worked on, for which later ones had to wait: a driver's calls come
    one after the other, whatever they are about. All times are of the monotonic clock, in seconds. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: deque[tuple[float, float]] = deque(maxlen=CALLS_REMEMBERED)

    def add(self, began_s: float, ended_s: float) -> None:
        """A call was worked on."""
        with self._lock:
            self._latest.append((began_s, ended_s))

    def times(self) -> list[tuple[float, float]]:
        """When the latest calls began and ended."""
        with self._lock:
            return list(self._latest)


@dataclass(slots=True, weakref_slot=True)
class DoorSession:
    """One connection of a client, as long as it uses one door. Kept by the connection, and gone with it.

    ``calls``: of the connection, for all of its doors. ``failed_ms``: when the last call began that failed, of those
    that a statement through this door makes after its job; ``failed_call``: the directory that it named;
    ``failed_before_ms``: the same of the last one that was another call. ``adding_s``: from the first to the last of
    the calls that added partitions, as far as they followed on each other, by the monotonic clock. ``looks``: what is
    known of the session's directories.
    """

    door: Door
    client: str
    name: str
    noted: int
    noted_ms: int
    calls: ConnectionCalls = field(default_factory=ConnectionCalls)
    lock: threading.Lock = field(default_factory=threading.Lock)
    failed_ms: int = -1
    failed_call: GivenDirectory | None = None
    failed_before_ms: int = -1
    adding_s: tuple[float, float] | None = None
    looks: EarlierLooks = field(default_factory=EarlierLooks)

    def failed_beside(self, call: GivenDirectory) -> int:
        """When the last call began that failed and was not this one; -1: none has."""
        return self.failed_before_ms if self.failed_call == call else self.failed_ms


@dataclass(frozen=True, slots=True)
class _Ending:
    """A call that ends a statement.

    ``own`` is the session that it belongs to; ``earlier`` are those that may have been the same client's before.
    """

    door: Door
    table: LakeTable
    call: GivenDirectory
    own: DoorSessionRecord
    earlier: list[tuple[str, DoorSessionRecord]]

    @property
    def sessions(self) -> list[str]:
        return [self.call.session, *(name for name, _ in self.earlier)]

    @property
    def owed(self) -> int:
        return self.own.owed + sum(one.owed for _, one in self.earlier)

    def doubtful(self, now_ms: int) -> bool:
        """Whether calls of statements that were given up may still come."""
        return any(one.doubt_until_ms > now_ms for one in (self.own, *(one for _, one in self.earlier)))


class Doors:
    """Thread-safe. What processes have to agree on is in the store."""

    def __init__(
        self,
        store: Store,
        timeline: Timeline,
        snapshots: Snapshots,
        clock: ClockMs = now_ms,
        doubt_ms: int = DOUBT_MS,
        rewrite_bytes_max: int = BYTES_MAX,
    ) -> None:
        self._store = store
        self._doubt_ms = doubt_ms
        self._mutations = Mutations(store, clock)
        self._clock = clock
        self._publication = Publication(store, timeline, snapshots, rewrite_bytes_max)
        self._live: weakref.WeakValueDictionary[str, DoorSession] = weakref.WeakValueDictionary()
        self._presence = PeriodicThread("doors", PRESENCE_S, self.note_open)

    def start(self) -> None:
        """Tells other processes every ``PRESENCE_S`` which sessions are open here."""
        self._presence.start()

    def stop(self) -> None:
        """Ends that."""
        self._presence.stop()

    def note_open(self) -> None:
        """Notes that the sessions of connections to this process are used, where newer ones were opened meanwhile.

        So no other process takes them for earlier ones of the same client. Raises LakemarkError.
        """
        # In one step: others open sessions meanwhile.
        live = [session for reference in self._live.valuerefs() if (session := reference()) is not None]
        tables = {session.door.table_id for session in live}
        latest = self._store.read(lambda tx: {table_id: records.latest_session(tx, table_id) for table_id in tables})
        stale = [session for session in live if session.noted < latest[session.door.table_id]]
        for at in range(0, len(stale), NOTED_AT_ONCE):
            some = stale[at : at + NOTED_AT_ONCE]

            def body(mutation: Mutation, some: Sequence[DoorSession] = some) -> None:
                for session in some:
                    records.note_open(mutation.tx, session.door.table_id, session.name, latest[session.door.table_id])

            self._mutations.run(body)
            for session in some:
                session.noted = max(session.noted, latest[session.door.table_id])

    def begin(self, door: Door, client: str, calls: ConnectionCalls | None = None) -> DoorSession:
        """For a new connection of ``client`` (``user@host``, as far as that is known), which has made these calls."""
        made = DoorSession(door, client, "", 0, 0, calls or ConnectionCalls())
        self._renew(made)
        return made

    def _renew(self, session: DoorSession) -> None:
        """Gives it a name that was not used before."""
        name, door = new_session(), session.door

        def body(mutation: Mutation) -> DoorSessionRecord:
            now, number = mutation.now_ms, records.count_session(mutation.tx, door.table_id)
            record = DoorSessionRecord(
                kind=door.kind,
                branch=door.branch,
                client=session.client,
                opened_ms=now,
                used_ms=now,
                opened=number,
                used=number,
            )
            records.put_session(mutation.tx, door.table_id, name, record)
            return record

        record = self._mutations.run(body)
        session.name, session.noted, session.noted_ms = name, record.used, record.used_ms
        self._live[name] = session

    def give(self, session: DoorSession, table: LakeTable, version: int) -> str:
        """The location of a fresh directory. ``version``: the latest of the door's branch.

        Raises Unavailable, StorageRefused.
        """
        now = self._clock()
        latest = self._store.read(lambda tx: records.latest_session(tx, session.door.table_id))
        if latest > session.noted or now - session.noted_ms >= USE_NOTED_MS:
            if self._mutations.run(lambda mutation: _note_use(mutation, session, latest)):
                session.noted, session.noted_ms = latest, now
            else:  # it was not used for so long that it was swept
                self._renew(session)
        directory = GivenDirectory.new(session.name, table.schema.schema_id, version, now)
        return contents.give(table.record.location, directory)

    def note_failure(self, session: DoorSession, began_s: float, location: str = "") -> None:
        """A call has failed that a statement through the door makes between the end of its job and its last call.

        So a statement may have failed whose rows were complete when the call began, and it may be repeated. A call that
        does not come at all has broken the connection: what is repeated then belongs to another session. ``began_s``:
        by the monotonic clock. ``location``: that the call named, which may come again.
        """
        call = given_at(location)
        if call is None or call != session.failed_call:
            session.failed_before_ms = session.failed_ms
        took_ms = int((time.monotonic() - began_s) * 1_000)
        session.failed_ms, session.failed_call = self._clock() - took_ms, call

    def note_partitions(self, session: DoorSession, began_s: float, ended_s: float) -> None:
        """A call has added partitions, as a statement does between the end of its job and its last call: one by one it
        takes as many calls as it needs. Both times are by the monotonic clock."""
        earlier = session.adding_s
        follows = earlier is not None and (began_s - earlier[1]) * 1_000 <= self._doubt_ms
        session.adding_s = (earlier[0] if earlier is not None and follows else began_s, ended_s)

    def end(self, door: Door, location: str, way: str, worth: int = 1) -> None:
        """A statement has ended, as its call says that names ``location``: returns once its rows are committed.

        ``way``: the name of the door for overwriting, for messages. ``worth``: for how many calls it stands. Raises
        StatementRefused, as often as the call comes again; Unavailable, UnknownOutcome if it has to come again, since
        nothing is decided yet.
        """
        call = given_at(location)
        if call is None:
            raise StatementRefused(f"the location {location!r} is not one that this door has given; {NO_ROWS}")
        # Whoever waits for the answer: what is begun here is brought to an end.
        with deadline.within(deadline.NEVER):
            live = self._live.get(call.session)
            with live.lock if live is not None else threading.Lock():
                self._end(door, call, way, worth)

    def _end(self, door: Door, call: GivenDirectory, way: str, worth: int) -> None:
        ending, known = self._store.read(
            lambda tx: (self._ending(tx, door, call), records.find(tx, door.table_id, call))
        )
        if known.answered:
            return
        if known.refused:
            raise StatementRefused(known.refused)
        own, elsewhere = self._settled(ending)
        noted = self._note_committed(ending.table, [one.directory for one in (*own, *elsewhere)])
        if noted:  # more is owed now
            ending = self._store.read(lambda tx: self._ending(tx, door, call))
            own, elsewhere = ([one for one in some if one.directory not in noted] for some in (own, elsewhere))
        situation = self._situation(ending, own, elsewhere)
        decision = decide(situation, replaces=door.kind == "overwrite", way=way)
        if decision.refusal:
            raise self._refused(ending, decision, certain=situation.certain)
        self._publish(ending, decision.publish, certain=situation.certain)
        answered = self._mutations.run(
            lambda mutation: records.answer(mutation.tx, door.table_id, call, ending.sessions, worth, mutation.now_ms)
        )
        if not answered:
            raise self._refused(ending, CallEnd(refusal=IN_DOUBT), certain=True)
        self._delete(ending.table, [call])  # of the look-up right before the call, into which nobody writes

    def _ending(self, tx: ReadTransaction, door: Door, call: GivenDirectory) -> _Ending:
        table = lake.load(tx, door.table_id)
        own = records.find_session(tx, door.table_id, call.session)
        if own is None or own.swept or (own.kind, own.branch) != (door.kind, door.branch):
            raise StatementRefused(f"the location was not given by this door, or more than a day ago; {NO_ROWS}")
        earlier = [
            (name, one)
            for name, one in records.sessions(tx, door.table_id)
            if name != call.session and self._may_precede(name, one, own)
        ]
        earlier.sort(key=lambda pair: -pair[1].used_ms)
        return _Ending(door, table, call, own, earlier[:EARLIER_MAX])

    def _may_precede(self, name: str, one: DoorSessionRecord, own: DoorSessionRecord) -> bool:
        """A client has one connection at a time, so one that is open, or was used later, is somebody else's."""
        same = (one.client, one.kind, one.branch) == (own.client, own.kind, own.branch)
        lately = own.opened_ms - one.used_ms <= EARLIER_MS
        return same and lately and one.used < own.opened and name not in self._live

    def _note_committed(self, table: LakeTable, directories: Sequence[GivenDirectory]) -> set[GivenDirectory]:
        """Notes which of these an earlier attempt has committed without a note, as it ended in between.

        They are decided. So whatever becomes of the others, it is not said that these were not committed.
        """
        files = self._store.read(lambda tx: committed(tx, table.table_id, directories))
        if files:
            calls = _calls(table, files)

            def body(mutation: Mutation) -> None:
                for one in files:
                    records.publish(mutation.tx, table.table_id, {one: calls[one]}, one.session, mutation.now_ms)

            self._mutations.run(body)
        return set(files)

    def _situation(
        self, ending: _Ending, own: Sequence[CompleteDirectory], elsewhere: Sequence[CompleteDirectory]
    ) -> CallSituation:
        location = ending.table.record.location
        # All by the clock of the store of files. A call that comes again is as old as it was at first.
        (called_ms,) = contents.written_ms(location, [f"{ending.call.path}/{MARKER}"])
        complete = (*own, *elsewhere)
        known = dict(zip(complete, _ages_ms(location, complete, called_ms or self._clock()), strict=True))
        ages = {one: age or 0 for one, age in known.items()}
        live = self._live.get(ending.call.session)
        waited = self._waited_ms(ending, own, elsewhere, ages) if called_ms else dict.fromkeys(complete, 0)
        own_soon = [one for one in own if ages[one] - waited[one] <= self._doubt_ms]
        elsewhere_soon = [one for one in elsewhere if ages[one] - waited[one] <= self._doubt_ms]
        soon = {*own_soon, *elsewhere_soon}
        late = [one for one in complete if one not in soon and ages[one] <= max(LOST_MS, self._doubt_ms)]
        unfinished = bool(elsewhere or late) and self._unfinished(ending)
        doubtful = ending.doubtful(self._clock())
        failed_ms = live.failed_beside(ending.call) if live is not None else -1
        failed = failed_ms >= 0 and any(
            _completed_ms(one, ending.call, known[one] if called_ms else None) <= failed_ms for one in own_soon
        )
        return CallSituation(own_soon, elsewhere_soon, ending.owed, doubtful, late, unfinished, failed)

    def _waited_ms(
        self,
        ending: _Ending,
        own: Sequence[CompleteDirectory],
        elsewhere: Sequence[CompleteDirectory],
        ages_ms: Mapping[CompleteDirectory, int],
    ) -> dict[CompleteDirectory, int]:
        """For how long the call may have waited for others of its connection since each job ended, that long before it.

        If no other statement can have added partitions, all of the time in which that was done counts, since a driver
        takes its time between these calls, too.
        """
        live = self._live.get(ending.call.session)
        called_s = time.monotonic() - (self._clock() - ending.call.given_ms) / 1_000
        alone = len(own) + len(elsewhere) == 1 and not ending.owed
        adding = [live.adding_s] if live is not None and live.adding_s is not None and alone else []
        calls = live.calls.times() if live is not None else []
        waited_s = {one: _covered_s([*calls, *adding], called_s - ages_ms[one] / 1_000, called_s) for one in own}
        waited_s |= {one: _covered_s(adding, called_s - ages_ms[one] / 1_000, called_s) for one in elsewhere}
        return {one: int(seconds * 1_000) for one, seconds in waited_s.items()}

    def _unfinished(self, ending: _Ending) -> bool:
        """Whether rows lie in a directory of the session about which nothing was decided."""
        table, session = ending.table, ending.call.session
        given = contents.given_directories(table.record.location, session)
        outcomes = self._store.read(lambda tx: [records.find(tx, table.table_id, one).outcome for one in given])
        return any(
            contents.holds_rows(table.record.location, one)
            for one, outcome in zip(given, outcomes, strict=True)
            if not outcome
        )

    def _settled(self, ending: _Ending) -> tuple[list[CompleteDirectory], list[CompleteDirectory]]:
        """What is complete in the session and elsewhere. Waits for jobs that are about to write their _SUCCESS."""
        for pause_s in (*PAUSES_S, None):
            own = self._complete(ending.table, ending.sessions[:1])
            elsewhere = self._complete(ending.table, ending.sessions[1:])
            complete = (*own, *elsewhere)
            told = ending.door.kind == "overwrite" and len(complete) == 1 and not ending.owed
            if pause_s is None or told or all(one.marked for one in complete):
                break
            time.sleep(pause_s)
        return own, elsewhere

    def _complete(self, table: LakeTable, sessions: Sequence[str]) -> list[CompleteDirectory]:
        """The directories of the sessions in which a job has ended, and about which nothing was decided."""
        location = table.record.location
        partitioned = bool(table.schema.partition_columns)
        looks = {session: live.looks if (live := self._live.get(session)) else EarlierLooks() for session in sessions}
        complete = [
            one
            for session in sessions
            for one in contents.complete_directories(location, session, partitioned=partitioned, looks=looks[session])
        ]
        known = self._store.read(
            lambda tx: {one.directory: records.find(tx, table.table_id, one.directory) for one in complete}
        )
        for directory, record in known.items():
            if record.outcome:
                looks[directory.session].decided[directory.name] = record.changed_ms
        # Not at once: a committer may not be done with its _SUCCESS when the call of another statement finds it.
        before = self._clock() - SETTLED_MS
        for session, look in looks.items():
            self._delete(table, [GivenDirectory(session, name) for name in look.take_decided(before)])
        return [one for one in complete if not known[one.directory].outcome]

    def _publish(self, ending: _Ending, directories: Sequence[GivenDirectory], *, certain: bool) -> None:
        """Raises StatementRefused, of which it takes a note; UnknownOutcome."""
        if not directories:
            return
        door, table = ending.door, ending.table
        statements = [Statement(door.kind, door.branch, one) for one in directories]
        try:
            files = self._publication.publish(table, statements)
        except UnknownOutcome:
            raise
        except LakemarkError as error:
            if self._note_committed(table, directories):  # by another process meanwhile
                raise UnknownOutcome(f"which rows were committed is not known yet: {error.message}") from error
            raise self._refused(ending, given_up(directories, error.message), certain=certain) from error
        except Exception as error:
            # It would fail for each later statement of the session, which ends this one, too.
            _log.exception("rows that came through a door could not be published", table=table.name)
            why = given_up(directories, f"it failed here: {error}")
            raise self._refused(ending, why, certain=certain) from error
        calls = _calls(table, files)
        self._mutations.run(
            lambda mutation: records.publish(mutation.tx, door.table_id, calls, ending.call.session, mutation.now_ms)
        )
        self._publication.discard(table, statements)

    def _refused(self, ending: _Ending, decision: CallEnd, *, certain: bool) -> StatementRefused:
        """Takes a note of a refusal. ``certain``: the call is that of the only statement that is given up.

        Raises UnknownOutcome if another process has committed some of it meanwhile, so that the refusal is not true.
        """
        table, why = ending.table, decision.refusal
        table_id, location = table.table_id, table.record.location

        def body(mutation: Mutation) -> list[InstantRecord] | None:
            if committed(mutation.tx, table_id, decision.retire):
                return None
            rolled_back = give_up(mutation, table, decision.retire, why)
            records.refuse(mutation.tx, table_id, ending.call, why, mutation.now_ms)
            if decision.retire and not certain:
                sessions = {ending.call.session, *(one.session for one in decision.retire)}
                sessions |= {name for name, one in ending.earlier if one.owed}
                records.doubt(mutation.tx, table_id, sessions, mutation.now_ms + self._doubt_ms)
            return rolled_back

        rolled_back = self._mutations.run(body)
        if rolled_back is None:
            raise UnknownOutcome("rows were committed by another process meanwhile")
        for instant in rolled_back:
            delete_files(location, instant.instant)
        return StatementRefused(why, table=table.name)

    def _delete(self, table: LakeTable, directories: Sequence[GivenDirectory]) -> None:
        """What is left is found by the sweep."""
        for directory in directories:
            with suppress(LakemarkError):
                storage.delete_directory(storage.join(table.record.location, directory.path))


def _calls(table: LakeTable, files: Mapping[GivenDirectory, int]) -> dict[GivenDirectory, int]:
    """How many calls end the statements that have written so many files."""
    partitioned = bool(table.schema.partition_columns)
    return {one: calls_of(partitioned=partitioned, files=number) for one, number in files.items()}


def _note_use(mutation: Mutation, session: DoorSession, latest: int) -> bool:
    """False: the session is over."""
    record = records.find_session(mutation.tx, session.door.table_id, session.name)
    if record is None or record.swept:
        return False
    record.used_ms, record.used = mutation.now_ms, max(record.used, latest)
    records.put_session(mutation.tx, session.door.table_id, session.name, record)
    return True


def _completed_ms(one: CompleteDirectory, call: GivenDirectory, age_ms: int | None) -> int:
    """The earliest time, by the service's clock, at which the directory's job may have ended.

    ``age_ms``: for how long it had ended, by the clock of the files, when the directory was given that the ``call``
    names; None if that is not known. When that one was given is known by both clocks, so they are never compared with
    each other.
    """
    if age_ms is None:
        return one.directory.given_ms
    return max(one.directory.given_ms, call.given_ms - age_ms - FAILURE_MARGIN_MS)


def _ages_ms(location: str, complete: Sequence[CompleteDirectory], now_ms: int) -> list[int | None]:
    """For how long their jobs have ended; None where that is not known."""
    written = contents.written_ms(location, [f"{one.directory.path}/{SUCCESS}" for one in complete])
    return [None if at is None else now_ms - at for at in written]


def _covered_s(times: Iterable[tuple[float, float]], since_s: float, until_s: float) -> float:
    """How much of a time is covered by others, which may overlap."""
    covered_s, seen_s = 0.0, since_s
    for began, ended in sorted(times):
        covered_s += max(0.0, min(ended, until_s) - max(began, seen_s))
        seen_s = max(seen_s, ended)
    return covered_s
