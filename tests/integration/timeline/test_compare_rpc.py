"""Comparisons of branches, tags and versions, over a real gRPC server and through the client."""

from __future__ import annotations

from typing import Any

import pytest

import lakemark
from lakemark.client.comparison import FileChanges
from lakemark.errors import BranchNotFound, InvalidArgument, VersionNotFound
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.file_index.cache import ByteLru
from lakemark_server.process import Service
from lakemark_server.snapshots import comparisons
from tests.lakes import file, profile
from tests.wire import Wire, refused

NONE = t.FileChanges()


def put(wire: Wire, branch: str, *months: int, operation: t.Operation.ValueType = t.APPEND, name: str = "g") -> None:
    work = profile(*months) if operation == t.OVERWRITE_PARTITIONS else None
    instant = wire.open(operation, branch=branch, profile=work).instant
    wire.commit(instant, *(file(instant, f"{name}{month}", month, rows=month, size=10 * month) for month in months))


def reference(wire: Wire, name: str, kind: c.ReferenceKind.ValueType = c.BRANCH, **more: str | int) -> None:
    wire.catalog.CreateReference(c.CreateReferenceRequest(table=wire.table, name=name, kind=kind, **more))  # type: ignore[arg-type]


def compare(wire: Wire, left: str, right: str, **more: str | int) -> t.CompareVersionsResponse:
    request = t.CompareVersionsRequest(
        table=wire.table,
        left=t.VersionName(name=left),
        right=t.VersionName(name=right),
        **more,  # type: ignore[arg-type]
    )
    return wire.timeline.CompareVersions(request)


@pytest.fixture
def forked(wire: Wire) -> Wire:
    """main has months 1 and 2, then overwrites 2. dev adds 3 and 4, then overwrites 1."""
    wire.create()
    put(wire, "", 1, 2)
    reference(wire, "dev")
    put(wire, "dev", 3, 4)
    put(wire, "dev", 1, operation=t.OVERWRITE_PARTITIONS, name="n")
    put(wire, "", 2, operation=t.OVERWRITE_PARTITIONS, name="n")
    return wire


def test_each_side_since_the_fork(forked: Wire) -> None:
    found = compare(forked, "dev", "")
    assert (found.left.branch, found.left.version, found.left.shared_version, found.left.versions) == ("dev", 3, 1, 2)
    assert (found.right.branch, found.right.version, found.right.shared_version, found.right.versions) == (
        "main",
        2,
        1,
        1,
    )
    assert found.left.changes == t.FileChanges(
        added_files=3, added_rows=8, added_bytes=80, removed_files=1, removed_rows=1, removed_bytes=10
    )
    assert found.right.changes == t.FileChanges(
        added_files=1, added_rows=2, added_bytes=20, removed_files=1, removed_rows=2, removed_bytes=20
    )
    assert [one.name for one in found.partitions] == ["m=1", "m=2", "m=3", "m=4"]
    assert (found.partitions[0].right, found.partitions[1].left) == (NONE, NONE)
    assert found.left_into_right.replayed == 2
    assert not found.left_into_right.fast_forward
    assert found.right_into_left.replayed == 1
    assert not found.groups_on_both


def test_what_would_collide_is_what_the_merge_says(forked: Wire) -> None:
    put(forked, "", 1, operation=t.OVERWRITE_PARTITIONS, name="m")
    found = compare(forked, "dev", "main")
    assert found.groups_on_both == 1, "both took out the file of the first version"
    assert [(one.partition, one.file_group) for one in found.groups] == [("m=1", "g1")]
    assert [one.groups_on_both for one in found.partitions] == [1, 0, 0, 0]
    for name, into, dry in (("dev", "main", found.left_into_right), ("main", "dev", found.right_into_left)):
        merge = c.MergeBranchRequest(table=forked.table, branch=name, into=into)
        with refused("commit_conflict", "partition m=1") as error:
            forked.catalog.MergeBranch(merge)
        assert dry.refused == error().detail
        assert dry.replayed == 0


