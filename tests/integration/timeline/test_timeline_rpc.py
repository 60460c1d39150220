"""The protocol of instants over a real gRPC server: requested, inflight, staged, committed, or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.process import Service
from lakemark_server.verify import verify
from tests.lakes import Clock, file, profile
from tests.wire import Wire, refused

P, W = t.OVERWRITE_PARTITIONS, t.OVERWRITE_TABLE


@pytest.fixture(autouse=True)
def healthy(service: Service) -> object:
    """Whatever a test did, the store's invariants hold."""
    yield
    assert verify(service.store) == []


# -- the way of an instant ---------------------------------------------------------------------------------------------


def test_the_whole_way(wire: Wire, clock: Clock) -> None:
    table = wire.create()
    opened = wire.open(start=False, owner="etl", metadata={"job": "7"}, heartbeat_timeout_ms=5_000)
    assert (opened.state, opened.read_version, opened.operation) == (t.REQUESTED, 0, t.APPEND)
    assert opened.staging_location == f"{table.location}/{opened.instant}"
    assert [column.name for column in opened.schema.columns] == ["id", "x", "name", "m"]
    assert opened.conflict_policy == table.conflict_policy

    started = wire.start(opened.instant, profile(1))
    assert started.state == t.INFLIGHT
    assert wire.stage(opened.instant, 1, file(opened.instant, "a", 1), file(opened.instant, "b", 1)) == 2
    clock.advance(1_000)
    beating = wire.get(opened.instant)
    assert (beating.staged_files, beating.staged_rows, beating.staged_bytes) == (2, 10, 20)
    assert (beating.owner, dict(beating.metadata), beating.heartbeat_timeout_ms) == ("etl", {"job": "7"}, 5_000)
    assert beating.heartbeat_ms == clock() - 1_000

    done = wire.commit(opened.instant, file(opened.instant, "c", 2), metadata={"rows": "15"})
    assert (done.version, done.instant, done.committed_ms, done.rebased_over) == (1, opened.instant, clock(), 0)
    completed = wire.get(opened.instant)
    assert (completed.state, completed.version, completed.completed_ms) == (t.COMPLETED, 1, clock())
    assert (completed.staged_files, completed.heartbeat_ms) == (3, 0)
    assert wire.paths() == [f"{opened.instant}/m={m}/{g}/a.parquet" for m, g in ((1, "a"), (1, "b"), (2, "c"))]

    (version,) = wire.timeline.ListVersions(t.ListVersionsRequest(table=wire.table)).versions
    assert (version.version, version.instant, version.added_files, version.owner) == (1, opened.instant, 3, "etl")
    assert dict(version.metadata) == {"job": "7", "rows": "15"}
    assert list(version.partitions) == ["m=1", "m=2"]


def test_instants_are_unique_and_increase_within_one_millisecond(wire: Wire) -> None:
    wire.create()
    instants = [wire.open().instant for _ in range(5)]
    assert instants == list(range(instants[0], instants[0] + 5))


def test_an_empty_commit_is_a_version(wire: Wire) -> None:
    wire.create()
    assert wire.commit(wire.open().instant).version == 1
    assert wire.paths() == []


def test_staged_files_are_seen_by_nobody_before_the_commit(wire: Wire) -> None:
    wire.create()
    instant = wire.open().instant
    wire.stage(instant, 1, file(instant, "a", 1))
    assert (wire.snapshot().version, wire.paths()) == (0, [])


# -- states that are refused -------------------------------------------------------------------------------------------


def test_commit_needs_an_inflight_instant(wire: Wire, clock: Clock, service: Service) -> None:
    wire.create()
    requested = wire.open(start=False).instant
    with refused("instant_state", "is REQUESTED", "StartInstant"):
        wire.commit(requested)
    with refused("instant_state", "is REQUESTED"):
        wire.stage(requested, 1, file(requested, "a", 1))
    wire.rollback(requested, "changed my mind")
    with refused("instant_state", "is ROLLED_BACK", "changed my mind") as found:
        wire.commit(requested)
    assert found().detail.details["state"] == "ROLLED_BACK"
    assert found().status.name == "FAILED_PRECONDITION"
    with refused("instant_state", "is ROLLED_BACK"):
        wire.start(requested)
    with refused("instant_not_found", "no instant 77"):
        wire.commit(77)
    with refused("instant_not_found"):
        wire.get(0)
    expired = wire.open(heartbeat_timeout_ms=10).instant
    clock.advance(11)
    with refused("instant_state", "heartbeat", "ran out") as found:
        wire.commit(expired, file(expired, "a", 1))
    assert found().detail.details["state"] == "EXPIRED"
    assert (service.catalog.get_lake_table("", "default", wire.table.table).table_id, expired) in (
        service.timeline.roll_back_expired()
    )
    with refused("instant_state", "is ROLLED_BACK", "heartbeat ran out"):
        wire.commit(expired)
    with refused("instant_state", "is ROLLED_BACK"):
        wire.stage(expired, 1, file(expired, "b", 1))


