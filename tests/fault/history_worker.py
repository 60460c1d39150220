"""One client of a history: chooses its next operation, and records it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import snapshot_pb2 as s
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from tests.fault.history_client import Client, Gone
from tests.fault.history_plans import (
    KINDS,
    REWRITING,
    TABLES,
    Kind,
    Plan,
    Planner,
    Slice,
    request_of,
    slice_of,
    table_of,
)
from tests.histories import MAIN, Alone, Clean, Comparison, DryMerge, Operation, Outcome, Place, Recorder, Write
from tests.lakes import files, profile
from tests.wire import COLUMNS, Wire

T = TypeVar("T")

BRANCHES_MAX = 3  # branches in use
RETAINED = 6
LOOKS_BACK = 15
MARKS_MAX = 4  # tags and savepoints of one client, which stay for good
BASE_COLUMNS = {name for name, _ in COLUMNS}


class Worker:
    """``pairs`` (operations that are to meet) and ``branches`` are shared by all workers."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        planner: Planner,
        pairs: Iterator[tuple[Kind, Kind]],
        branches: set[Place],
        chance: random.Random,
        number: int,
    ) -> None:
        self._client, self._recorder, self._planner, self._chance = client, recorder, planner, chance
        self._number, self._steps, self._marks, self._asked = number, 0, 0, 0
        self._pairs, self._branches = pairs, branches
        self._left: set[tuple[str, int]] = set()  # instants that were opened and not ended, with their tables
        self._kinds: dict[Callable[[], object], int] = {
            self._append: 5, self._together: 5, self._rewrite: 5, self._beside: 12, self._apart: 4, self._overwrite: 2,
            self._restore: 1, self._create: 2, self._merge: 4, self._alter: 1, self._mark: 3, self._clean: 2,
            self._compare: 2, self._read_one: 2, self._read_all: 6, self._look: 4,
        }  # fmt: skip

    def step(self) -> None:
        self._steps += 1
        with suppress(Gone):  # refused before it began: nothing to record
            self._chance.choices(list(self._kinds), list(self._kinds.values()))[0]()
        for table, instant in sorted(self._left):  # not committed, or of unknown outcome: then it may be too late
            request = t.RollbackInstantRequest(table=table_of((table, MAIN)), instant=instant)
            self._client.settle(table, lambda wire, request=request: wire.timeline.RollbackInstant(request), give_up=0)  # type: ignore[misc]
        self._left.clear()

    def _places(self) -> list[Place]:
        return [(table, MAIN) for table in TABLES] + sorted(self._branches)

    def _branched(self) -> list[Place]:
        """The branches of the table that has branches."""
        return [("a", MAIN), *sorted(self._branches)]

    def _busy_place(self) -> Place:
        """Half of the time the same place, so that operations that rewrite files meet."""
        return self._chance.choice(self._places()[: 1 if self._chance.random() < 0.5 else None])

    def _name(self, what: str) -> str:
        return f"{what} {self._number}/{self._steps}"

    def _request_id(self) -> str:
        """The id of the next request, for all of its attempts."""
        self._asked += 1
        return f"{self._number}/{self._asked}"

    def _timed(self, table: str, question: Callable[[Wire], T]) -> tuple[int, int, T]:
        """The response to a read, and the times of its last attempt. Raises Gone."""
        began = 0

        def timed(wire: Wire) -> T:
            nonlocal began
            began = self._recorder.now_ns()
            return question(wire)

        answer = self._client.ask(table, timed)
        return began, self._recorder.now_ns(), answer

    def _asks(self, table: str, question: Callable[[Wire], T]) -> tuple[int, int, Outcome, T | None]:
        began = self._recorder.now_ns()
        outcome, answer = self._client.settle(table, question)
        return began, self._recorder.now_ns(), outcome, answer

    # -- commits ---------------------------------------------------------------------------------------------------

    def _append(self) -> None:
        self._commit(self._planner.adding("append", self._chance.choice(self._places())))

    def _overwrite(self) -> None:
        self._commit(self._planner.adding("overwrite", self._chance.choice(self._places())))

    def replace_all(self, place: Place) -> None:
        with suppress(Gone):  # a writer of unknown outcome may block it
            self._commit(Plan("overwrite", place, t.OVERWRITE_TABLE, (0,)))

    def _together(self) -> None:
        places = self._places()
        chosen = self._chance.sample(places, self._chance.randint(2, min(4, len(places))))
        kinds = [*self._chance.choices(("append", "append", "overwrite"), k=len(chosen) - 1), "overwrite"]
        plans = [self._planner.adding(what, place) for what, place in zip(kinds, chosen, strict=True)]
        opened = [self._open(plan, number) for number, plan in enumerate(plans)]
        if self._chance.random() < 0.5:  # mostly the last writer is refused then, and with it all
            self._settle("append", [self._open(self._planner.adding("append", chosen[-1]), len(plans))])
        self._settle("together", opened)

    def _rewrite(self) -> None:
        """Replaces slices of the read version by a new file, or adds a delta to one."""
        place = self._busy_place()
        version, paths = self._read_one(place)
        if paths:
            kind = self._chance.choice(REWRITING)
            self._commit(self._planner.meeting(kind, place, version, paths, self._target(paths)))

    def _beside(self) -> None:
        """Two writers that have read the same version and change the same slice, one after the other."""
        place = self._busy_place()
        version, paths = self._read_one(place)
        if paths:
            target = self._target(paths)
            self._in_turn([self._planner.meeting(kind, place, version, paths, target) for kind in next(self._pairs)])

    def _apart(self) -> None:
        """The same change on a branch and on its parent. Then one is merged into the other, and back again."""
        places = self._branch()
        if places is None:
            return
        read = [self._read_one(place) for place in places]
        shared = sorted(set(read[0][1]) & set(read[1][1]))
        if shared:
            target, meeting = self._target(shared), [*zip(places, read, strict=True)]
            self._chance.shuffle(meeting)
            # The append may be merged. Steps that have not seen it must not come after it on the way back.
            kinds = self._chance.choice((("append", t.APPEND), self._chance.choice(KINDS))), self._chance.choice(KINDS)
            self._in_turn(
                [
                    self._planner.meeting(kind, place, *at, target)
                    for kind, (place, at) in zip(kinds, meeting, strict=True)
                ]
            )
            first, second = (place for place, _ in meeting)
            self._merge_from(first, second)
            self._commit(self._planner.adding("append", first))
            self._merge_from(second, first)

    def _target(self, paths: Sequence[str]) -> Slice:
        return slice_of(self._chance.choice(sorted(paths)[:4]))  # few, so that clients choose the same

    def _in_turn(self, plans: Sequence[Plan]) -> None:
        """All instants are opened before the first is committed."""
        opened = [self._open(plan, number) for number, plan in enumerate(plans)]
        for plan, one in zip(plans, opened, strict=True):
            self._settle(plan.what, [one])

    def _commit(self, plan: Plan) -> None:
        self._settle(plan.what, [self._open(plan, 0)])

    def _open(self, plan: Plan, number: int) -> tuple[Place, Write, t.CommitRequest]:
        names = plan.operation in (t.DELETE, t.OVERWRITE_PREDICATE, t.OVERWRITE_PARTITIONS)
        asked = t.OpenInstantRequest(
            table=table_of(plan.place), branch=plan.place[1], operation=plan.operation, start=True,
            read_version=plan.read_version, profile=profile(*plan.months) if names else None,
            request_id=self._request_id(),
        )  # fmt: skip
        opened = self._client.ask(plan.place[0], lambda wire: wire.timeline.OpenInstant(asked))
        self._left.add((plan.place[0], opened.instant))
        given = self._planner.files(plan, opened.instant, f"{self._number}-{self._steps}-{number}")
        write = self._planner.write(plan, opened.instant, opened.read_version, given)
        request = request_of(plan, opened.instant, given)
        if self._chance.random() < 0.3:  # stage all files before the commit, or all except the last
            before = given[:-1] or given
            for sequence, one in enumerate(before, 1):
                staged = t.StageFilesRequest(
                    table=request.table, instant=request.instant, added=files(one), sequence=sequence
                )
                self._client.ask(plan.place[0], lambda wire, staged=staged: wire.timeline.StageFiles(staged))  # type: ignore[misc]
            left = given[len(before) :]
            request.ClearField("added")
            if left:
                request.added.CopyFrom(files(*left))
        return plan.place, write, request

    def _settle(self, what: str, opened: Sequence[tuple[Place, Write, t.CommitRequest]]) -> None:
        writes = {place: write for place, write, _ in opened}
        requests = [request for _, _, request in opened]
        request_id = self._request_id() if self._chance.random() < 0.5 else ""
        transaction = t.CommitTransactionRequest(commits=requests, request_id=request_id)

        def question(wire: Wire) -> list[t.CommitResponse]:
            if len(requests) == 1:
                return [wire.timeline.Commit(requests[0])]
            return list(wire.timeline.CommitTransaction(transaction).commits)

        began, ended, outcome, answers = self._asks(opened[0][0][0], question)
        for place, answer in zip(writes, answers or (), strict=False):
            writes[place] = replace(writes[place], version=answer.version)
        self._recorder.add(Operation(self._name(what), began, ended, outcome, writes))
        if outcome != "unknown":
            self._left.difference_update((place[0], write.instant) for place, write in writes.items())

    # -- other changes ---------------------------------------------------------------------------------------------

    def _restore(self) -> None:
        # Not of the table with branches, which could no longer be merged.
        place = self._chance.choice([(table, MAIN) for table in TABLES[1:]])
        version, _ = self._read_one(place)
        if version < 2:
            return
        restored = self._chance.randint(max(1, version - 5), version - 1)
        request = t.RestoreRequest(table=table_of(place), version=restored, request_id=self._request_id())
        began, ended, outcome, answer = self._asks(place[0], lambda wire: wire.timeline.Restore(request))
        write = Write(restores=restored, version=answer.version if answer else 0)
        self._recorder.add(Operation(self._name("restore"), began, ended, outcome, {place: write}))

    def _merge(self) -> None:
        """Merges any branch into another one, and often back, which is a fast-forward if nothing came in between."""
        branched = self._branched()  # other clients create and drop branches meanwhile
        if len(branched) < 2:
            self._create()
            return
        source, target = self._chance.sample(branched, 2)
        if self._chance.random() < 0.5:  # so that there is something to merge
            self._commit(self._planner.adding("append", source))
        self._merge_from(source, target)
        if self._chance.random() < 0.5:
            self._merge_from(target, source)

    def _merge_from(self, source: Place, target: Place) -> None:
        request = c.MergeBranchRequest(
            table=table_of(target), branch=source[1], into=target[1], request_id=self._request_id(),
            fast_forward_only=self._chance.random() < 0.2,
        )  # fmt: skip
        began, ended, outcome, answer = self._asks(target[0], lambda wire: wire.catalog.MergeBranch(request))
        write = Write(merges=source[1])
        if answer:
            write = replace(write, version=answer.version, replayed=answer.replayed, fast_forward=answer.fast_forward)
        self._recorder.add(Operation(self._name("merge"), began, ended, outcome, {target: write}))
        if outcome == "refused" and self._client.refusal == "commit_conflict":
            # Conflicting changes stay, so these two will never be merged.
            self._branches.discard(target if source[1] == MAIN else source)

    def _create(self) -> None:
        """A new branch for all workers."""
        if len(self._branches) < BRANCHES_MAX:
            made = self._branch()
            self._branches.update(made[:1] if made else ())

    def _branch(self) -> tuple[Place, Place] | None:
        """A new branch and its parent; None if the outcome is not known."""
        place, parent = ("a", f"dev{self._number}_{self._asked}"), self._chance.choice(self._branched())
        request = c.CreateReferenceRequest(
            table=table_of(place), name=place[1], kind=c.BRANCH, from_branch=parent[1], request_id=self._request_id()
        )
        began, ended, outcome, _ = self._asks(place[0], lambda wire: wire.catalog.CreateReference(request))
        operation = Operation(self._name("create"), began, ended, outcome, creates=place, creates_from=parent)
        self._recorder.add(operation)
        return (place, parent) if outcome == "ok" else None

    def _alter(self) -> None:
        """Changes the schema while a writer is open, whose version then has the new schema."""
        place, name = (self._chance.choice(TABLES), MAIN), f"x{self._number}_{self._steps}"
        column = p.Column(name=name, type=p.Type(primitive="bigint"))
        change = c.SchemaChange(add=c.SchemaChange.AddColumn(column=column))
        writer = self._open(self._planner.adding("append", place), 0)
        request = c.AlterSchemaRequest(name=table_of(place), changes=[change], request_id=self._request_id())
        began, ended, outcome, _ = self._asks(place[0], lambda wire: wire.catalog.AlterSchema(request))
        self._recorder.add(Operation(self._name("alter"), began, ended, outcome, {place: Write(column=name)}))
        self._settle("append", [writer])

    def _mark(self) -> None:
        """Keeps a version for good, by a tag or a savepoint."""
        if self._marks >= MARKS_MAX:
            return
        place = self._busy_place()
        version, _ = self._read_one(place)
        if not version:
            return
        self._marks += 1
        version = self._chance.randint(max(1, version - LOOKS_BACK), version)
        request_id = self._request_id()
        tag = c.CreateReferenceRequest(
            table=table_of(place), name=f"t{self._number}-{self._steps}", kind=c.TAG, from_branch=place[1],
            from_version=version, request_id=request_id,
        )  # fmt: skip
        savepoint = t.SavepointRequest(table=table_of(place), branch=place[1], version=version, request_id=request_id)

        def question(wire: Wire) -> object:
            return wire.catalog.CreateReference(tag) if tagged else wire.timeline.CreateSavepoint(savepoint)

        tagged = (self._number + self._marks) % 2 == 0  # tags and savepoints in turn
        began, ended, outcome, _ = self._asks(place[0], question)
        self._recorder.add(Operation(self._name("mark"), began, ended, outcome, keeps=(place, version)))

    def _clean(self) -> None:
        self.clean(self._busy_place(), RETAINED)

    def clean(self, place: Place, retained: int) -> None:
        request = t.CleanRequest(table=table_of(place), branch=place[1], retain_versions=retained)
        began, ended, outcome, answer = self._asks(place[0], lambda wire: wire.timeline.Clean(request))
        cleaned = Clean(place, retained)
        if answer is not None:
            cleaned = replace(cleaned, earliest=answer.earliest_version, spared=frozenset(answer.kept_versions))
        self._recorder.add(Operation(self._name("clean"), began, ended, outcome, cleans=cleaned))

    # -- reads -----------------------------------------------------------------------------------------------------

    def _read_one(self, place: Place | None = None) -> tuple[int, list[str]]:
        place = place or self._chance.choice(self._places())
        at = s.SnapshotReference(branch=place[1])
        began, ended, (version, paths) = self._timed(place[0], lambda wire: wire.read(at))
        contents = {place: _once(paths)}
        self._recorder.add(Operation(self._name("read"), began, ended, "ok", {}, {place: version}, contents))
        return version, paths

    def _read_all(self) -> None:
        places = self._places()
        request = s.GetSnapshotsRequest(
            snapshots=[
                s.GetSnapshotRequest(table=table_of(one), at=s.SnapshotReference(branch=one[1])) for one in places
            ]
        )
        began, ended, answer = self._timed(TABLES[0], lambda wire: wire.snapshots.GetSnapshots(request))
        found: Mapping[Place, s.Snapshot] = dict(zip(places, answer.snapshots, strict=True))
        reads = {place: one.version for place, one in found.items()}
        columns = {
            place: frozenset(column.name for column in one.schema.columns) - BASE_COLUMNS
            for place, one in found.items()
        }
        self._recorder.add(Operation(self._name("read all"), began, ended, "ok", {}, reads, columns=columns))
        place = self._chance.choice(places)
        self._look_at(place, reads[place])

    def _compare(self) -> None:
        branched = self._branched()
        if len(branched) < 2:
            return
        left, right = self._chance.sample(branched, 2)
        request = t.CompareVersionsRequest(
            table=table_of(left), left=t.VersionName(name=left[1]), right=t.VersionName(name=right[1])
        )
        began, ended, answer = self._timed(left[0], lambda wire: wire.timeline.CompareVersions(request))
        sides = {left: answer.left, right: answer.right}
        found = {
            place: Alone(one.versions, one.changes.added_files, one.changes.removed_files)
            for place, one in sides.items()
        }
        merges = {left: _dry(answer.left_into_right), right: _dry(answer.right_into_left)}
        compared = Comparison(found, merges)
        reads = {place: one.version for place, one in sides.items()}
        self._recorder.add(Operation(self._name("compare"), began, ended, reads=reads, compares=compared))

    def _look(self) -> None:
        """Reads an older version, which may have ended."""
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
        contents = {place: _once(answer[1])} if answer else {}
        looks = (place, version)
        self._recorder.add(Operation(self._name("look"), began, ended, outcome, contents=contents, looks=looks))


def _once(paths: Sequence[str]) -> frozenset[str]:
    found = frozenset(paths)
    assert len(found) == len(paths), "a file is there twice"
    return found


def _dry(merge: t.CompareVersionsResponse.Merge) -> DryMerge:
    return DryMerge(merge.replayed, merge.fast_forward, merge.refused.code)
