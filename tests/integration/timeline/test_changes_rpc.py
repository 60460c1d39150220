"""Incremental reads over a real gRPC server and through the client."""

from __future__ import annotations

import pytest

import lakemark
from lakemark.errors import InvalidArgument, VersionNotFound
from lakemark_proto.v1 import snapshot_pb2 as s
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.process import Service
from tests.lakes import file
from tests.wire import Wire, refused


@pytest.fixture
def filled(wire: Wire) -> Wire:
    """Version 1: months 1 and 2; version 2: month 3; version 3 replaces month 1."""
    wire.create()
    commits = [(t.APPEND, (1, 2)), (t.APPEND, (3,)), (t.OVERWRITE_PARTITIONS, (1,))]
    for number, (operation, months) in enumerate(commits, 1):
        instant = wire.open(operation).instant
        wire.commit(instant, *(file(instant, f"v{number}", month) for month in months))
    return wire


def _pages(wire: Wire, page_size: int = 0, **versions: int) -> tuple[list[str], list[str]]:
    added: list[str] = []
    removed: list[str] = []
    request = s.ListChangesRequest(table=wire.table, page_size=page_size, encoding=s.PROTOBUF, **versions)
    while True:
        page = wire.snapshots.ListChanges(request)
        for found, files in ((added, page.added), (removed, page.removed)):
            assert not page_size or len(files.list.files) <= page_size
            found += ["/".join(one.path.split("/")[1:3]) for one in files.list.files]
        if not page.next_page_token:
            return sorted(added), sorted(removed)
        request.page_token = page.next_page_token


@pytest.mark.parametrize("page_size", [0, 1, 2])
def test_what_came_and_went(filled: Wire, page_size: int) -> None:
    assert _pages(filled, page_size, from_version=0, to_version=1) == (["m=1/v1", "m=2/v1"], [])
    assert _pages(filled, page_size, from_version=1, to_version=2) == (["m=3/v2"], [])
    assert _pages(filled, page_size, from_version=1) == (["m=1/v3", "m=3/v2"], ["m=1/v1"])
    assert _pages(filled, page_size, from_version=3) == ([], [])
    # What came and went in between is in neither.
    assert _pages(filled, page_size, from_version=0) == (["m=1/v3", "m=2/v1", "m=3/v2"], [])


def test_pages_are_pinned_while_commits_go_on(filled: Wire) -> None:
    request = s.ListChangesRequest(table=filled.table, from_version=0, page_size=1)
    first = filled.snapshots.ListChanges(request)
    instant = filled.open(t.OVERWRITE_TABLE).instant
    filled.commit(instant, file(instant, "late", 9))
    request.page_token = first.next_page_token
    assert filled.snapshots.ListChanges(request).to_version == 3


def test_versions_that_are_not_there(filled: Wire) -> None:
    with refused("version_not_found"):
        filled.snapshots.ListChanges(s.ListChangesRequest(table=filled.table, to_version=9))
    with refused("invalid_argument"):
        filled.snapshots.ListChanges(s.ListChangesRequest(table=filled.table, from_version=3, to_version=1))
    request = s.ListChangesRequest(table=filled.table, page_size=1)
    token = filled.snapshots.ListChanges(request).next_page_token
    with refused("invalid_argument"):
        filled.snapshots.ListChanges(s.ListChangesRequest(table=filled.table, from_version=1, page_token=token))


def test_changes_since_what_was_cleaned_are_refused_not_guessed(filled: Wire) -> None:
    filled.timeline.Clean(t.CleanRequest(table=filled.table, retain_versions=2))
    assert _pages(filled, from_version=0) == (["m=1/v3", "m=2/v1", "m=3/v2"], []), "since nothing: all that is there"
    assert _pages(filled, from_version=2) == (["m=1/v3"], ["m=1/v1"])
    earliest = "was cleaned; the earliest that can be read is 2"
    with refused("version_not_found", earliest):
        _pages(filled, from_version=1)
    for since in (0, 1):
        with refused("version_not_found", earliest):
            request = s.ListFileSlicesRequest(table=filled.table, view=s.ListFileSlicesRequest.REPLACED)
            request.from_version = since
            filled.snapshots.ListFileSlices(request)


def test_the_client_reads_all_pages(filled: Wire, service: Service) -> None:
    name = f"default.{filled.table.table}"
    with lakemark.connect(service.grpc_address) as client:
        found = client.changes(name, 1)
        assert sorted(one.added_version for one in found.added) == [2, 3]
        assert [one.partition for one in found.removed] == [(1,)]
        assert (found.from_version, found.to_version) == (1, 3)
        with pytest.raises(VersionNotFound):
            client.changes(name, 1, 9)
        with pytest.raises(InvalidArgument):
            client.changes(name, 9)