def test_a_version_cannot_be_rolled_back_or_added_to(wire: Wire) -> None:
    wire.create()
    instant = wire.open().instant
    wire.commit(instant, file(instant, "a", 1))
    with refused("instant_state", "was committed as version 1"):
        wire.rollback(instant)
    with refused("instant_state", "was committed as version 1"):
        wire.stage(instant, 1, file(instant, "b", 1))
    with refused("instant_state", "was committed as version 1"):
        wire.start(instant)


def test_an_instant_of_another_table_is_unknown(wire: Wire, service: Service) -> None:
    wire.create()
    instant = wire.open().instant
    other = Wire(service.grpc_address, wire.table.table + "_other")
    other.create()
    with refused("instant_not_found"):
        other.commit(instant)
    other.close()


# -- asking again ------------------------------------------------------------------------------------------------------


def test_the_same_request_opens_one_instant(wire: Wire) -> None:
    wire.create()
    first = wire.open(request_id=f"{wire.table.table}-r")
    assert wire.open(request_id=f"{wire.table.table}-r") == first
    done = wire.commit(first.instant)
    again = wire.open(request_id=f"{wire.table.table}-r")
    assert (again.instant, again.state, again.version) == (first.instant, t.COMPLETED, done.version)
    assert wire.open(request_id=f"{wire.table.table}-q").instant > first.instant
    with refused("invalid_argument", "already used for OpenInstant"):
        wire.create(request_id=f"{wire.table.table}-r", if_not_exists=True)
    with refused("invalid_argument", "at most 200"):
        wire.open(request_id="r" * 201)


def test_a_commit_asked_for_twice_answers_the_same(wire: Wire) -> None:
    wire.create()
    instant = wire.open().instant
    first = wire.commit(instant, file(instant, "a", 1), request_id="x")
    late = wire.open().instant
    wire.commit(late, file(late, "b", 1))
    assert wire.commit(instant, file(instant, "a", 1), request_id="x") == first
    assert wire.commit(instant) == first
    assert wire.snapshot().version == 2
    assert len(wire.paths()) == 2


def test_starting_twice_is_starting_once(wire: Wire) -> None:
    wire.create()
    instant = wire.open(start=False).instant
    assert wire.start(instant, profile(1)).state == t.INFLIGHT
    assert wire.start(instant, profile(1)).state == t.INFLIGHT


def test_staging_requests_are_numbered(wire: Wire) -> None:
    wire.create()
    instant = wire.open().instant
    for sequence in (0, -1, 1 << 62):
        with refused("invalid_argument", "sequence must be 1"):
            wire.stage(instant, sequence, file(instant, "a", 1))
    with refused("instant_state", "request 2", "came after 0"):
        wire.stage(instant, 2, file(instant, "a", 1))
    assert wire.stage(instant, 1, file(instant, "a", 1)) == 1
    assert wire.stage(instant, 1, file(instant, "a", 1)) == 1
    assert wire.stage(instant, 2, file(instant, "b", 1)) == 2
    assert wire.stage(instant, 1, file(instant, "a", 1)) == 2
    assert wire.stage(instant, 3) == 2
    with refused("instant_state", "request 5"):
        wire.stage(instant, 5, file(instant, "c", 1))
    with refused("invalid_file", "other files"):
        wire.stage(instant, 2, file(instant, "c", 1))
    wire.commit(instant)
    assert len(wire.paths()) == 2


# -- heartbeats and rollback -------------------------------------------------------------------------------------------


def beat(wire: Wire, *instants: int) -> list[int]:
    return list(wire.timeline.Heartbeat(t.HeartbeatRequest(table=wire.table, instants=instants)).lost)


