"""Branches, merges and transactions, case by case. Random ones are in tests/contract/test_branches_model.py."""

from __future__ import annotations

import pytest

from lakemark_core.errors import (
    AlreadyExists,
    BranchNotFound,
    CommitConflict,
    FailedPrecondition,
    InvalidArgument,
    InvalidName,
    LimitExceeded,
    NotFound,
    VersionNotFound,
)
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.arrow import texts
from lakemark_server.snapshots.comparisons import VersionName
from lakemark_server.snapshots.service import SnapshotReference
from lakemark_server.timeline.branches import divergence, merges
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.publication import direct
from lakemark_server.timeline.publication.commits import CommitDraft
from lakemark_server.timeline.references import MergeDraft, ReferenceDraft
from lakemark_server.verify import verify
from tests.lakes import Lake, file, files, profile

P = t.OVERWRITE_PARTITIONS


def put(lake: Lake, table: LakeTable, branch: str, *months: int, operation: t.Operation.ValueType = t.APPEND) -> int:
    work = profile(*months) if operation == P else t.WorkProfile()
    job = OpenJob(operation=operation, branch=branch, profile=work)
    instant = lake.timeline.open(table.table_id, job).record.instant
    return lake.commit(table, instant, [file(instant, f"g{month}", month) for month in months]).version


def branch(lake: Lake, table: LakeTable, name: str, **more: str | int) -> c.Reference:
    request = ReferenceDraft(name=name, kind=c.BRANCH, **more)  # type: ignore[arg-type]
    return lake.timeline.references.create(table, request)


def merge(lake: Lake, table: LakeTable, name: str, **more: str | bool) -> tuple[int, int]:
    request = MergeDraft(branch=name, **more)  # type: ignore[arg-type]
    done = lake.timeline.references.merge(table, request)
    return done.version, done.replayed


def months(lake: Lake, name: str = "", **at: str | int) -> list[int]:
    """The partition of each file; names repeat."""
    found = lake.snapshots.snapshot("", "default", "t", SnapshotReference(branch=name, **at))  # type: ignore[arg-type]
    return sorted(int(path.split("/")[1].removeprefix("m=")) for path in texts(found.snapshot.entries().column("path")))


def test_a_branch_merged_twice_brings_each_change_once(lake: Lake) -> None:
    table = lake.table()
    put(lake, table, "", 1)
    branch(lake, table, "dev")
    put(lake, table, "dev", 2)
    put(lake, table, "dev", 3)
    assert merge(lake, table, "dev", fast_forward_only=True) == (2, 2)
    assert months(lake) == [1, 2, 3]
    with pytest.raises(FailedPrecondition, match="nothing that 'main' does not have"):
        merge(lake, table, "dev")
    put(lake, table, "dev", 1, operation=P)
    assert merge(lake, table, "dev", fast_forward_only=True) == (3, 1), "its own merges are no moves of main"
    assert months(lake) == [1, 2, 3]
    put(lake, table, "", 9)
    put(lake, table, "dev", 4)
    with pytest.raises(FailedPrecondition, match="not by fast-forward"):
        merge(lake, table, "dev", fast_forward_only=True)
    assert merge(lake, table, "dev") == (5, 1)
    assert months(lake) == [1, 2, 3, 4, 9]
    assert verify(lake.store) == []


def test_a_merge_that_collides_names_both_sides(lake: Lake) -> None:
    table = lake.table()
    put(lake, table, "", 1)
    branch(lake, table, "dev")
    put(lake, table, "dev", 2)
    put(lake, table, "dev", 1, operation=P)
    put(lake, table, "", 1)
    with pytest.raises(CommitConflict, match=r"version 3 of branch 'dev' .* version 2 .* partition m=1") as refused:
        merge(lake, table, "dev")
    assert refused.value.details["branch"] == "dev"
    assert refused.value.details["branch_version"] == "3"
    assert refused.value.details["version"] == "2"
    assert months(lake) == [1, 1]
    assert months(lake, "dev") == [1, 2]


