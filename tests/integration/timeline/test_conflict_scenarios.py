"""Scenarios of concurrent writers (docs/conflicts.md), over a real gRPC server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import snapshot_pb2 as s
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.process import Service
from lakemark_server.verify import verify
from tests.lakes import Clock, file, profile
from tests.wire import Wire, refused

U, D, C, K = t.UPSERT, t.DELETE, t.COMPACT, t.CLUSTER
P, Q, W = t.OVERWRITE_PARTITIONS, t.OVERWRITE_PREDICATE, t.OVERWRITE_TABLE
X, NAME = 2, 3  # column ids of tests.wire.COLUMNS
FINER = ["file_group", "file", "column", "row"]
SHARED = ["partition", *FINER]


@pytest.fixture(scope="module", autouse=True)
def healthy(service: Service) -> object:
    """Whatever the tests did, the store's invariants hold. Each has a table of its own, which a problem names."""
    yield
    assert verify(service.store) == []


def delta(instant: int, group: str, base: int, month: int = 1) -> p.DataFile:
    one = file(instant, f"{group}-delta", month)
    one.file_group, one.kind, one.base_instant = group, p.DELTA, base
    return one


def base(instant: int, group: str, month: int = 1) -> p.DataFile:
    return file(instant, group, month)


def work(
    *groups: str, months: Iterable[int] = (1,), columns: Iterable[int] = (), gone: Iterable[str] = ()
) -> t.WorkProfile:
    told = profile(*months)
    told.file_groups.extend(groups)
    told.columns.extend(columns)
    told.replaced_files.extend(gone)
    return told


def begun(wire: Wire, *groups: str, months: Iterable[int] = (1,)) -> int:
    """The instant that writes the base file of each of these groups."""
    instant = wire.open(U).instant
    wire.commit(instant, *(base(instant, group, month) for group in groups for month in months))
    return instant


def path(instant: int, name: str, month: int = 1) -> str:
    return f"{instant}/m={month}/{name}/a.parquet"


def removing(*paths: str) -> dict[str, t.RemovedFiles]:
    return {"removed": t.RemovedFiles(paths=paths)}


def slices(wire: Wire) -> dict[str, list[int]]:
    """The instants of each file group's files: the base first, then its deltas."""
    found: dict[str, list[int]] = {}
    request = s.ListFileSlicesRequest(table=wire.table, encoding=s.PROTOBUF)
    for one in wire.snapshots.ListFileSlices(request).files.list.files:
        found.setdefault(one.file_group, []).append(int(one.path.split("/")[0]))
    return found


def prefer(wire: Wire, preference: str, policy: str) -> None:
    properties = {"lakemark.conflict.policy": policy, "lakemark.clustering.preference": preference}
    columns = [p.Column(name=name, type=p.Type(primitive=kind)) for name, kind in (("id", "bigint"), ("m", "int"))]
    schema = p.Schema(columns=columns, partition_columns=["m"])
    wire.catalog.CreateTable(c.CreateTableRequest(name=wire.table, schema=schema, properties=properties))


# -- writers and writers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "rule"), [("file_group", "same file group"), ("file", "same file")])
def test_two_writers_to_one_file_group_the_second_is_refused(wire: Wire, policy: str, rule: str) -> None:
    wire.create(policy)
    bases = begun(wire, "g", "h")
    first, second, third = (wire.open(U, owner=owner).instant for owner in ("one", "two", "three"))
    assert wire.commit(first, delta(first, "g", bases)).rebased_over == 0
    with refused("commit_conflict", f"instant {first} of one committed version 2", "file group g", "m=1") as found:
        wire.commit(second, delta(second, "g", bases), delta(second, "h", bases))
    assert dict(found().detail.details) == {
        "instant": str(first),
        "version": "2",
        "operation": "UPSERT",
        "policy": policy,
        "rule": rule,
        "partitions": "m=1",
        "file_groups": "g",
        "columns": "",
        "read_version": "1",
    }
    assert wire.commit(third, delta(third, "h", bases)).rebased_over == 1
    assert slices(wire) == {"g": [bases, first], "h": [bases, third]}


