"""Branches and tags of a table."""

from __future__ import annotations

import datetime as dt
from typing import ClassVar
from uuid import uuid4

from lakemark.arguments import Count, Duration, Natural, checked
from lakemark.client.calls import Calls
from lakemark.client.comparison import Comparison, comparison_from, partition_from, version_name
from lakemark.client.model import Merge, Reference, reference_from
from lakemark.client.names import parse_table_name
from lakemark_proto.v1 import catalog_pb2 as pb
from lakemark_proto.v1.catalog_pb2_grpc import CatalogServiceStub
from lakemark_proto.v1.timeline_pb2 import CompareVersionsRequest
from lakemark_proto.v1.timeline_pb2_grpc import TimelineServiceStub


@checked
class _References:
    _kind: ClassVar[pb.ReferenceKind.ValueType]

    def __init__(self, calls: Calls) -> None:
        self._call = calls
        self._stub = CatalogServiceStub(calls.channel)

    def _create(self, table: str, name: str, branch: str, version: int, retain: dt.timedelta) -> Reference:
        request = pb.CreateReferenceRequest(
            table=parse_table_name(table),
            name=name,
            kind=self._kind,
            from_branch=branch,
            from_version=version,
            retain_ms=round(retain.total_seconds() * 1000),
            request_id=str(uuid4()),
        )
        return reference_from(self._call(self._stub.CreateReference, request, mutation=True))

    def _list(self, table: str) -> list[Reference]:
        request = pb.ListReferencesRequest(table=parse_table_name(table), kind=self._kind)
        return [reference_from(message) for message in self._call(self._stub.ListReferences, request).references]

    def drop(self, table: str, name: str) -> None:
        """Drops a branch or tag. Raises BranchNotFound, NotFound (tag), InvalidName (main)."""
        request = pb.DropReferenceRequest(
            table=parse_table_name(table), name=name, kind=self._kind, request_id=str(uuid4())
        )
        self._call(self._stub.DropReference, request, mutation=True)


@checked
class Branches(_References):
    """``client.branches``: writable isolated views of a table. Creating one copies no data."""

    _kind = pb.BRANCH

    def create(
        self,
        table: str,
        name: str,
        *,
        from_branch: str = "",
        from_version: Natural = 0,
        retain: Duration = dt.timedelta(0),
    ) -> Reference:
        """Creates a branch.

        ``from_version`` 0: the latest of ``from_branch`` ("": main). ``retain``: how long the branch lives; 0: for
        ever. Raises InvalidName, AlreadyExists, BranchNotFound, VersionNotFound, TableNotFound.
        """
        return self._create(table, name, from_branch, from_version, retain)

    def list(self, table: str) -> list[Reference]:
        """All branches in order of name, main first."""
        return self._list(table)

    def merge(self, table: str, name: str, *, into: str = "", fast_forward_only: bool = False) -> Merge:
        """Replays what the branch has and ``into`` lacks, as one version of ``into``. "" or "main" means main, for
        both.

        ``fast_forward_only``: only if ``into`` has nothing that the branch lacks. Raises CommitConflict (names the
        version of the branch and what it collides with), FailedPrecondition (nothing to merge, not a fast-forward),
        InvalidArgument (into itself), BranchNotFound, LimitExceeded.
        """
        request = pb.MergeBranchRequest(
            table=parse_table_name(table),
            branch=name,
            into=into,
            fast_forward_only=fast_forward_only,
            request_id=str(uuid4()),
        )
        answer = self._call(self._stub.MergeBranch, request, mutation=True)
        return Merge(answer.version, answer.replayed, answer.fast_forward)

    def compare(self, table: str, left: str, right: str, *, limit: Count = 100) -> Comparison:
        """What each of two branches, tags or versions has that the other lacks, and whether one could be merged.

        They are named as in SQL: "dev", "dev@v5", "v5" (of main), "main" or a tag. ``limit``: how many partitions,
        those with the most changed files first; 0: all. Raises BranchNotFound, VersionNotFound, InvalidArgument (a
        version of a tag), LimitExceeded (too many versions or changes).
        """
        stub = TimelineServiceStub(self._call.channel)
        request = CompareVersionsRequest(
            table=parse_table_name(table), left=version_name(left), right=version_name(right), page_size=limit
        )
        first = page = self._call(stub.CompareVersions, request)
        partitions = list(map(partition_from, page.partitions))
        while page.next_page_token and (not limit or len(partitions) < limit):
            request.page_token = page.next_page_token
            page = self._call(stub.CompareVersions, request)
            partitions += map(partition_from, page.partitions)
        return comparison_from(first, partitions[: limit or None])


@checked
class Tags(_References):
    """``client.tags``: names that keep a version."""

    _kind = pb.TAG

    def create(
        self,
        table: str,
        name: str,
        *,
        version: Natural = 0,
        branch: str = "",
        retain: Duration = dt.timedelta(0),
    ) -> Reference:
        """Creates a tag. ``version`` 0: the latest of ``branch`` ("": main). Raises as ``Branches.create``."""
        return self._create(table, name, branch, version, retain)

    def list(self, table: str) -> list[Reference]:
        """All tags in order of name."""
        return self._list(table)
