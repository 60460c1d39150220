"""Opens a writer's instant, also when an earlier attempt ended with an unknown outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import uuid4

from lakemark.client.calls import Calls
from lakemark.client.heartbeat import Heartbeats
from lakemark.client.model import Operation, operation_value
from lakemark.client.names import parse_table_name
from lakemark.client.partitions import Partition
from lakemark.client.writer import Writer
from lakemark_core.errors import InstantStateError, InvalidArgument
from lakemark_core.user import user_name
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_proto.v1.timeline_pb2_grpc import TimelineServiceStub

REOPENS_MAX: Final = 1_000


def begin(
    calls: Calls,
    heartbeats: Heartbeats,
    table: str,
    operation: Operation,
    *,
    partitions: Iterable[Partition] | None,
    start: bool,
    metadata: Mapping[str, str] | None,
    request_id: str | None,
    read_version: int,
    heartbeat_timeout_s: float,
    branch: str,
    file_groups: Iterable[str],
    columns: Iterable[str],
    instant: int,
) -> Writer:
    """Opens the instant; see ``Client.begin``."""
    named = None if partitions is None else list(partitions)
    groups, written = list(file_groups), list(columns)
    told = bool(named is not None or groups or written)
    if operation == "overwrite_partitions" and start and not named:
        raise InvalidArgument("operation 'overwrite_partitions' names the partitions that it replaces")
    request = pb.OpenInstantRequest(
        table=parse_table_name(table),
        operation=operation_value(operation),
        metadata=metadata,
        heartbeat_timeout_ms=round(heartbeat_timeout_s * 1000),
        # Values of named partitions need the schema, which comes with the response.
        start=start and not told,
        profile=pb.WorkProfile() if start and not told else None,
        owner=user_name(),
        branch=branch,
        read_version=read_version,
    )
    if instant:
        opened = _taken_over(calls, request, request_id or "", instant)
    else:
        opened = _open(calls, request, request_id or str(uuid4()), inflight=start)
    writer = Writer(calls, heartbeats, request.table, opened, operation, None if told or not start else request)
    if writer.committed:
        writer.commit()
    elif start and writer.state == "requested":
        with writer.rolled_back_on_error():
            writer.start(named, file_groups=groups, columns=written)
    return writer


def _taken_over(calls: Calls, request: pb.OpenInstantRequest, request_id: str, instant: int) -> pb.Instant:
    """The instant that somebody else opened with this request id, untouched or committed. Raises InstantStateError."""
    request.request_id = request_id
    stub = TimelineServiceStub(calls.channel)
    opened = calls(stub.OpenInstant, request, mutation=True)
    if opened.instant != instant:  # the answer to the request id was forgotten long ago, and this one is new
        rollback = pb.RollbackInstantRequest(
            table=request.table, instant=opened.instant, reason="another one was meant"
        )
        calls(stub.RollbackInstant, rollback, mutation=True)
    elif opened.state in (pb.REQUESTED, pb.COMPLETED) and (opened.version or not opened.staged_files):
        return opened
    raise InstantStateError(
        f"instant {instant} cannot be taken over: it was begun by another one, or given up "
        f"({opened.rolled_back_reason or pb.InstantState.Name(opened.state)})",
        instant=str(instant),
        state=pb.InstantState.Name(opened.state),
    )


def _open(calls: Calls, request: pb.OpenInstantRequest, request_id: str, *, inflight: bool) -> pb.Instant:
    """The instant of this request id: committed, or new.

    An instant that an earlier attempt left behind may be unusable: given up, with files already staged, or with another
    work profile (unless ``inflight`` is wanted). The next instant then has a request id derived from the first. So
    every later attempt follows the same chain, with at most one commit at its end.
    """
    stub = TimelineServiceStub(calls.channel)
    for attempt in range(REOPENS_MAX):
        request.request_id = request_id if attempt == 0 else f"{request_id}#{attempt}"
        opened = calls(stub.OpenInstant, request, mutation=True)
        usable = opened.state == pb.REQUESTED or (opened.state == pb.INFLIGHT and inflight)
        if opened.state == pb.COMPLETED or (usable and not opened.staged_files):
            return opened
        if opened.state != pb.ROLLED_BACK:
            reason = "its writer began again with the same request id"
            rollback = pb.RollbackInstantRequest(table=request.table, instant=opened.instant, reason=reason)
            calls(stub.RollbackInstant, rollback, mutation=True)
    raise InstantStateError(f"request id {request_id!r} was begun {REOPENS_MAX} times and never committed; use another")