def test_two_writers_to_one_file_group_the_second_is_refused_before_it_writes(wire: Wire) -> None:
    wire.create("file_group")
    first = wire.open(U, profile=work("g")).instant
    with refused("commit_conflict", f"instant {first} is in flight", "file group g") as found:
        wire.open(U, profile=work("g", "h"))
    assert (found().detail.details["version"], found().detail.details["file_groups"]) == ("0", "g")
    wire.open(U, profile=work("h"))
    with refused("commit_conflict", "in partitions not told yet"):
        wire.open(U, profile=work("h", months=()))
    everything = work()
    everything.all_file_groups = True
    with refused("commit_conflict", "is in flight"):
        wire.open(U, profile=everything)


@pytest.mark.parametrize("policy", SHARED)
@pytest.mark.parametrize("operation", [t.APPEND, U, D, P, Q])
def test_five_writers_to_distinct_partitions_all_pass(
    wire: Wire, policy: str, operation: t.Operation.ValueType
) -> None:
    wire.create(policy)
    writers = [wire.open(operation, profile=profile(month)).instant for month in range(5)]
    for month, instant in reversed(list(enumerate(writers))):
        assert wire.commit(instant, base(instant, "g", month)).rebased_over == 4 - month
    assert len(wire.paths()) == 5


def test_two_partial_updates_of_different_columns_both_commit(wire: Wire) -> None:
    wire.create("column")
    bases = begun(wire, "g")
    prices, names = (wire.open(U, profile=work("g", columns=[column])).instant for column in (X, NAME))
    with refused("commit_conflict", f"instant {prices} is in flight", "in column 'x' of file group g") as found:
        wire.open(U, profile=work("g", columns=[X]))
    assert (found().detail.details["columns"], found().detail.details["rule"]) == (
        str(X),
        "same columns of a file group",
    )
    with refused("commit_conflict", "in flight"):
        wire.open(U, profile=work("g"))
    whole_rows = wire.open(D).instant
    wire.commit(prices, delta(prices, "g", bases))
    assert wire.commit(names, delta(names, "g", bases)).rebased_over == 1
    assert slices(wire) == {"g": [bases, prices, names]}
    with refused("commit_conflict", "of file group g"):
        wire.commit(whole_rows, delta(whole_rows, "g", bases))


@pytest.mark.parametrize("policy", FINER)
def test_a_long_delete_and_a_stream_of_appends_both_succeed(wire: Wire, policy: str) -> None:
    wire.create(policy)
    bases = begun(wire, "g")
    long = wire.open(D, profile=t.WorkProfile()).instant  # its predicate may select rows of any partition
    for number in range(5):
        append = wire.open(profile=profile(1)).instant
        wire.commit(append, file(append, f"log{number}", 1))
    assert wire.commit(long, delta(long, "g", bases)).rebased_over == 5
    assert len(wire.paths()) == 7


def test_a_long_delete_and_a_stream_of_upserts_both_succeed_under_row(wire: Wire) -> None:
    wire.create("row")
    bases = begun(wire, "g")
    long = wire.open(D).instant
    stream = []
    for _ in range(3):
        stream.append(wire.open(U, profile=work("g")).instant)
        wire.commit(stream[-1], delta(stream[-1], "g", bases))
    assert wire.commit(long, delta(long, "g", bases)).rebased_over == 3
    assert slices(wire) == {"g": [bases, long, *stream]}


def test_by_partition_a_delete_must_have_read_what_was_appended(wire: Wire) -> None:
    wire.create("partition")
    begun(wire, "g")
    anywhere = wire.open(D).instant
    append = wire.open().instant
    wire.commit(append, file(append, "log", 1))
    with refused("commit_conflict", f"instant {append}", "APPEND", "m=1"):
        wire.commit(anywhere)
    wire.commit(wire.open(D, profile=profile(2), read_version=1).instant)