def test_heartbeats_keep_a_writer_alive(wire: Wire, clock: Clock, service: Service) -> None:
    wire.create()
    kept, lost = wire.open(heartbeat_timeout_ms=100).instant, wire.open(heartbeat_timeout_ms=100).instant
    done = wire.open().instant
    wire.commit(done)
    clock.advance(90)
    assert beat(wire, kept, done, 5) == [done, 5]
    clock.advance(90)
    assert beat(wire, lost, kept) == [lost], "a lost writer is not brought back"
    swept = {instant for _, instant in service.timeline.roll_back_expired()}
    assert lost in swept
    assert kept not in swept
    assert wire.get(lost).rolled_back_reason == "its heartbeat ran out (100 ms)"
    wire.commit(kept)
    with refused("limit_exceeded", "at most 1000 instants"):
        beat(wire, *range(1_001))


@pytest.mark.parametrize("timeout", [-1, 24 * 3_600_000 + 1])
def test_heartbeat_timeouts_have_bounds(wire: Wire, timeout: int) -> None:
    wire.create()
    with refused("invalid_argument", "heartbeat_timeout_ms"):
        wire.open(heartbeat_timeout_ms=timeout)


def written(wire: Wire, location: str, instant: int) -> Path:
    """A file that the writer left in its directory."""
    path = Path(location.removeprefix("file:")) / str(instant) / "m=1" / "a" / "a.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PAR1")
    wire.stage(instant, 1, file(instant, "a", 1))
    return path


def test_rollback_deletes_what_was_staged_and_written(wire: Wire) -> None:
    location = wire.create().location
    kept, gone = wire.open().instant, wire.open().instant
    keeps, goes = written(wire, location, kept), written(wire, location, gone)
    rolled_back = wire.rollback(gone, "test")
    assert (rolled_back.state, rolled_back.rolled_back_reason) == (t.ROLLED_BACK, "test")
    assert wire.rollback(gone, "again").rolled_back_reason == "test"
    assert keeps.exists()
    assert not goes.exists()
    assert not goes.parents[2].exists()
    wire.commit(kept)
    assert wire.paths() == [f"{kept}/m=1/a/a.parquet"]


def test_the_files_of_a_lost_writer_are_deleted(wire: Wire, clock: Clock, service: Service) -> None:
    location = wire.create().location
    lost = wire.open(heartbeat_timeout_ms=10).instant
    path = written(wire, location, lost)
    clock.advance(10)
    service.timeline.roll_back_expired()
    assert path.exists()
    clock.advance(1)
    service.timeline.roll_back_expired()
    assert not path.exists()


# -- conflicts ---------------------------------------------------------------------------------------------------------


def test_commits_that_do_not_collide_are_rebased(wire: Wire) -> None:
    wire.create()
    slow = wire.open(P).instant
    for month in (2, 3):
        fast = wire.open().instant
        wire.commit(fast, file(fast, "a", month))
    done = wire.commit(slow, file(slow, "a", 1))
    assert (done.version, done.rebased_over) == (3, 2)


def test_a_refusal_names_everything(wire: Wire) -> None:
    wire.create()
    slow = wire.open(P, owner="slow").instant
    fast = wire.open(P, owner="fast").instant
    wire.commit(fast, file(fast, "a", 1), file(fast, "b", 2))
    words = (f"instant {fast} of fast", "version 1", "OVERWRITE_PARTITIONS", "m=2", "'partition'", "open a new instant")
    with refused("commit_conflict", *words) as found:
        wire.commit(slow, file(slow, "a", 2), file(slow, "b", 3))
    assert found().status.name == "ABORTED"
    assert dict(found().detail.details) == {
        "instant": str(fast),
        "version": "1",
        "operation": "OVERWRITE_PARTITIONS",
        "policy": "partition",
        "rule": "same partition",
        "partitions": "m=2",
        "file_groups": "",
        "columns": "",
        "read_version": "0",
    }
    assert wire.get(slow).state == t.ROLLED_BACK, "it could never succeed"
    with refused("commit_conflict", f"instant {fast} of fast"):
        wire.commit(slow)
    assert wire.snapshot().version == 1