def test_a_writer_on_main_collides_with_what_a_merge_brought(lake: Lake) -> None:
    table = lake.table()
    put(lake, table, "", 1)
    branch(lake, table, "dev")
    put(lake, table, "dev", 1, operation=P)
    job = OpenJob(operation=P, profile=profile(1))
    late = lake.timeline.open(table.table_id, job).record.instant
    free = lake.open(table, P, profile(7))
    merge(lake, table, "dev")
    with pytest.raises(CommitConflict, match="version 2"):
        lake.commit(table, late, [file(late, "late", 1)])
    assert lake.commit(table, free, [file(free, "free", 7)]).version == 3


def test_a_branch_is_brought_up_to_date_and_merged_back(lake: Lake) -> None:
    table = lake.table()
    put(lake, table, "", 1)
    branch(lake, table, "dev")
    put(lake, table, "dev", 2)
    put(lake, table, "", 3)
    put(lake, table, "", 4)
    assert merge(lake, table, "main", into="dev") == (3, 2)
    assert months(lake, "dev") == [1, 2, 3, 4]
    with pytest.raises(FailedPrecondition, match="nothing that 'dev' does not have"):
        merge(lake, table, "main", into="dev")
    put(lake, table, "", 5)
    assert merge(lake, table, "main", into="dev") == (4, 1), "what was merged before is not replayed again"
    put(lake, table, "dev", 6)
    put(lake, table, "", 7)
    assert merge(lake, table, "dev") == (6, 2), "main's own versions do not come back"
    assert months(lake) == [1, 2, 3, 4, 5, 6, 7]
    assert merge(lake, table, "main", into="dev", fast_forward_only=True) == (6, 1)
    assert months(lake, "dev") == months(lake)
    for name, into in (("dev", "main"), ("main", "dev")):
        with pytest.raises(FailedPrecondition, match="has nothing"):
            merge(lake, table, name, into=into)
    with pytest.raises(InvalidArgument, match="into itself"):
        merge(lake, table, "")
    assert verify(lake.store) == []


def test_between_siblings_and_past_generations(lake: Lake) -> None:
    table = lake.table()
    put(lake, table, "", 1)
    branch(lake, table, "dev")
    branch(lake, table, "etl")
    put(lake, table, "dev", 2)
    branch(lake, table, "fix", from_branch="dev")
    put(lake, table, "fix", 3)
    put(lake, table, "etl", 4)
    assert merge(lake, table, "fix") == (2, 2), "with what it has of dev"
    assert merge(lake, table, "dev", into="etl") == (3, 1)
    assert merge(lake, table, "main", into="etl") == (4, 1), "only that of fix: dev's is there"
    assert months(lake, "etl") == [1, 2, 3, 4]
    with pytest.raises(FailedPrecondition, match="has nothing"):
        merge(lake, table, "dev")
    early = branch(lake, table, "early", from_branch="fix", from_version=1)
    assert early.parent == "main", "it forks from a version that fix only inherits"
    old = branch(lake, table, "old", from_branch="etl", from_version=3)
    assert (old.parent, old.version) == ("etl", 3)
    assert merge(lake, table, "fix", into="old") == (4, 1), "it forked when etl had dev's, and not yet fix's"
    assert verify(lake.store) == []


def test_a_merge_does_not_take_a_version_past_one_that_came_after_it(lake: Lake) -> None:
    """An append may follow an upsert that it has not seen, but an upsert must not follow such an append, and so on."""
    table = lake.table()
    put(lake, table, "", 1)
    branch(lake, table, "dev")
    put(lake, table, "dev", 1)
    put(lake, table, "", 1, operation=t.UPSERT)
    with pytest.raises(CommitConflict, match=r"version 2 of branch 'main' against .* on branch 'dev'\."):
        merge(lake, table, "main", into="dev")
    merge(lake, table, "dev")
    assert merge(lake, table, "main", into="dev") == (3, 1), "dev has nothing of its own: it becomes what main is"
    assert months(lake, "dev") == months(lake) == [1, 1, 1]
    put(lake, table, "", 2, operation=t.UPSERT)
    put(lake, table, "dev", 2)
    merge(lake, table, "dev")
    put(lake, table, "dev", 3)
    with pytest.raises(CommitConflict, match=r"got only after it and 'dev' has already"):
        merge(lake, table, "main", into="dev")
    assert verify(lake.store) == []