@pytest.mark.parametrize("policy", ["row", "column", "file_group"])
def test_a_file_group_is_begun_once(wire: Wire, policy: str) -> None:
    """Both add the first rows of a bucket: with two base files a key could exist twice."""
    wire.create(policy)
    one, two, three = (
        wire.open(U, profile=work(months=[], columns=[n] if policy == "column" else [])).instant
        for n in (X, NAME, NAME)
    )
    wire.commit(one, base(one, "bucket-0"))
    with refused("commit_conflict", "began file group bucket-0, as this one does", "m=1") as found:
        wire.commit(two, base(two, "bucket-0"))
    assert found().detail.details["rule"] == "same begun file group"
    if policy != "file_group":
        assert wire.commit(three, delta(three, "bucket-0", 0)).version == 2


@pytest.mark.parametrize("policy", ["row", "column"])
@pytest.mark.parametrize("operation", [U, C])
def test_a_file_group_is_begun_once_also_by_who_replaces_its_deltas(
    wire: Wire, policy: str, operation: t.Operation.ValueType
) -> None:
    """If a bucket has only deltas, a rewrite or a compaction makes its first base file."""
    wire.create(policy)
    slow = wire.open(U, profile=work(months=[], columns=[X])).instant
    laid = wire.open(U, profile=work(months=[], columns=[NAME])).instant
    wire.commit(laid, delta(laid, "bucket-0", 0))
    rewriting = wire.open(operation, profile=work(months=[], columns=[NAME] if operation == U else [])).instant
    wire.commit(rewriting, base(rewriting, "bucket-0"), **removing(path(laid, "bucket-0-delta")))
    with refused("commit_conflict", "began file group bucket-0, as this one does", "m=1"):
        wire.commit(slow, base(slow, "bucket-0"))
    assert slices(wire) == {"bucket-0": [rewriting]}


def test_two_rewrites_of_one_file_exclude_each_other_even_under_row(wire: Wire) -> None:
    location = wire.create("row").location
    bases = begun(wire, "g", "h")
    early = wire.open(U, profile=work(gone=[f"{location}/{path(bases, 'h')}"]))
    with refused("commit_conflict", "replaced files of the same file groups, as this one does") as found:
        wire.open(C, profile=work(gone=[path(bases, "h")]))
    assert found().detail.details["instant"] == str(early.instant)
    one, two = wire.open(U).instant, wire.open(U).instant
    wire.commit(one, base(one, "g"), **removing(path(bases, "g")))
    with refused("commit_conflict", "replaced files of file group g, as this one does", "m=1") as found:
        wire.commit(two, base(two, "g"), **removing(path(bases, "g")))
    assert found().detail.details["rule"] == "same removed file"
    assert slices(wire) == {"g": [one], "h": [bases]}


# -- overwrites --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", SHARED)
@pytest.mark.parametrize("operation", [t.APPEND, U, D, C, K])
def test_an_overwrite_completed_meanwhile_aborts_who_works_on_its_partition(
    wire: Wire, policy: str, operation: t.Operation.ValueType
) -> None:
    wire.create(policy)
    bases = begun(wire, "g", months=[1, 2])
    here, there = (wire.open(operation, profile=profile(month)).instant for month in (1, 2))
    overwrite = wire.open(P).instant  # has not told where
    wire.commit(overwrite, base(overwrite, "g", 1))

    def finish(instant: int, month: int) -> None:
        if operation == t.APPEND:
            wire.commit(instant, file(instant, "log", month))
        elif operation in (U, D):
            wire.commit(instant, delta(instant, "g", bases, month))
        else:
            wire.commit(instant, base(instant, "new", month), **removing(path(bases, "g", month)))

    with refused("commit_conflict", f"instant {overwrite} committed version 2 (OVERWRITE_PARTITIONS)", "m=1"):
        finish(here, 1)
    finish(there, 2)