def test_writers_in_flight_collide_early(wire: Wire, clock: Clock) -> None:
    wire.create()
    one = wire.open(P, profile=profile(1), heartbeat_timeout_ms=50).instant
    with refused("commit_conflict", f"instant {one} is in flight", "m=1") as found:
        wire.open(P, profile=profile(1, 2))
    assert found().detail.details["version"] == "0"
    waiting = wire.open(P, start=False).instant
    with refused("commit_conflict", f"instant {one} is in flight"):
        wire.start(waiting, profile(1))
    assert wire.get(waiting).state == t.REQUESTED
    wire.open(P, profile=profile(2))
    wire.open(t.APPEND, profile=profile(3))
    clock.advance(51)
    wire.start(waiting, profile(1))
    with refused("instant_state", "ran out"):
        wire.commit(one)


def test_a_start_that_collides_with_a_commit_is_refused_before_any_file_is_written(wire: Wire) -> None:
    wire.create()
    waiting = wire.open(P, start=False).instant
    fast = wire.open().instant
    wire.commit(fast, file(fast, "a", 1))
    with refused("commit_conflict", "committed version 1"):
        wire.start(waiting, profile(1))
    wire.start(waiting, profile(2))


def test_one_writer_at_a_time(wire: Wire) -> None:
    wire.create("table")
    one = wire.open().instant
    with refused("commit_conflict", "one writer at a time"):
        wire.open()
    wire.commit(one)
    assert wire.commit(wire.open().instant).version == 2


def test_a_read_version_of_the_writers_own(wire: Wire) -> None:
    wire.create()
    for month in (1, 2):
        instant = wire.open().instant
        wire.commit(instant, file(instant, "a", month))
    with refused("commit_conflict", "version 2"):
        wire.open(P, read_version=1, profile=profile(2))
    late = wire.open(P, read_version=1, profile=profile(1))
    assert late.read_version == 1
    assert wire.commit(late.instant).rebased_over == 1
    assert [path.split("/")[1] for path in wire.paths()] == ["m=2"], "what is named is replaced, by nothing too"
    with refused("invalid_argument", "read_version 9"):
        wire.open(read_version=9)
    with refused("invalid_argument", "negative"):
        wire.open(read_version=-1)


@pytest.mark.parametrize(
    ("operation", "work", "code", "word"),
    [
        (t.OPERATION_UNSPECIFIED, None, "invalid_argument", "operation is missing"),
        (t.RESTORE_VERSION, None, "invalid_argument", "Restore does it in one request"),
        (99, None, "invalid_argument", "operation 99 is not known"),
        (P, t.WorkProfile(whole_table=True), "invalid_argument", "OVERWRITE_TABLE"),
        (P, t.WorkProfile(partitions=[t.WorkProfile.Partition()]), "invalid_argument", "0 partition values"),
        (P, t.WorkProfile(partitions=[t.WorkProfile.Partition(values=[p.Value(text="x")])]), "invalid_argument", "int"),
        (P, profile(*range(1_001)), "limit_exceeded", "at most 1000 partitions"),
    ],
)
def test_work_that_makes_no_sense(
    wire: Wire, operation: t.Operation.ValueType, work: t.WorkProfile | None, code: str, word: str
) -> None:
    wire.create()
    with refused(code, word):
        wire.open(operation, profile=work)


def test_overwriting_partitions_of_a_table_without_any(wire: Wire) -> None:
    wire.create(partitions=())
    with refused("invalid_argument", "use OVERWRITE_TABLE"):
        wire.open(P)
    one = wire.open(W).instant
    assert wire.commit(one, file(one, "a", None)).version == 1


# -- lists -------------------------------------------------------------------------------------------------------------


def test_lists_of_instants_and_versions(wire: Wire) -> None:
    wire.create()
    instants = [wire.open().instant for _ in range(5)]
    for instant in instants[:3]:
        wire.commit(instant, file(instant, "a", 1))
    wire.rollback(instants[3])

    def listed(**more: object) -> tuple[list[int], bool]:
        found = wire.timeline.ListInstants(t.ListInstantsRequest(table=wire.table, **more))  # type: ignore[arg-type]
        return [one.instant for one in found.instants], found.more

    assert listed() == (instants, False)
    assert listed(newest_first=True, page_size=2) == (instants[:2:-1], True)
    assert listed(states=[t.COMPLETED], after_instant=instants[0]) == (instants[1:3], False)
    assert listed(states=[t.ROLLED_BACK, t.INFLIGHT]) == (instants[3:], False)
    assert listed(before_instant=instants[1]) == (instants[:1], False)
    page = wire.timeline.ListInstants(t.ListInstantsRequest(table=wire.table, page_size=2))
    assert listed(after_instant=page.last_instant) == (instants[2:], False)

    def versions(**more: object) -> tuple[list[int], bool]:
        found = wire.timeline.ListVersions(t.ListVersionsRequest(table=wire.table, **more))  # type: ignore[arg-type]
        return [one.version for one in found.versions], found.more

    assert versions() == ([1, 2, 3], False)
    assert versions(newest_first=True, page_size=2) == ([3, 2], True)
    assert versions(after_version=1, before_version=3) == ([2], False)
    assert versions(after_version=3) == ([], False)
    assert versions(after_version=8, before_version=2) == ([], False)