def test_an_overwrite_is_not_undone_by_a_compaction_before_it(lake: Lake) -> None:
    table = lake.table()
    old = put_group(lake, table, 1)
    branch(lake, table, "dev")
    put(lake, table, "dev", 1, operation=P)
    compaction = lake.open(table, t.COMPACT)
    lake.timeline.commit(table, CommitDraft(compaction, files(file(compaction, "g1", 1)), [old]))
    merge(lake, table, "dev")
    assert months(lake) == [1]
    with pytest.raises(CommitConflict, match="got only after it"):
        merge(lake, table, "main", into="dev")
    assert months(lake, "dev") == [1]


def put_group(lake: Lake, table: LakeTable, month: int) -> str:
    """The path of a file in a commit of its own."""
    instant = lake.open(table)
    given = file(instant, f"g{month}", month)
    lake.commit(table, instant, [given])
    return given.path


def test_what_is_too_much_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.table()
    put(lake, table, "", 1)
    branch(lake, table, "dev")
    for month in (2, 3, 4):
        put(lake, table, "dev", month, operation=P)
        put(lake, table, "", month + 10)
        merge(lake, table, "main", into="dev")
    monkeypatch.setattr(direct, "RUNS_MAX", 0)
    with pytest.raises(LimitExceeded, match="came in 1 pieces"):
        merge(lake, table, "dev")
    monkeypatch.setattr(merges, "LOOKED_AT_MAX", 3)
    with pytest.raises(LimitExceeded, match="more than 3 versions"):
        merge(lake, table, "dev")
    assert "more than 3" in str(lake.comparer.compare(table, VersionName("dev"), VersionName("")).merges[0].refused)
    monkeypatch.setattr(divergence, "VERSIONS_MAX", 2)
    with pytest.raises(LimitExceeded, match="'dev' has 3 versions that the other side does not have; at most 2"):
        lake.comparer.compare(table, VersionName(""), VersionName("dev"))
    monkeypatch.setattr(divergence, "LOOKED_AT_MAX", 5)
    with pytest.raises(LimitExceeded, match="'dev' has 6 versions behind 1"):
        merge(lake, table, "dev")


def test_a_name_used_again_is_another_branch(lake: Lake) -> None:
    table = lake.table()
    put(lake, table, "", 1)
    branch(lake, table, "dev")
    put(lake, table, "dev", 2)
    merge(lake, table, "dev")
    lake.timeline.references.drop(table, "dev")
    with pytest.raises(BranchNotFound, match=r"no branch 'dev'; it has main"):
        months(lake, "dev")
    branch(lake, table, "dev", from_version=1)
    put(lake, table, "dev", 5)
    assert months(lake, "dev") == [1, 5]
    assert months(lake) == [1, 2], "what was merged stays"
    assert verify(lake.store) == []


def test_a_writer_whose_branch_was_dropped_cannot_commit(lake: Lake) -> None:
    table = lake.table()
    branch(lake, table, "dev")
    job = OpenJob(operation=t.APPEND, branch="dev", profile=t.WorkProfile())
    instant = lake.timeline.open(table.table_id, job).record.instant
    lake.timeline.references.drop(table, "dev")
    branch(lake, table, "dev")
    with pytest.raises(BranchNotFound, match="'dev' was dropped"):
        lake.commit(table, instant, [file(instant, "a", 1)])


@pytest.mark.parametrize(
    "name", ["", "Dev", "v12", "v1..v2", "ro", "bases", "deltas", "a b", "x" * 101, "2026-11-20", "a..b", "head"]
)
def test_names_that_mean_something_else(lake: Lake, name: str) -> None:
    with pytest.raises(InvalidName):
        branch(lake, lake.table(), name)