@pytest.mark.parametrize("operation", [P, W])
@pytest.mark.parametrize("service_operation", [C, K])
def test_a_service_before_an_overwrite_does_no_harm(
    wire: Wire, operation: t.Operation.ValueType, service_operation: t.Operation.ValueType
) -> None:
    """The overwrite removes whatever is there when it is published."""
    wire.create()
    bases = begun(wire, "g")
    moved = wire.open(service_operation).instant
    overwrite = wire.open(operation, profile=profile(1)).instant
    wire.commit(moved, base(moved, "new"), **removing(path(bases, "g")))
    wire.commit(overwrite, base(overwrite, "h"))
    assert slices(wire) == {"h": [overwrite]}


# -- table services ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["table", *SHARED])
def test_a_compaction_scheduled_while_a_writer_is_in_flight_leaves_its_deltas_on_top(wire: Wire, policy: str) -> None:
    wire.create(policy)
    bases = begun(wire, "g")
    before = wire.open(U).instant
    wire.commit(before, delta(before, "g", bases))
    writer = wire.open(U, profile=work("g")).instant
    compaction = wire.open(C, profile=work("g", gone=[path(bases, "g"), path(before, "g-delta")])).instant
    wire.commit(writer, delta(writer, "g", bases))
    done = wire.commit(compaction, base(compaction, "g"), **removing(path(bases, "g"), path(before, "g-delta")))
    assert done.rebased_over == 1
    assert slices(wire) == {"g": [compaction, writer]}
    if policy == "row":
        late = wire.open(U, read_version=2).instant  # has read what the compaction replaced
        wire.commit(late, delta(late, "g", bases))
        assert slices(wire) == {"g": [compaction, writer, late]}


def test_a_delta_on_the_old_base_file_and_one_on_the_new_are_on_one_file(wire: Wire) -> None:
    """Under ``file``, two writers of the same rows name two different files if a compaction came in between."""
    wire.create("file")
    bases = begun(wire, "g")
    old, older = wire.open(U).instant, wire.open(U).instant
    compaction = wire.open(C).instant
    wire.commit(compaction, base(compaction, "g"), **removing(path(bases, "g")))
    new = wire.open(U).instant
    wire.commit(old, delta(old, "g", bases))
    for instant, under in ((new, compaction), (older, bases)):
        with refused("commit_conflict", f"instant {old} committed version 3", "same data files of file group g"):
            wire.commit(instant, delta(instant, "g", under))
    assert slices(wire) == {"g": [compaction, old]}


def branch(wire: Wire, name: str) -> None:
    wire.catalog.CreateReference(c.CreateReferenceRequest(table=wire.table, name=name, kind=c.BRANCH))


def merge(wire: Wire, name: str) -> c.MergeBranchResponse:
    return wire.catalog.MergeBranch(c.MergeBranchRequest(table=wire.table, branch=name))


def test_a_merge_compares_groups_as_each_side_may_have_compacted(wire: Wire) -> None:
    wire.create("file")
    bases = begun(wire, "g")
    branch(wire, "b")
    compaction = wire.open(C, branch="b").instant
    wire.commit(compaction, base(compaction, "g"), **removing(path(bases, "g")))
    there, here = wire.open(U, branch="b").instant, wire.open(U).instant
    wire.commit(there, delta(there, "g", compaction))
    wire.commit(here, delta(here, "g", bases))
    with refused("commit_conflict", f"instant {here} committed version 2", "same data files"):
        merge(wire, "b")


def test_a_merge_stands_for_what_it_replays_against_later_commits(wire: Wire) -> None:
    wire.create("file")
    bases = begun(wire, "g", "h")
    branch(wire, "b")
    there = wire.open(U, branch="b").instant
    wire.commit(there, delta(there, "g", bases))
    compaction = wire.open(C).instant
    wire.commit(compaction, base(compaction, "g"), **removing(path(bases, "g")))
    late, other = wire.open(U).instant, wire.open(U).instant
    assert merge(wire, "b").version == 3
    assert slices(wire) == {"g": [compaction, there], "h": [bases]}
    with refused("commit_conflict", "committed version 3 (UPSERT)", "same data files"):
        wire.commit(late, delta(late, "g", compaction))
    wire.commit(other, delta(other, "h", bases))


