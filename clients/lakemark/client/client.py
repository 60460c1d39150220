"""The client: one connection to a service, with all of its functions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Annotated, Self
from uuid import uuid4

import pyarrow as pa

from lakemark.arguments import Between, Count, Natural, Number64, checked
from lakemark.client.begin import begin
from lakemark.client.buckets import Buckets
from lakemark.client.calls import TIMEOUT_S_DEFAULT, Backoff, Calls
from lakemark.client.consumers import Consumers
from lakemark.client.databases import Databases
from lakemark.client.event_stream import EventStream
from lakemark.client.events import EventLogSummary, Place, filter_from, position_of, summary_from
from lakemark.client.heartbeat import Heartbeats
from lakemark.client.listeners import Listeners
from lakemark.client.model import Commit, Operation, Snapshot, SnapshotOf, snapshot_from
from lakemark.client.mounts import Mounts
from lakemark.client.names import parse_table_name
from lakemark.client.optimization import Optimizations, OptimizerTasks
from lakemark.client.partitions import Partition
from lakemark.client.quotas import Quotas
from lakemark.client.references import Branches, Tags
from lakemark.client.sinks import Sinks
from lakemark.client.tables import Tables
from lakemark.client.timeline import Timeline
from lakemark.client.writer import Writer
from lakemark.files import DataFile
from lakemark.reading.aggregates import Aggregates, aggregate
from lakemark.reading.changes import Changes, list_changes
from lakemark.reading.plan import Plan, snapshot_reference
from lakemark.reading.scan import read_plan
from lakemark.reading.slices import FileSlice, View, list_replaced, list_slices
from lakemark_core.errors import InvalidArgument
from lakemark_core.messages.predicates import predicate_to_proto
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1 import snapshot_pb2, timeline_pb2
from lakemark_proto.v1.events_pb2_grpc import EventServiceStub
from lakemark_proto.v1.snapshot_pb2_grpc import SnapshotServiceStub
from lakemark_proto.v1.timeline_pb2_grpc import TimelineServiceStub

Moment = dt.datetime | Number64 | str


@checked
class Client:
    """A connection to a Lakemark service, made by ``connect``. Thread-safe. Use it in a ``with`` block or close it.

    Every method raises errors of ``lakemark.errors``: those that the service reports, Unavailable if none answers, and
    UnknownOutcome if a change may or may not have happened.
    """

    @checked
    def __init__(self, target: str, timeout_s: float = TIMEOUT_S_DEFAULT, backoff: Backoff | None = None) -> None:
        self._calls = Calls(target, timeout_s, backoff or Backoff())
        self._heartbeats = Heartbeats(self._calls)
        self._snapshots = SnapshotServiceStub(self._calls.channel)
        self._databases = Databases(self._calls)
        self._tables = Tables(self._calls)
        self._timeline = Timeline(self._calls)
        self._branches = Branches(self._calls)
        self._tags = Tags(self._calls)
        self._buckets = Buckets(self._calls)
        self._quotas = Quotas(self._calls)
        self._sinks = Sinks(self._calls)
        self._listeners = Listeners(self._calls)
        self._mounts = Mounts(self._calls)
        self._consumers = Consumers(self._calls)
        self._optimizations = Optimizations(self._calls)
        self._optimizer_tasks = OptimizerTasks(self._calls)

    @property
    def databases(self) -> Databases:
        """Databases: ``create``, ``get``, ``list``, ``drop``."""
        return self._databases

    @property
    def tables(self) -> Tables:
        """Tables: ``create``, ``get``, ``list``, ``rename``, ``drop``, ``set_properties``.

        Also their columns: ``schemas``, ``alter``, ``add_column`` and so on.
        """
        return self._tables

    @property
    def timeline(self) -> Timeline:
        """Instants and versions of a table.

        ``instants``, ``versions``, ``restore``, ``rollback``, ``make_savepoint``, ``clean`` and more.
        """
        return self._timeline

    @property
    def branches(self) -> Branches:
        """Writable isolated views of a table: ``create``, ``list``, ``merge``, ``compare``, ``drop``."""
        return self._branches

    @property
    def tags(self) -> Tags:
        """Names that keep a version of a table: ``create``, ``list``, ``drop``."""
        return self._tags

    @property
    def buckets(self) -> Buckets:
        """Buckets of tables with an extendible index: ``list``, ``alter``, ``balance``."""
        return self._buckets

    @property
    def listeners(self) -> Listeners:
        """Outside Hive Metastores that follow a catalog: ``create``, ``compare``, ``repair``, ``pause``, ``drop``."""
        return self._listeners

    @property
    def mounts(self) -> Mounts:
        """Databases of outside Hive Metastores, read through: ``create``, ``get``, ``list``, ``drop``."""
        return self._mounts

    @property
    def optimizations(self) -> Optimizations:
        """Tables that look after themselves: ``explain``, ``list``, ``run``, ``pause``, ``hold``, ``runs`` …"""
        return self._optimizations

    @property
    def optimizer_tasks(self) -> OptimizerTasks:
        """What workers of optimizations call: ``register``, ``take``, ``acknowledge``, ``heartbeat``, ``complete``."""
        return self._optimizer_tasks

    @property
    def quotas(self) -> Quotas:
        """Limits and usage of tenants, which are catalogs: ``get``, ``set``, ``clear``, ``list``."""
        return self._quotas

    @property
    def sinks(self) -> Sinks:
        """Events that the service delivers: ``create_webhook``, ``create_kafka``, ``list``, ``pause``, ``resend`` …"""
        return self._sinks

    @property
    def consumers(self) -> Consumers:
        """Places in the log of events that the service keeps for somebody.

        ``create``, ``get``, ``list``, ``seek``, ``acknowledge``, ``drop``.
        """
        return self._consumers

    def events(
        self,
        after: Place = None,
        *,
        epoch: Natural | None = None,
        catalog: str = "",
        database: str | None = None,
        table: str | None = None,
        patterns: Iterable[str] = (),
        kinds: Iterable[str] = (),
        consumer: str = "",
        member: str = "",
        acknowledge: bool = True,
        follow: bool = True,
        heartbeat_s: Annotated[float, Between(0.1, 60)] = 5.0,
    ) -> EventStream:
        """An iterator over the events of a catalog ("": the default one) behind ``after``, in order.

        ``after``: an offset (0: all that are kept), an event, or None: those that come from now on. ``epoch``: that of
        the offset, to be told if the store was restored meanwhile. ``follow`` False: only those that there are now.

        ``database``, ``table`` ("orders", "sales.orders"), any of ``patterns`` ("sales", "sales.*", "*.orders_*") and
        any of ``kinds`` ("committed" …) choose events.

        ``consumer``: one that ``consumers.create`` made; its place and filter hold. If several streams have the same
        consumer, one gets events and the others wait. ``member`` names this one in its group. ``acknowledge`` False:
        ``consumers.acknowledge`` or ``EventStream.acknowledge`` says how far it is done.

        Raises EventsTrimmed, EventsLost, OffsetUnknown, ConsumerNotFound, InvalidArgument, Overloaded.
        """
        wanted = filter_from(database, table, kinds, patterns)
        request = pb.WatchEventsRequest(
            catalog=catalog, consumer=consumer, member=member, heartbeat_ms=round(heartbeat_s * 1000)
        )
        if consumer and (after is not None or epoch is not None or wanted.ByteSize()):
            raise InvalidArgument("a consumer has its own place and filter: leave after, epoch and the filter out")
        if not consumer:
            request.filter.CopyFrom(wanted)
            request.begin.CopyFrom(position_of(after if follow or after is not None else 0, epoch))
        return EventStream(self._calls, request, follow=follow, acknowledge=acknowledge)

    def event_log(self, catalog: str = "") -> EventLogSummary:
        """Which events of a catalog are kept, and for how long."""
        stub = EventServiceStub(self._calls.channel)
        return summary_from(self._calls(stub.GetEventLog, pb.GetEventLogRequest(catalog=catalog)))

    @property
    def address(self) -> str:
        """``host:port`` of the service; if several were named, all of them with commas."""
        return self._calls.target

    def begin(
        self,
        table: str,
        operation: Operation = "append",
        *,
        partitions: Iterable[Partition] | None = None,
        start: bool = True,
        metadata: Mapping[str, str] | None = None,
        request_id: str | None = None,
        read_version: Natural = 0,
        heartbeat_timeout_s: Annotated[float, Between(0, 86_400)] = 0,
        branch: str = "",
        file_groups: Iterable[str] = (),
        columns: Iterable[str] = (),
        instant: Natural = 0,
    ) -> Writer:
        """Opens an instant: inflight, or only requested if ``start`` is False (call ``Writer.start`` then).

        ``partitions`` are those that will be written or, by "overwrite_partitions", replaced. ``file_groups`` are those
        that get deltas or whose files are replaced. ``columns`` are those that an upsert writes. If they are given, the
        service can detect conflicts before data is written.

        ``branch`` "": main. ``read_version``: the version that was read; 0: the latest. ``heartbeat_timeout_s``: how
        long the service waits for a heartbeat before it gives the writer up; 0: its default. The same ``request_id``
        commits once: another ``begin`` with it gives a writer that is already ``committed``, or continues.
        ``instant``: which the service has opened with this ``request_id`` for a task of an optimization; it is taken
        over, and no other one is opened: InstantStateError says that it was given up.

        Raises CommitConflict, TableNotFound, UnsupportedOperation (a warehouse table), InvalidArgument.
        """
        return begin(
            self._calls,
            self._heartbeats,
            table,
            operation,
            partitions=partitions,
            start=start,
            metadata=metadata,
            request_id=request_id,
            read_version=read_version,
            heartbeat_timeout_s=heartbeat_timeout_s,
            branch=branch,
            file_groups=file_groups,
            columns=columns,
            instant=instant,
        )

    def commit_together(
        self, writers: Sequence[Writer], *, metadata: Mapping[str, str] | None = None, request_id: str | None = None
    ) -> list[Commit]:
        """Publishes what these writers have staged in one transaction: all become versions, or none.

        The writers may be of any tables and branches, at most 100. ``metadata`` is kept with each version. Raises
        CommitConflict, which names the instant that lost (it is rolled back; the others stay open), and what
        ``Writer.commit`` raises.
        """
        request = timeline_pb2.CommitTransactionRequest(
            commits=[writer.as_request(metadata) for writer in writers], request_id=request_id or str(uuid4())
        )
        stub = TimelineServiceStub(self._calls.channel)
        answer = self._calls(stub.CommitTransaction, request, mutation=True)
        return [writer.published(commit) for writer, commit in zip(writers, answer.commits, strict=True)]

    def snapshot(
        self,
        table: str,
        *,
        version: Natural | None = None,
        timestamp: Moment | None = None,
        branch: str = "",
        tag: str = "",
    ) -> Snapshot:
        """A version as a whole: the latest, ``version``, the last one at or before ``timestamp`` (UTC), or a ``tag``'s.

        ``branch`` "": main. Raises TableNotFound, VersionNotFound, BranchNotFound, NotFound (tag).
        """
        request = snapshot_pb2.GetSnapshotRequest(
            table=parse_table_name(table), at=snapshot_reference(version, timestamp, branch, tag)
        )
        return snapshot_from(self._calls(self._snapshots.GetSnapshot, request))

    def snapshots(self, wanted: Iterable[str | SnapshotOf]) -> list[Snapshot]:
        """Snapshots of several tables or branches, all as of one moment.

        A name alone means the table's latest version of main. Every transaction is in all of the snapshots or in none.
        Raises as ``snapshot``, and InvalidArgument for more than 100.
        """
        references = [SnapshotOf(item) if isinstance(item, str) else item for item in wanted]
        requests = [
            snapshot_pb2.GetSnapshotRequest(
                table=parse_table_name(reference.table),
                at=snapshot_reference(reference.version, reference.timestamp, reference.branch, reference.tag),
            )
            for reference in references
        ]
        request = snapshot_pb2.GetSnapshotsRequest(snapshots=requests)
        return [snapshot_from(message) for message in self._calls(self._snapshots.GetSnapshots, request).snapshots]

    def plan(
        self,
        table: str,
        predicate: str | None = None,
        *,
        version: Natural | None = None,
        timestamp: Moment | None = None,
        branch: str = "",
        tag: str = "",
        statistics: Sequence[str] = (),
        limit: Natural = 0,
        page_size: Count = 0,
    ) -> Plan:
        """The files that may have rows for which ``predicate`` (Spark SQL) is true.

        ``statistics``: columns whose statistics come with the files. ``limit``: at most so many files. ``page_size``:
        files in one response; 0: the service's default. Raises InvalidPredicate, TableNotFound, VersionNotFound.
        """
        request = snapshot_pb2.PlanFilesRequest(
            table=parse_table_name(table),
            at=snapshot_reference(version, timestamp, branch, tag),
            statistics_columns=statistics,
            limit=limit,
            page_size=page_size,
            encoding=snapshot_pb2.ARROW_COMPACT,
        )
        if predicate is not None:
            request.predicate.CopyFrom(predicate_to_proto(predicate))
        return Plan(self._calls, request, predicate)

    def read(
        self,
        table: str,
        predicate: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        version: Natural | None = None,
        timestamp: Moment | None = None,
        branch: str = "",
        tag: str = "",
    ) -> pa.Table:
        """The rows of a snapshot for which ``predicate`` is true, in memory: for small results.

        ``columns`` None: all, partition columns last. Needs access to the files, and sqlglot for a predicate. Raises
        UnsupportedOperation for a predicate that only an engine can evaluate (functions, casts, two columns).
        """
        return read_plan(
            self.plan(table, predicate, version=version, timestamp=timestamp, branch=branch, tag=tag), columns
        )

    def aggregate(
        self,
        table: str,
        predicate: str | None = None,
        *,
        columns: Sequence[str] = (),
        by_partition: bool = False,
        version: Natural | None = None,
        timestamp: Moment | None = None,
        branch: str = "",
        tag: str = "",
    ) -> Aggregates:
        """Files, rows and bytes of a plan, in total or by partition; bounds, nulls and NaNs of ``columns``.

        No data file is read. The result is ``exact`` if all planned files match entirely and have complete statistics.
        Raises as ``snapshot``, InvalidPredicate, InvalidArgument (a column without bounds).
        """
        reference = snapshot_reference(version, timestamp, branch, tag)
        return aggregate(self._calls, table, predicate, reference, columns, by_partition=by_partition)

    def changes(self, table: str, from_version: Natural, to_version: Natural = 0, *, branch: str = "") -> Changes:
        """The files that were added and removed after ``from_version``, up to ``to_version`` (0: the latest).

        Raises TableNotFound, VersionNotFound, InvalidArgument.
        """
        return list_changes(self._calls, table, from_version, to_version, branch=branch)

    def file_slices(
        self,
        table: str,
        view: View = "latest",
        *,
        before_instant: Natural = 0,
        file_groups: Sequence[str] = (),
        predicate: str | None = None,
        version: Natural | None = None,
        timestamp: Moment | None = None,
        branch: str = "",
        tag: str = "",
    ) -> list[FileSlice]:
        """File groups of a snapshot with their base and delta files.

        ``view`` "latest": of the snapshot itself; "before_instant": of the last version whose instant is smaller;
        "pending_compaction": of groups that a running compaction is going to rewrite. ``file_groups``: only these.
        Raises as ``snapshot``, InvalidPredicate.
        """
        return list_slices(
            self._calls,
            table,
            view,
            snapshot_reference(version, timestamp, branch, tag),
            before_instant=before_instant,
            file_groups=file_groups,
            predicate=predicate,
        )

    def replaced_files(
        self, table: str, from_version: Natural, *, version: Natural | None = None, branch: str = ""
    ) -> list[DataFile]:
        """Files that were removed after ``from_version``, up to ``version`` (None: the latest)."""
        return list_replaced(self._calls, table, from_version, snapshot_reference(version, None, branch))

    def close(self) -> None:
        """Closes the connection. Open instants are not rolled back here; the service gives them up after their
        timeout."""
        self._heartbeats.close()
        self._calls.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@checked
def connect(server: str = "127.0.0.1:9090", *, timeout: float = TIMEOUT_S_DEFAULT) -> Client:
    """A client of the service at ``host:port``. ``timeout``: seconds for a call with all of its retries.

    Several services of one store may be named, ``"a:9090,b:9090"``: calls go to the first one, and to the next one when
    that is away. Nothing is sent yet. If nobody listens at any of the addresses, the first call raises Unavailable at
    once. A service that has answered this client before is waited for, about ten seconds long, so that a restart goes
    unnoticed. Raises InvalidArgument for a malformed address.
    """
    return Client(server, timeout)
