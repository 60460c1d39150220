"""Clients of several services on one store, whose requests and answers are written down as a history.

Whatever they do goes over gRPC, to any of the services. A client that is not told how a change ended mostly asks again,
or else leaves it at that, so that histories have changes of unknown outcome.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

import grpc

from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import snapshot_pb2 as s
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from tests.histories import DELTA_NAME, MAIN, Clean, Operation, Outcome, Place, Recorder, Write
from tests.lakes import file, files
from tests.wire import COLUMNS, Refused, Wire

T = TypeVar("T")

TABLES = ("a", "b", "c")
BRANCHES = tuple(("a", f"dev{number}") for number in range(3))
CLIENTS = 6
ATTEMPTS_MAX = 2_000
GIVE_UP = 0.2
MONTHS = 5
WAIT_S = 120.0
RETAINED = 6
LOOKS_BACK = 15
MARKS_MAX = 4  # of one client: tags and savepoints, which stay
BASE_COLUMNS = {name for name, _ in COLUMNS}
NOTHING: Mapping[Place, int] = MappingProxyType({})


class Gone(Exception):
    """The service has refused it for good; nothing has happened."""


class Client:
    """One thread's. ``addresses``: of each service, which may wait until there is one."""

    def __init__(self, addresses: Sequence[Callable[[], str]], chance: random.Random) -> None:
        self._addresses, self._chance = addresses, chance
        self._wires: dict[tuple[str, str], Wire] = {}
        self.unanswered = 0
        self.refusal = ""  # the code of the last one

    def ask(self, table: str, question: Callable[[Wire], T]) -> T:
        """Until there is an answer. Raises Gone."""
        outcome, answer = self.settle(table, question, give_up=0)
        if outcome != "ok" or answer is None:
            raise Gone
        return answer

    def settle(self, table: str, question: Callable[[Wire], T], give_up: float = GIVE_UP) -> tuple[Outcome, T | None]:
        outcome: Outcome = "refused"
        for _ in range(ATTEMPTS_MAX):
            address = self._chance.choice(self._addresses)()
            wire = self._wires.get((address, table)) or self._wires.setdefault((address, table), Wire(address, table))
            try:
                return "ok", question(wire)
            except grpc.RpcError as error:
                told = Refused(error)
            assert told.detail.code != "internal", told
            if told.detail.outcome == "fatal":
                self.refusal = told.detail.code
                return "refused", None
            if told.detail.outcome != "retryable":  # or there is no answer at all
                self.unanswered += 1
                outcome = "unknown"
                if self._chance.random() < give_up:
                    return outcome, None
            if not told.detail.outcome:
                time.sleep(0.01)  # as clients do, not to ask a dead address in a tight loop
        return outcome, None

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()