def test_after_a_restore_deltas_lie_in_the_order_in_which_they_were_read(wire: Wire) -> None:
    wire.create("row")
    bases = begun(wire, "g")
    first = wire.open(U).instant
    wire.commit(first, delta(first, "g", bases))
    compaction, second = wire.open(C).instant, wire.open(U).instant
    wire.commit(second, delta(second, "g", bases))
    wire.commit(compaction, base(compaction, "g"), **removing(path(bases, "g"), path(first, "g-delta")))
    wire.timeline.Restore(t.RestoreRequest(table=wire.table, version=3))
    assert slices(wire) == {"g": [bases, first, second]}


@pytest.mark.parametrize("policy", SHARED)
def test_a_clustering_gives_way_to_a_writer_in_flight(wire: Wire, policy: str) -> None:
    prefer(wire, "writer", policy)
    bases = begun(wire, "g", "h")
    clustering = wire.open(K, profile=work("g")).instant
    writer = wire.open(U, profile=work("g")).instant
    with refused("commit_conflict", f"instant {writer} is in flight (UPSERT)", "file group g"):
        wire.commit(clustering, base(clustering, "new"), **removing(path(bases, "g")))
    with refused("commit_conflict", f"instant {writer} is in flight (UPSERT)"):
        wire.open(K, profile=work("g", "h"))
    other = wire.open(K, profile=work("h")).instant
    wire.commit(writer, delta(writer, "g", bases))
    wire.commit(other, base(other, "new"), **removing(path(bases, "h")))
    assert slices(wire) == {"g": [bases, writer], "new": [other]}


@pytest.mark.parametrize("policy", SHARED)
def test_a_writer_gives_way_to_a_clustering_where_the_table_says_so(wire: Wire, policy: str) -> None:
    prefer(wire, "clustering", policy)
    bases = begun(wire, "g", "h")
    writer = wire.open(U).instant  # has not told what it changes
    clustering = wire.open(K, profile=work("g")).instant
    with refused("commit_conflict", f"instant {clustering} is in flight (CLUSTER)", "file group g"):
        wire.open(U, profile=work("g"))
    with refused("commit_conflict", f"instant {clustering} is in flight (CLUSTER)", "file group g"):
        wire.commit(writer, delta(writer, "g", bases))
    append = wire.open().instant
    wire.commit(append, file(append, "log", 1))
    wire.commit(clustering, base(clustering, "new"), **removing(path(bases, "g")))
    assert slices(wire) == {"h": [bases], "log": [append], "new": [clustering]}


def test_a_write_during_a_bucket_change_is_refused(wire: Wire) -> None:
    """A split is a clustering of the bucket's group into two. A writer that has not seen it writes to the removed
    group."""
    wire.create("row")
    bases = begun(wire, "bucket-0", "bucket-1")
    laid, inserted, other = (wire.open(U).instant for _ in range(3))
    split = wire.open(K).instant
    wire.commit(split, base(split, "bucket-00"), base(split, "bucket-10"), **removing(path(bases, "bucket-0")))
    for instant, given in ((laid, delta(laid, "bucket-0", bases)), (inserted, base(inserted, "bucket-0"))):
        with refused("commit_conflict", f"instant {split} committed version 2 (CLUSTER)", "file group bucket-0"):
            wire.commit(instant, given)
    wire.commit(other, delta(other, "bucket-1", bases))
    again = wire.open(U).instant
    wire.commit(again, delta(again, "bucket-10", split))


