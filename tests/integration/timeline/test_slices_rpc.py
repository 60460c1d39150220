"""Views of file slices, branches and tags in reads, over a real gRPC server."""

from __future__ import annotations

import pytest

from lakemark_proto.v1 import snapshot_pb2 as s
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from tests.lakes import file
from tests.wire import Wire, refused


def slice_file(instant: int, group: str, *, base: int | None = None) -> p.DataFile:
    """A file of month 1. ``base`` makes it a delta on the base file of that instant."""
    one = file(instant, f"{group}-{instant}", 1)
    one.file_group = group
    if base is not None:
        one.kind, one.base_instant = p.DELTA, base
    return one


def pages(wire: Wire, view: s.ListFileSlicesRequest.View.ValueType, page_size: int = 0, **more: object) -> list[str]:
    """``group:instant`` of each file, and the version that removed it."""
    request = s.ListFileSlicesRequest(
        table=wire.table,
        view=view,
        encoding=s.PROTOBUF,
        page_size=page_size,
        **more,  # type: ignore[arg-type]
    )
    found = []
    while True:
        page = wire.snapshots.ListFileSlices(request)
        assert not page_size or page.page_files <= page_size
        for one in page.files.list.files:
            removed = f"-{one.removed_version}" if one.removed_version else ""
            found.append(f"{one.file_group}:{one.path.split('/')[0]}{removed}")
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


@pytest.fixture
def instants(wire: Wire) -> list[int]:
    """Version 1: bases of a, b, c; 2: deltas on a and b; 3: delta on a; 4: compaction of a."""
    wire.create("file_group")
    first = wire.open().instant
    wire.commit(first, *(slice_file(first, group) for group in "cab"))
    second = wire.open(t.UPSERT).instant
    wire.commit(second, *(slice_file(second, group, base=first) for group in "ab"))
    third = wire.open(t.UPSERT).instant
    wire.commit(third, slice_file(third, "a", base=first))
    fourth = wire.open(t.COMPACT).instant
    gone = [slice_file(instant, "a").path for instant in (first, second, third)]
    wire.commit(fourth, slice_file(fourth, "a"), removed=t.RemovedFiles(paths=gone))
    return [first, second, third, fourth]


@pytest.mark.parametrize("page_size", [0, 1, 2])
def test_views(wire: Wire, instants: list[int], page_size: int) -> None:
    v1, v2, v3, v4 = instants
    latest = pages(wire, s.ListFileSlicesRequest.LATEST, page_size)
    assert latest == [f"a:{v4}", f"b:{v1}", f"b:{v2}", f"c:{v1}"]
    before = pages(wire, s.ListFileSlicesRequest.BEFORE_INSTANT, page_size, before_instant=v4)
    assert before == [f"a:{v1}", f"a:{v2}", f"a:{v3}", f"b:{v1}", f"b:{v2}", f"c:{v1}"]
    assert pages(wire, s.ListFileSlicesRequest.BEFORE_INSTANT, page_size, before_instant=v1) == []
    replaced = pages(wire, s.ListFileSlicesRequest.REPLACED, page_size, from_version=1)
    assert replaced == [f"a:{v1}-4", f"a:{v2}-4", f"a:{v3}-4"]
    assert pages(wire, s.ListFileSlicesRequest.REPLACED, page_size, from_version=4) == []
    only = pages(wire, s.ListFileSlicesRequest.LATEST, page_size, file_groups=["b"])
    assert only == [f"b:{v1}", f"b:{v2}"]
    old = pages(wire, s.ListFileSlicesRequest.LATEST, page_size, at=s.SnapshotReference(version=2), file_groups=["a"])
    assert old == [f"a:{v1}", f"a:{v2}"]


def test_pending_compaction(wire: Wire, instants: list[int]) -> None:
    first, second, *_ = instants
    assert pages(wire, s.ListFileSlicesRequest.PENDING_COMPACTION) == []
    partition = t.WorkProfile.Partition(values=[p.Value(integer=1)])
    work = t.WorkProfile(partitions=[partition], file_groups=["b"])
    wire.open(t.COMPACT, profile=work)
    found = pages(wire, s.ListFileSlicesRequest.PENDING_COMPACTION)
    assert found == [f"b:{first}", f"b:{second}"]


def test_what_cannot_be_asked(wire: Wire, instants: list[int]) -> None:
    with refused("invalid_argument", "from version 5"):
        pages(wire, s.ListFileSlicesRequest.REPLACED, from_version=5)
    with refused("invalid_argument", "view 77 is not one of LATEST, BEFORE_INSTANT"):
        wire.snapshots.ListFileSlices(s.ListFileSlicesRequest(table=wire.table, view=77))  # type: ignore[arg-type]
    for instant in (0, -5):
        with refused("invalid_argument", "before_instant is missing"):
            pages(wire, s.ListFileSlicesRequest.BEFORE_INSTANT, before_instant=instant)
    with refused("branch_not_found", "no branch 'nope'"):
        pages(wire, s.ListFileSlicesRequest.LATEST, at=s.SnapshotReference(branch="nope"))
    with refused("not_found", "no tag 'nope'"):
        wire.snapshot(tag="nope")
    with refused("invalid_argument", "name no branch"):
        wire.snapshot(tag="nope", branch="main")
    request = s.ListFileSlicesRequest(table=wire.table, page_size=1)
    request.page_token = wire.snapshots.ListFileSlices(request).next_page_token
    request.file_groups.append("b")
    with refused("invalid_argument", "belongs to another request"):
        wire.snapshots.ListFileSlices(request)