def test_after_merges_only_what_the_other_side_does_not_have(forked: Wire) -> None:
    forked.catalog.MergeBranch(c.MergeBranchRequest(table=forked.table, branch="main", into="dev"))
    found = compare(forked, "dev", "main")
    assert (found.left.versions, found.right.versions, found.left.changes.added_files) == (2, 0, 3)
    assert found.left_into_right.fast_forward
    assert (found.right_into_left.replayed, found.right_into_left.refused.message) == (0, "")
    put(forked, "dev", 2, operation=t.OVERWRITE_PARTITIONS, name="o")
    changes = {one.name: one for one in compare(forked, "dev", "main").partitions}
    assert changes["m=2"].left == t.FileChanges(
        added_files=1, added_rows=2, added_bytes=20, removed_files=1, removed_rows=2, removed_bytes=20
    ), "what it replaced came with the merge, and main has it"
    forked.catalog.MergeBranch(c.MergeBranchRequest(table=forked.table, branch="dev"))
    same = compare(forked, "dev", "main")
    assert not same.partitions
    assert (same.left.versions, same.right.versions) == (0, 0)


def test_versions_and_tags(forked: Wire, service: Service) -> None:
    reference(forked, "first", c.TAG, from_version=1)
    with lakemark.connect(service.grpc_address) as client:
        name = f"default.{forked.table.table}"
        found = client.branches.compare(name, "first", "dev@v2")
        assert (found.left.versions, found.right.versions) == (0, 1)
        assert found.right.changes == FileChanges(2, 7, 70, 0, 0, 0)
        assert found.right_into_left.fast_forward
        assert client.branches.compare(name, "v2", "main").partitions == ()
        assert [one.name for one in client.branches.compare(name, "", "dev", limit=2).partitions] == ["m=1", "m=2"]
        assert client.branches.compare(name, "", "dev", limit=0).partitions_changed == 4
        with pytest.raises(InvalidArgument, match="is a tag"):
            client.branches.compare(name, "first@v1", "dev")
        with pytest.raises(VersionNotFound, match="no version 9"):
            client.branches.compare(name, "dev@v9", "main")
        with pytest.raises(BranchNotFound, match="no branch 'none'"):
            client.branches.compare(name, "none", "main")


def test_pages_are_pinned_while_commits_go_on(forked: Wire) -> None:
    first = compare(forked, "dev", "main", page_size=3)
    assert [one.name for one in first.partitions] == ["m=1", "m=2", "m=3"]
    put(forked, "dev", 7, 8)
    second = compare(forked, "dev", "main", page_size=3, page_token=first.next_page_token)
    assert [one.name for one in second.partitions] == ["m=4"]
    assert (second.left.version, second.partitions_changed, second.next_page_token) == (3, 4, "")
    for token, other in ((first.next_page_token, "dev"), ("x", "main"), ("MS4yLi0zLmE=", "main")):
        with refused("invalid_argument", "page token"):
            compare(forked, "dev", other, page_token=token)


def pages(wire: Wire, size: int) -> list[t.CompareVersionsResponse]:
    """All pages of a comparison of dev and main. Months from 21 on are committed to dev in between."""
    found = [compare(wire, "dev", "main", page_size=size)]
    while found[-1].next_page_token:
        put(wire, "dev", 20 + len(found))
        found.append(compare(wire, "dev", "main", page_size=size, page_token=found[-1].next_page_token))
    return found


def test_pages_have_all_once_and_only_the_first_compares(forked: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()

    def count(name: str) -> None:
        real = getattr(comparisons, name)

        def counted(*given: Any) -> Any:
            made.append(name)
            return real(*given)

        monkeypatch.setattr(comparisons, name, counted)

    for name in ("diverged", "check_merge", "file_differences"):
        count(name)
    put(forked, "dev", *range(5, 21))
    whole = compare(forked, "dev", "main")
    assert len(whole.partitions) == whole.partitions_changed == 20
    made.clear()
    put(forked, "main", 1)
    several = pages(forked, 3)
    assert made == ["diverged", "check_merge", "check_merge", "file_differences"]
    assert [len(one.partitions) for one in several] == [3, 3, 3, 3, 3, 3, 2]
    assert [one.name for page in several for one in page.partitions] == [one.name for one in whole.partitions]
    for page in several[1:]:
        assert (page.left, page.right) == (several[0].left, several[0].right)
        assert (page.left_into_right, page.right_into_left) == (several[0].left_into_right, several[0].right_into_left)


def test_pages_of_a_service_that_has_kept_nothing(forked: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    put(forked, "dev", *range(5, 21))
    whole = compare(forked, "dev", "main")
    monkeypatch.setattr(ByteLru, "get", lambda self, key: None)
    assert [one for page in pages(forked, 3) for one in page.partitions] == list(whole.partitions)