def test_a_clean_beside_an_update(wire: Wire) -> None:
    """It deletes only files that no remaining version has: neither what the update read, nor what it adds."""
    wire.create("table")
    first = begun(wire, "g")
    rewrite = wire.open(U).instant
    wire.commit(rewrite, base(rewrite, "g"), **removing(path(first, "g")))
    update = wire.open(U).instant
    cleaned = wire.timeline.Clean(t.CleanRequest(table=wire.table, retain_versions=1))
    assert cleaned.files == 1
    assert wire.commit(update, delta(update, "g", rewrite)).rebased_over == 0
    assert wire.timeline.Clean(t.CleanRequest(table=wire.table, retain_versions=1)).files == 0
    assert slices(wire) == {"g": [rewrite, update]}


def test_what_was_cleaned_is_no_read_version(wire: Wire) -> None:
    """Also for the instant that a commit opens. A version that a tag keeps can still be one."""
    wire.create("table")
    for _ in range(3):
        begun(wire, "g")
        wire.commit(wire.open(t.OVERWRITE_TABLE).instant)
    tag = c.CreateReferenceRequest(table=wire.table, name="kept", kind=c.TAG, from_version=1)
    wire.catalog.CreateReference(tag)
    wire.timeline.Clean(t.CleanRequest(table=wire.table, retain_versions=2))
    with refused("version_not_found", "version 2", "was cleaned; the earliest that can be read is 5"):
        wire.open(U, read_version=2)
    following = wire.open(t.APPEND).instant
    wanted = t.OpenInstantRequest(table=wire.table, operation=U, read_version=2)
    answer = wire.timeline.Commit(t.CommitRequest(table=wire.table, instant=following, next=wanted))
    assert answer.version == 7
    assert answer.next_refused.code == "version_not_found"
    for version in (1, 5, 7):
        assert wire.open(t.APPEND, start=False, read_version=version).read_version == version


def test_a_schema_change_while_a_writer_writes_the_old_schema(wire: Wire) -> None:
    wire.create("table")
    writer = wire.open(U).instant
    added = c.SchemaChange.AddColumn(column=p.Column(name="y", type=p.Type(primitive="int")))
    wire.catalog.AlterSchema(c.AlterSchemaRequest(name=wire.table, changes=[c.SchemaChange(add=added)]))
    done = wire.commit(writer, base(writer, "g"))
    assert (done.version, done.rebased_over) == (2, 1)
    assert [column.name for column in wire.snapshot().schema.columns] == ["id", "x", "name", "y", "m"]
    assert wire.paths() == [path(writer, "g")]


# -- lost writers, lost answers ----------------------------------------------------------------------------------------


def test_a_writer_whose_heartbeat_ran_out_blocks_nobody_and_cannot_commit(wire: Wire, clock: Clock) -> None:
    prefer(wire, "writer", "file_group")
    bases = begun(wire, "g")
    lost = wire.open(U, profile=work("g"), heartbeat_timeout_ms=50).instant
    clustering = wire.open(K, profile=t.WorkProfile()).instant
    with refused("commit_conflict", f"instant {lost} is in flight"):
        wire.open(U, profile=work("g"))
    clock.advance(51)
    other = wire.open(U, profile=work("g"), heartbeat_timeout_ms=50).instant
    clock.advance(51)
    wire.commit(clustering, base(clustering, "new"), **removing(path(bases, "g")))
    for instant in (lost, other):
        with refused("instant_state", "ran out"):
            wire.commit(instant, delta(instant, "g", bases))
    assert slices(wire) == {"new": [clustering]}