# -- one request that commits and begins again -------------------------------------------------------------------------


def following(**more: object) -> t.OpenInstantRequest:
    return t.OpenInstantRequest(operation=t.APPEND, start=True, **more)  # type: ignore[arg-type]


def test_a_commit_opens_the_next_instant(wire: Wire) -> None:
    wire.create()
    instant = wire.open().instant
    for version in range(1, 4):
        done = wire.commit(instant, file(instant, "a", version), next=following(owner="etl"))
        assert (done.version, done.instant, done.next.state) == (version, instant, t.INFLIGHT)
        assert done.next.read_version == version, "it has read its own commit"
        assert (done.next.instant > instant, done.next.owner) == (True, "etl")
        assert [column.name for column in done.next.schema.columns] == ["id", "x", "name", "m"]
        assert done.next.staging_location.endswith(f"/{done.next.instant}")
        instant = done.next.instant
    assert wire.get(instant).state == t.INFLIGHT


def test_asked_again_a_commit_and_its_next_instant_are_the_same(wire: Wire) -> None:
    wire.create()
    instant = wire.open().instant
    first, again = (wire.commit(instant, file(instant, "a"), next=following(request_id="n")) for _ in range(2))
    assert first == again
    large = [file(first.next.instant, f"g{number:0900}", 1) for number in range(64)]  # of those that a thread works on
    first, again = (wire.commit(first.next.instant, *large, next=following(request_id="m")) for _ in range(2))
    assert (first.version, first) == (2, again)


def test_a_commit_stands_whose_next_instant_is_refused(wire: Wire) -> None:
    wire.create(policy="table")
    mine = wire.open(start=False).instant
    wire.start(mine)
    beyond = following(read_version=99)
    done = wire.commit(mine, file(mine, "a"), next=beyond)
    assert (done.version, done.HasField("next")) == (1, False)
    assert (done.next_refused.code, done.next_refused.outcome) == ("invalid_argument", "fatal")
    assert "99" in done.next_refused.message
    again = wire.open().instant
    with refused("invalid_argument", "operation is missing"):
        wire.commit(again, file(again, "a"), next=t.OpenInstantRequest())
    assert wire.get(again).state == t.INFLIGHT, "what is wrong with the request as a whole is found before"


def test_a_refused_commit_opens_nothing(wire: Wire) -> None:
    wire.create(policy="table")
    mine, theirs = wire.open(start=False).instant, wire.open(start=False).instant
    wire.start(mine)
    wire.commit(mine, file(mine, "a"))
    with refused("commit_conflict"):
        wire.start(theirs)
    before = len(wire.timeline.ListInstants(t.ListInstantsRequest(table=wire.table)).instants)
    with refused("instant_state"):
        wire.commit(theirs, file(theirs, "b"), next=following())
    assert len(wire.timeline.ListInstants(t.ListInstantsRequest(table=wire.table)).instants) == before


def test_names_are_looked_up_anew_in_every_batch(wire: Wire, clock: Clock, tmp_path: Path) -> None:
    """The fast path remembers which table a name meant, but only to choose its queue."""
    wire.create()
    lost, name = wire.open().instant, wire.table.table
    wire.catalog.RenameTable(c.RenameTableRequest(name=wire.table, new_name="other"))
    wire.create(location=f"file:{tmp_path}/new")
    clock.advance(1)  # instants are times, which must not be the same here
    with refused("instant_not_found"):
        wire.commit(lost, file(lost, "a"))
    fresh = wire.open().instant
    assert wire.commit(fresh, file(fresh, "b")).version == 1
    wire.table.table = "other"
    assert wire.commit(lost, file(lost, "a")).version == 1
    wire.table.table = name
    assert len(wire.paths()) == 1