class Load:
    """``steps``: how many operations there are in all."""

    def __init__(self, addresses: Sequence[Callable[[], str]], seed: int, steps: int) -> None:
        self.recorder = Recorder()
        self.unanswered = 0
        self._addresses, self._seed, self._steps = addresses, seed, steps
        self._begun = self._done = 0
        self._branches: set[Place] = set()
        self._errors: list[BaseException] = []
        self._changed = threading.Condition()

    def create(self) -> None:
        client = Client(self._addresses, random.Random(self._seed))
        for table in TABLES:
            client.ask(table, lambda wire: wire.create(request_id=f"create {wire.table.table}"))
        client.close()

    def run(self, interrupt: Callable[[], None] | None = None, times: int = 0) -> None:
        """``interrupt`` is called so many times while the clients are at work."""
        threads = [threading.Thread(target=self._work, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            for moment in range(1, times + 1):
                self._wait_for(self._steps * moment // (times + 1))
                assert interrupt is not None
                interrupt()
            self._wait_for(self._steps)
        finally:
            for thread in threads:
                thread.join(WAIT_S)
        assert not self._errors, self._errors

    def _wait_for(self, done: int) -> None:
        with self._changed:
            enough = self._changed.wait_for(lambda: self._done >= done or self._errors, WAIT_S)
        assert enough, "no progress"
        assert not self._errors, self._errors

    def _work(self, number: int) -> None:
        chance = random.Random(self._seed * 1_000 + number)
        client = Client(self._addresses, chance)
        worker = _Worker(client, self.recorder, chance, number, self._branches)
        try:
            while not self._errors:
                with self._changed:
                    self._begun += 1
                    if self._begun > self._steps:
                        break
                worker.step()
                with self._changed:
                    self._done += 1
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._errors.append(error)
                self._changed.notify_all()
            raise
        finally:
            with self._changed:
                self.unanswered += client.unanswered
            client.close()


class _Worker:
    def __init__(
        self, client: Client, recorder: Recorder, chance: random.Random, number: int, branches: set[Place]
    ) -> None:
        self._client, self._recorder, self._chance = client, recorder, chance
        self._number, self._steps, self._marks = number, 0, 0
        self._branches = branches
        self._kinds: dict[Callable[[], object], int] = {
            self._append: 6, self._together: 8, self._replace: 4, self._lay: 3, self._compact: 3, self._cluster: 2,
            self._overwrite: 2, self._restore: 1, self._create: 1, self._merge: 2, self._alter: 1, self._mark: 1,
            self._clean: 2, self._read_one: 5, self._read_all: 8, self._look: 4,
        }  # fmt: skip

    def step(self) -> None:
        self._steps += 1
        with suppress(Gone):  # refused before it began: there is nothing to tell
            self._chance.choices(list(self._kinds), list(self._kinds.values()))[0]()

    def _places(self) -> list[Place]:
        return [(table, MAIN) for table in TABLES] + sorted(self._branches)

    def _busy_place(self) -> Place:
        """Half of the time the same one, so that those who rewrite files meet."""
        return self._chance.choice(self._places()[: 1 if self._chance.random() < 0.5 else None])

    def _name(self, what: str) -> str:
        return f"{what} {self._number}/{self._steps}"

    # -- changes ---------------------------------------------------------------------------------------------------

    def _append(self) -> None:
        self._commit("append", [self._chance.choice(self._places())], t.APPEND)

    def _overwrite(self) -> None:
        self._commit("overwrite", [self._chance.choice(self._places())], t.OVERWRITE_TABLE)

    def _together(self) -> None:
        places = self._places()
        self._commit("together", self._chance.sample(places, self._chance.randint(2, min(4, len(places)))), t.APPEND)

    def _replace(self) -> None:
        """A slice of the version that was read gives way to a new file of its group."""
        self._rewrite("replace", t.UPSERT, 1)

    def _compact(self) -> None:
        """Likewise; a delta that came meanwhile is on top of it."""
        self._rewrite("compact", t.COMPACT, 1)

    def _cluster(self) -> None:
        """Slices of a month give way to a file of a new group."""
        self._rewrite("cluster", t.CLUSTER, 3)

    def _rewrite(self, what: str, operation: t.Operation.ValueType, groups: int) -> None:
        place = self._busy_place()
        version, paths = self._read_one(place)
        if not paths:
            return
        month, group = _slice(self._chance.choice(sorted(paths)[:4]))  # few, so that others want the same
        wanted = sorted({one for at, one in map(_slice, paths) if at == month} - {group})[: groups - 1]
        gone = [path for path in paths if _slice(path) in {(month, one) for one in (group, *wanted)}]
        instant = self._open(place, operation, read_version=version).instant
        name = f"{self._number}-{self._steps}" if operation == t.CLUSTER else group
        given = file(instant, name, month)
        service = operation != t.UPSERT
        write = Write(frozenset({given.path}), frozenset(gone), service=service, instant=instant)
        request = self._request(place, instant, [given], removed=t.RemovedFiles(paths=gone))
        self._settle(what, {place: write}, lambda wire: [wire.timeline.Commit(request)])

    def _lay(self) -> None:
        """A delta on a slice of the version that was read."""
        place = self._busy_place()
        version, paths = self._read_one(place)
        bases = [path for path in paths if not path.endswith(DELTA_NAME)]
        if not bases:
            return
        base = self._chance.choice(sorted(bases)[:4])
        month, group = _slice(base)
        instant = self._open(place, t.UPSERT, read_version=version).instant
        given = file(instant, group, month)
        given.path = given.path.rpartition("/")[0] + DELTA_NAME
        given.MergeFrom(p.DataFile(file_group=group, kind=p.DELTA, base_instant=int(base.split("/")[0])))
        write = Write(frozenset({given.path}), instant=instant)
        request = self._request(place, instant, [given])
        self._settle("lay", {place: write}, lambda wire: [wire.timeline.Commit(request)])

    def _commit(self, what: str, places: list[Place], operation: t.Operation.ValueType) -> None:
        writes, reads, requests = {}, {}, []
        for place in places:
            opened = self._open(place, operation)
            instant = opened.instant
            given = [
                file(instant, f"{self._number}-{self._steps}-{n}", self._chance.randrange(MONTHS))
                for n in range(self._chance.randint(1, 3))
            ]
            everything = operation == t.OVERWRITE_TABLE
            if everything:  # all that it replaces it has read
                reads[place] = opened.read_version
            writes[place] = Write(frozenset(one.path for one in given), everything=everything, instant=instant)
            requests.append(self._request(place, instant, given))
        request_id = self._name("request") if self._chance.random() < 0.5 else ""
        transaction = t.CommitTransactionRequest(commits=requests, request_id=request_id)
        if len(places) == 1:
            self._settle(what, writes, lambda wire: [wire.timeline.Commit(requests[0])], reads)
        else:
            self._settle(what, writes, lambda wire: list(wire.timeline.CommitTransaction(transaction).commits))

    def _restore(self) -> None:
        # Not of the table with branches: none of them could be merged any more.
        place = self._chance.choice([(table, MAIN) for table in TABLES[1:]])
        version, _ = self._read_one(place)
        if version < 2:
            return
        request = t.RestoreRequest(
            table=_table(place),
            version=self._chance.randint(max(1, version - 5), version - 1),
            request_id=self._name(""),
        )
        self._settle("restore", {place: Write(restores=request.version)}, lambda wire: [wire.timeline.Restore(request)])

    def _merge(self) -> None:
        if not self._branches:
            return
        table, branch = self._chance.choice(sorted(self._branches))
        request = c.MergeBranchRequest(table=_table((table, MAIN)), branch=branch, request_id=self._name(""))
        self._settle("merge", {(table, MAIN): Write(merges=branch)}, lambda wire: [wire.catalog.MergeBranch(request)])

    def _alter(self) -> None:
        place, name = (self._chance.choice(TABLES), MAIN), f"x{self._number}_{self._steps}"
        column = p.Column(name=name, type=p.Type(primitive="bigint"))
        change = c.SchemaChange(add=c.SchemaChange.AddColumn(column=column))
        request = c.AlterSchemaRequest(name=_table(place), changes=[change], request_id=self._name(""))
        began = self._recorder.now_ns()
        outcome, _ = self._client.settle(place[0], lambda wire: wire.catalog.AlterSchema(request))
        ended = self._recorder.now_ns()
        self._recorder.add(Operation(self._name("alter"), began, ended, outcome, {place: Write(column=name)}))

    def _mark(self) -> None:
        """A version that stays, by a tag or a savepoint."""
        if self._marks >= MARKS_MAX:
            return
        self._marks += 1
        place = self._chance.choice(self._places())
        version, _ = self._read_one(place)
        version = self._chance.randint(max(0, version - LOOKS_BACK), version)
        if not version:
            return
        request_id = self._name("")
        tag = c.CreateReferenceRequest(
            table=_table(place), name=f"t{self._number}-{self._steps}", kind=c.TAG, from_branch=place[1],
            from_version=version, request_id=request_id,
        )  # fmt: skip
        savepoint = t.SavepointRequest(table=_table(place), branch=place[1], version=version, request_id=request_id)

        def question(wire: Wire) -> object:
            return wire.catalog.CreateReference(tag) if tagged else wire.timeline.CreateSavepoint(savepoint)

        tagged = self._chance.random() < 0.5
        began = self._recorder.now_ns()
        outcome, _ = self._client.settle(place[0], question)
        ended = self._recorder.now_ns()
        self._recorder.add(Operation(self._name("mark"), began, ended, outcome, keeps=(place, version)))

    def _clean(self) -> None:
        place = self._chance.choice(self._places())
        request = t.CleanRequest(table=_table(place), branch=place[1], retain_versions=RETAINED)
        began = self._recorder.now_ns()
        outcome, answer = self._client.settle(place[0], lambda wire: wire.timeline.Clean(request))
        ended = self._recorder.now_ns()
        cleaned = Clean(place, RETAINED)
        if answer is not None:
            cleaned = replace(cleaned, earliest=answer.earliest_version, spared=frozenset(answer.kept_versions))
        self._recorder.add(Operation(self._name("clean"), began, ended, outcome, cleans=cleaned))

    def _settle(
        self,
        what: str,
        writes: dict[Place, Write],
        question: Callable[[Wire], Sequence[t.CommitResponse | c.MergeBranchResponse]],
        reads: Mapping[Place, int] = NOTHING,
    ) -> None:
        began = self._recorder.now_ns()
        outcome, answers = self._client.settle(next(iter(writes))[0], question)
        ended = self._recorder.now_ns()
        if answers is not None:
            versions = [answer.version for answer in answers]
            writes = {
                place: replace(write, version=version)
                for (place, write), version in zip(writes.items(), versions, strict=True)
            }
        self._recorder.add(Operation(self._name(what), began, ended, outcome, writes, reads))

    def _create(self) -> None:
        left = [place for place in BRANCHES if place not in self._branches]
        if not left:
            return
        place = left[0]
        request = c.CreateReferenceRequest(table=_table(place), name=place[1], kind=c.BRANCH, request_id=self._name(""))
        began = self._recorder.now_ns()
        outcome, _ = self._client.settle(place[0], lambda wire: wire.catalog.CreateReference(request))
        ended = self._recorder.now_ns()
        self._recorder.add(Operation(self._name("create"), began, ended, outcome, creates=place))
        if outcome == "ok":
            self._branches.add(place)

    def _open(self, place: Place, operation: t.Operation.ValueType, read_version: int = 0) -> t.Instant:
        request = t.OpenInstantRequest(
            table=_table(place), operation=operation, start=True, read_version=read_version, branch=place[1],
            request_id=f"{self._name('open')} {place}",
        )  # fmt: skip
        return self._client.ask(place[0], lambda wire: wire.timeline.OpenInstant(request))

    @staticmethod
    def _request(
        place: Place, instant: int, given: Sequence[p.DataFile], removed: t.RemovedFiles | None = None
    ) -> t.CommitRequest:
        return t.CommitRequest(table=_table(place), instant=instant, added=files(*given), removed=removed)

    # -- reads -----------------------------------------------------------------------------------------------------

    def _read_one(self, place: Place | None = None) -> tuple[int, list[str]]:
        place = place or self._chance.choice(self._places())
        began = 0

        def question(wire: Wire) -> tuple[int, list[str]]:
            nonlocal began
            began = self._recorder.now_ns()
            return wire.read(s.SnapshotReference(branch=place[1]))

        version, paths = self._client.ask(place[0], question)
        ended = self._recorder.now_ns()
        contents = {place: frozenset(paths)}
        self._recorder.add(Operation(self._name("read"), began, ended, "ok", {}, {place: version}, contents))
        return version, paths

    def _read_all(self) -> None:
        places, began = self._places(), 0
        request = s.GetSnapshotsRequest(
            snapshots=[s.GetSnapshotRequest(table=_table(one), at=s.SnapshotReference(branch=one[1])) for one in places]
        )

        def question(wire: Wire) -> s.GetSnapshotsResponse:
            nonlocal began
            began = self._recorder.now_ns()
            return wire.snapshots.GetSnapshots(request)

        found = self._client.ask(TABLES[0], question).snapshots
        ended = self._recorder.now_ns()
        reads = {place: one.version for place, one in zip(places, found, strict=True)}
        columns = {
            place: frozenset(column.name for column in one.schema.columns) - BASE_COLUMNS
            for place, one in zip(places, found, strict=True)
        }
        self._recorder.add(Operation(self._name("read all"), began, ended, "ok", {}, reads, columns=columns))
        place = self._chance.choice(places)
        self._look_at(place, reads[place])

    def _look(self) -> None:
        """At an older version, which may have ended."""
        place = self._chance.choice(self._places())
        version, _ = self._read_one(place)
        self._look_at(place, self._chance.randint(max(0, version - LOOKS_BACK), version))

    def _look_at(self, place: Place, version: int) -> None:
        if not version:
            return
        at = s.SnapshotReference(branch=place[1], version=version)
        began = self._recorder.now_ns()
        outcome, answer = self._client.settle(place[0], lambda wire: wire.read(at), give_up=0)
        ended = self._recorder.now_ns()
        assert outcome != "refused" or self._client.refusal == "version_not_found", self._client.refusal
        contents = {place: frozenset(answer[1])} if answer else {}
        looks = (place, version)
        self._recorder.add(Operation(self._name("look"), began, ended, outcome, contents=contents, looks=looks))


def _slice(path: str) -> tuple[int, str]:
    """Month and file group."""
    _, month, group, _ = path.split("/")
    return int(month.removeprefix("m=")), group


def _table(place: Place) -> p.TableName:
    return p.TableName(database="default", table=place[0])