def test_a_refusal_says_how_long_a_writer_can_be_in_the_way_and_how_to_end_it(wire: Wire, clock: Clock) -> None:
    prefer(wire, "writer", "file_group")
    bases = begun(wire, "g")
    writer = wire.open(U, profile=work("g"), heartbeat_timeout_ms=90_000).instant
    clustering = wire.open(K, profile=t.WorkProfile()).instant
    clock.advance(30_500)
    table = f"default.{wire.table.table}"
    rollback = f"lakemark timeline rollback {table} {writer}, or client.timeline.rollback('{table}', {writer})"
    for refusal in (
        lambda: wire.open(U, profile=work("g")),
        lambda: wire.commit(clustering, base(clustering, "new"), **removing(path(bases, "g"))),
    ):
        with refused("commit_conflict", "for 60 s from now", "heartbeat may pause 90 s", rollback) as found:
            refusal()
        assert found().detail.details["heartbeat_left_ms"] == "59500"
    wire.rollback(writer)
    other = wire.open(U, profile=work("g")).instant
    wire.commit(other, delta(other, "g", bases))
    late = wire.open(U, start=False, read_version=1)
    with refused("commit_conflict", f"instant {other} committed version") as found:
        wire.start(late.instant, work("g"))
    assert "heartbeat_left_ms" not in found().detail.details


def test_a_writer_that_has_only_asked_for_an_instant_blocks_nobody(wire: Wire) -> None:
    wire.create("table")
    waiting = wire.open(U, start=False).instant
    writer = wire.open(W).instant
    with refused("commit_conflict", f"instant {writer} is in flight"):
        wire.start(waiting)
    wire.commit(writer)
    with refused("commit_conflict", f"instant {writer} committed version 1"):
        wire.start(waiting)
    assert wire.get(waiting).state == t.REQUESTED


def test_a_lost_acknowledgement_is_asked_for_again(wire: Wire) -> None:
    """Of a commit and of a refusal, also if others have committed meanwhile."""
    wire.create("file_group")
    bases = begun(wire, "g")
    request: dict[str, Any] = {"request_id": f"{wire.table.table}-open", "profile": work("g")}
    instant = wire.open(U, **request).instant
    assert wire.open(U, **request).instant == instant
    loser = wire.open(U).instant
    first = wire.commit(instant, delta(instant, "g", bases), request_id="commit")
    with refused("commit_conflict", f"instant {instant}") as refusal:
        wire.commit(loser, delta(loser, "g", bases))
    later = wire.open(U).instant
    wire.commit(later, delta(later, "g", bases))
    assert wire.commit(instant, delta(instant, "g", bases), request_id="commit") == first
    with refused("commit_conflict", f"instant {instant}") as again:
        wire.commit(loser, delta(loser, "g", bases))
    assert again().detail == refusal().detail
    assert slices(wire) == {"g": [bases, instant, later]}


# -- what makes no sense -----------------------------------------------------------------------------------------------


def test_operations_that_take_no_deltas_or_remove_no_files(wire: Wire) -> None:
    wire.create()
    bases = begun(wire, "g")
    for operation in (t.APPEND, P, W, C, K):
        instant = wire.open(operation, profile=profile(1)).instant
        with refused("invalid_file", t.Operation.Name(operation), "no deltas"):
            wire.commit(instant, delta(instant, "g", bases))
        with refused("invalid_file", "no deltas"):
            wire.stage(instant, 1, delta(instant, "g", bases))
        wire.rollback(instant)
    for operation in (t.APPEND, P, W):
        instant = wire.open(operation, profile=profile(1)).instant
        with refused("invalid_file", t.Operation.Name(operation), "removes no files by name"):
            wire.commit(instant, **removing(path(bases, "g")))
        with refused("invalid_file", "removes no files by name"):
            wire.stage(instant, 1, **removing(path(bases, "g")))
        wire.rollback(instant)
    assert slices(wire) == {"g": [bases]}


