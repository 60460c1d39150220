"""A table's timeline: instants and versions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from uuid import uuid4

from lakemark.arguments import Duration, Natural, checked
from lakemark.client.calls import Calls
from lakemark.client.model import (
    Cleaned,
    Commit,
    Instant,
    InstantState,
    Savepoint,
    Version,
    cleaned_from,
    commit_from,
    instant_from,
    savepoint_from,
    version_from,
)
from lakemark.client.names import parse_table_name
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_proto.v1.timeline_pb2_grpc import TimelineServiceStub

_PAGE = 1_000


@checked
class Timeline:
    """``client.timeline``."""

    def __init__(self, calls: Calls) -> None:
        self._call = calls
        self._stub = TimelineServiceStub(calls.channel)

    def instant(self, table: str, instant: Natural) -> Instant:
        """One instant. Raises TableNotFound, InstantNotFound."""
        request = pb.GetInstantRequest(table=parse_table_name(table), instant=instant)
        return instant_from(self._call(self._stub.GetInstant, request))

    def instants(
        self,
        table: str,
        *,
        states: Sequence[InstantState] = (),
        after: Natural = 0,
        limit: Natural = 100,
        newest_first: bool = False,
    ) -> list[Instant]:
        """Up to ``limit`` instants after ``after``, of these ``states`` or of all."""
        listed: list[Instant] = []
        before = 0
        while len(listed) < limit:
            request = pb.ListInstantsRequest(
                table=parse_table_name(table),
                states=[pb.InstantState.Value(state.upper()) for state in states],
                after_instant=after,
                before_instant=before,
                page_size=min(limit - len(listed), _PAGE),
                newest_first=newest_first,
            )
            answer = self._call(self._stub.ListInstants, request)
            listed += [instant_from(message) for message in answer.instants]
            if not answer.more:
                break
            after, before = _next(after, before, answer.last_instant, newest_first=newest_first)
        return listed

    def versions(
        self, table: str, *, branch: str = "", after: Natural = 0, limit: Natural = 100, newest_first: bool = False
    ) -> list[Version]:
        """Up to ``limit`` versions of a branch ("": main) after ``after``."""
        listed: list[Version] = []
        before = 0
        while len(listed) < limit:
            request = pb.ListVersionsRequest(
                table=parse_table_name(table),
                branch=branch,
                after_version=after,
                before_version=before,
                page_size=min(limit - len(listed), _PAGE),
                newest_first=newest_first,
            )
            answer = self._call(self._stub.ListVersions, request)
            listed += [version_from(message) for message in answer.versions]
            if not answer.more or not answer.versions:
                break
            after, before = _next(after, before, answer.versions[-1].version, newest_first=newest_first)
        return listed

    def restore(self, table: str, version: Natural, *, branch: str = "") -> Commit:
        """Makes a new version of the branch ("": main) with the files of an old one. Open writers lose.

        Raises VersionNotFound, BranchNotFound, TableNotFound, InvalidArgument.
        """
        request = pb.RestoreRequest(
            table=parse_table_name(table), branch=branch, version=version, request_id=str(uuid4())
        )
        return commit_from(self._call(self._stub.Restore, request, mutation=True))

    def make_savepoint(self, table: str, version: Natural = 0, *, branch: str = "", comment: str = "") -> Instant:
        """Keeps a version (0: the latest) from being cleaned. Raises VersionNotFound, AlreadyExists."""
        request = pb.SavepointRequest(
            table=parse_table_name(table), version=version, branch=branch, comment=comment, request_id=str(uuid4())
        )
        return instant_from(self._call(self._stub.CreateSavepoint, request, mutation=True))

    def drop_savepoint(self, table: str, version: Natural, *, branch: str = "") -> Instant:
        """Drops the savepoint of a version. Raises NotFound."""
        request = pb.SavepointRequest(
            table=parse_table_name(table), version=version, branch=branch, request_id=str(uuid4())
        )
        return instant_from(self._call(self._stub.DropSavepoint, request, mutation=True))

    def savepoints(self, table: str) -> list[Savepoint]:
        """All savepoints in order of branch and version."""
        answer = self._call(self._stub.ListSavepoints, pb.ListSavepointsRequest(table=parse_table_name(table)))
        return [savepoint_from(message) for message in answer.savepoints]

    def clean(
        self,
        table: str,
        *,
        retain_versions: Natural = 0,
        retain: Duration = dt.timedelta(0),
        branch: str = "",
        dry_run: bool = False,
    ) -> Cleaned:
        """Ends old versions and deletes the data files that no remaining version has. Repeated calls continue.

        At least ``retain_versions`` of the newest versions stay, and every moment since ``retain`` ago can still be
        read; one of the two must be given. Tags, savepoints, branches and open writers keep what they need. Readers of
        a version that ends may find its files gone. Raises InvalidArgument, TableNotFound, BranchNotFound.
        """
        request = pb.CleanRequest(
            table=parse_table_name(table),
            branch=branch,
            retain_versions=retain_versions,
            retain_ms=round(retain.total_seconds() * 1000),
            dry_run=dry_run,
        )
        return cleaned_from(self._call(self._stub.Clean, request, mutation=True))

    def rollback(self, table: str, instant: Natural, reason: str = "") -> Instant:
        """Gives up a requested or inflight instant; no reader ever sees its files. Raises InstantStateError."""
        request = pb.RollbackInstantRequest(table=parse_table_name(table), instant=instant, reason=reason)
        return instant_from(self._call(self._stub.RollbackInstant, request, mutation=True))


def _next(after: int, before: int, last: int, *, newest_first: bool) -> tuple[int, int]:
    return (after, last) if newest_first else (last, before)