def test_branches_and_tags_share_their_names(lake: Lake) -> None:
    table = lake.table()
    put(lake, table, "", 1)
    branch(lake, table, "dev")
    for kind in (c.BRANCH, c.TAG):
        with pytest.raises(AlreadyExists, match="branch 'dev'"):
            lake.timeline.references.create(table, ReferenceDraft(name="dev", kind=kind))
    with pytest.raises(AlreadyExists):
        branch(lake, table, "main")
    with pytest.raises(VersionNotFound, match="no version 9"):
        branch(lake, table, "far", from_version=9)
    with pytest.raises(NotFound, match="no tag 'none'"):
        months(lake, tag="none")


def test_who_drops_a_tag_does_not_drop_a_branch(lake: Lake) -> None:
    table = lake.table()
    put(lake, table, "", 1)
    branch(lake, table, "dev")
    lake.timeline.references.create(table, ReferenceDraft(name="kept", kind=c.TAG))
    drop = lake.timeline.references.drop
    with pytest.raises(NotFound, match="'dev' is a branch of the table, not a tag"):
        drop(table, "dev", kind=c.TAG)
    with pytest.raises(NotFound, match="'main' is a branch"):
        drop(table, "main", kind=c.TAG)
    with pytest.raises(BranchNotFound, match="'kept' is a tag of the table, not a branch"):
        drop(table, "kept", kind=c.BRANCH)
    with pytest.raises(NotFound, match="no tag 'none'; it has kept"):
        drop(table, "none", kind=c.TAG)
    with pytest.raises(BranchNotFound, match="no branch 'none'"):
        drop(table, "none", kind=c.BRANCH)
    assert [one.name for one in lake.timeline.references.find(table)] == ["main", "dev", "kept"]
    drop(table, "dev", kind=c.BRANCH)
    drop(table, "kept", kind=c.TAG)
    assert [one.name for one in lake.timeline.references.find(table)] == ["main"]


def test_references_are_dropped_when_their_time_is_over(lake: Lake) -> None:
    table = lake.table()
    put(lake, table, "", 1)
    branch(lake, table, "short", retain_ms=1_000)
    branch(lake, table, "long")
    branch(lake, table, "again", retain_ms=1_000)
    tag = ReferenceDraft(name="brief", kind=c.TAG, retain_ms=1_000)
    lake.timeline.references.create(table, tag)
    lake.timeline.references.drop(table, "again")
    branch(lake, table, "again")
    assert lake.timeline.references.drop_expired() == []
    lake.clock.advance(1_001)
    assert lake.timeline.references.drop_expired() == [(table.table_id, "brief"), (table.table_id, "short")]
    assert lake.timeline.references.drop_expired() == []
    assert [one.name for one in lake.timeline.references.find(table)] == ["main", "again", "long"]


def test_the_order_of_a_transaction_is_that_of_its_commits(lake: Lake) -> None:
    one, two = lake.table("a"), lake.table("b")
    opened = [lake.open(one), lake.open(two), lake.open(one)]
    commits = [
        (table, CommitDraft(instant=instant, added=files(file(instant, "g", 1))))
        for table, instant in zip((one, two, one), opened, strict=True)
    ]
    assert [done.version for done in lake.timeline.commit_together(commits)] == [1, 1, 2]
    with pytest.raises(InvalidArgument, match="each instant once"):
        lake.timeline.commit_together([commits[0], commits[0]])


def test_a_transaction_of_several_tables_is_bounded_in_bytes(lake: Lake) -> None:
    table = lake.table("a")
    metadata = {"why": "x" * 19_000}
    commits = [(table, CommitDraft(instant=lake.open(table), metadata=metadata)) for _ in range(50)]
    with pytest.raises(LimitExceeded, match=r"9\d\d,\d{3} bytes .* at most 900,000"):
        lake.timeline.commit_together(commits)
    assert [done.version for done in lake.timeline.commit_together(commits[:44])] == list(range(1, 45))