def test_who_has_read_rows_lays_deltas_and_excludes_upserts_that_pass_by_each_other(wire: Wire) -> None:
    wire.create("row")
    bases = begun(wire, "g")
    upserts = [wire.open(U, profile=profile(1)).instant for _ in range(2)]
    update = wire.open(Q, profile=profile(1)).instant
    wire.commit(upserts[0], delta(upserts[0], "g", bases))
    with refused("commit_conflict", f"instant {upserts[0]}"):
        wire.commit(update, delta(update, "g", bases))
    wire.commit(upserts[1], delta(upserts[1], "g", bases))
    update, late = wire.open(Q, profile=profile(1)).instant, wire.open(U, profile=profile(1)).instant
    wire.commit(update, delta(update, "g", bases))
    with refused("commit_conflict", f"instant {update}"):
        wire.commit(late, delta(late, "g", bases))
    assert slices(wire) == {"g": [bases, *upserts, update]}


def test_removed_files_must_be_those_that_the_writer_has_read(wire: Wire) -> None:
    wire.create("row")
    bases = begun(wire, "g", "h")
    early = wire.open(U).instant
    rewrite = wire.open(U).instant
    wire.commit(rewrite, base(rewrite, "g"), **removing(path(bases, "g")))
    with refused("invalid_file", "not in version 1"):
        wire.commit(early, **removing(path(rewrite, "g")))
    for wrong, words in (([path(bases, "g")], "not in version 2"), ([path(bases, "h")] * 2, "named twice")):
        instant = wire.open(U).instant
        with refused("invalid_file", words):
            wire.commit(instant, **removing(*wrong))
        with refused("invalid_file", words):
            wire.stage(instant, 1, **removing(*wrong))
    instant = wire.open(U).instant
    wire.stage(instant, 1, **removing(path(bases, "h")))
    with refused("invalid_file", "added or removed once"):
        wire.stage(instant, 2, **removing(path(bases, "h")))
    assert wire.commit(instant).version == 3
    assert slices(wire) == {"g": [rewrite]}


@pytest.mark.parametrize(
    ("operation", "word"),
    [
        (t.RESTORE_VERSION, "Restore"),
        (t.CLEAN_FILES, "Clean"),
        (t.ALTER_SCHEMA, "AlterSchema"),
        (t.ALTER_BUCKETS, "AlterBuckets"),
        (t.MERGE_BRANCH, "MergeBranch"),
    ],
)
def test_operations_of_one_request_open_no_instant(wire: Wire, operation: t.Operation.ValueType, word: str) -> None:
    wire.create()
    with refused("invalid_argument", f"{word} does it in one request"):
        wire.open(operation)


def test_columns_are_those_of_an_upsert(wire: Wire) -> None:
    wire.create("column")
    for operation in (t.APPEND, D, Q, C):
        with refused("invalid_argument", "columns are named by an UPSERT", t.Operation.Name(operation)):
            wire.open(operation, profile=work(columns=[X]))


def test_columns_that_there_never_were_would_collide_with_nothing(wire: Wire) -> None:
    wire.create()
    for column in (99, -1):
        with refused("invalid_argument", f"has no column id {column}"):
            wire.open(U, profile=work("g", columns=[column]))


def test_fields_within_columns_are_not_told_apart(wire: Wire) -> None:
    inner = p.Column(name="lat", type=p.Type(primitive="double"))
    place = p.Column(name="place", type=p.Type(struct=p.StructType(fields=[inner])))
    schema = p.Schema(columns=[p.Column(name="id", type=p.Type(primitive="bigint")), place])
    properties = {"lakemark.conflict.policy": "column"}
    made = wire.catalog.CreateTable(c.CreateTableRequest(name=wire.table, schema=schema, properties=properties))
    column = made.schema.columns[1]
    with refused("invalid_argument", "'lat' within a column"):
        wire.open(U, profile=t.WorkProfile(columns=[column.type.struct.fields[0].id]))
    wire.open(U, profile=t.WorkProfile(columns=[column.id]))


@pytest.mark.parametrize(("name", "value"), [("policy", "rows"), ("preference", "reader")])
def test_values_that_are_no_policy_or_preference(wire: Wire, name: str, value: str) -> None:
    given = {"policy": "row", "preference": "writer"} | {name: value}
    with refused("invalid_argument", repr(value)):
        prefer(wire, **given)
