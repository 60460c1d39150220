"""SnapshotService, over snapshots and planning."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeVar, cast

import grpc
import pyarrow as pa
from google.protobuf.message import Message

from lakemark_core.buckets import buckets_of
from lakemark_core.errors import InvalidArgument, InvalidPredicate
from lakemark_core.expressions import TRUE
from lakemark_core.types import Field, Schema, is_nested
from lakemark_proto.v1 import snapshot_pb2 as pb
from lakemark_proto.v1 import types_pb2
from lakemark_proto.v1.snapshot_pb2_grpc import SnapshotServiceServicer
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog import definitions
from lakemark_server.file_index.at_hand import NotAtHand, only_at_hand
from lakemark_server.file_index.cache import ByteLru
from lakemark_server.file_index.pages.blocks import to_ipc, to_plain_ipc, to_small_ipc
from lakemark_server.file_index.parts.changes import added_between, removed_between
from lakemark_server.file_index.parts.fold import NOWHERE, Origin, Snapshot
from lakemark_server.file_index.planning.aggregates import aggregate
from lakemark_server.file_index.planning.partitions import partition_totals
from lakemark_server.file_index.planning.planner import Plan, Planner
from lakemark_server.rpc.catalog import page_limit, require_name
from lakemark_server.rpc.declaration import method
from lakemark_server.rpc.files import bounds_message, partition_message, to_messages
from lakemark_server.rpc.pages import decode_token, encode_token, unknown_token
from lakemark_server.rpc.plans import (
    QUICK_FILES_MAX,
    QUICK_PARTS_MAX,
    QUICK_SNAPSHOT_PARTS_MAX,
    PlanResponses,
    Predicates,
    is_short,
    is_small,
    parsed,
)
from lakemark_server.rpc.quick import Answer as QuickAnswer
from lakemark_server.rpc.quick import Quick
from lakemark_server.snapshots.service import SnapshotReference, Snapshots, TableSnapshot
from lakemark_server.snapshots.slices import FileSlices, groups_of, latest_slices, replaced_files
from lakemark_server.store.keyspace import MAIN

Context = grpc.ServicerContext
SNAPSHOTS_MAX: Final = 100
PAGE_FILES: Final = 20_000
PAGE_FILES_MAX: Final = 100_000
COMPACT_FILES_MIN: Final = 1_000  # compact encoding does not pay for fewer files
PAGE_MESSAGES_MAX: Final = 5_000
SMALL_BYTES_MAX: Final = 64 << 10  # compressing fewer bytes costs more than it saves
_SLICES_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class PageToken:
    """Where a plan continues: pinned to a version and to the origin that orders its files.

    The token is valid only with the request that it came from.
    """

    version: int
    offset: int
    digest: str
    origin: Origin = NOWHERE

    def encode(self) -> str:
        """The token as text."""
        return encode_token(self.version, self.offset, self.digest, self.origin.base_id, self.origin.version)

    @classmethod
    def decode(cls, text: str) -> PageToken:
        """The token from its text. Raises InvalidArgument."""
        version, offset, digest, *origin = decode_token(text, int, int, str, int, int)
        token = cls(version, offset, digest, Origin(*origin))
        if token.origin.version > token.version:
            raise unknown_token()
        return token


Response = TypeVar("Response")


def _again(method: Callable[[Any, Any, Context], Response]) -> Callable[[Any, Any, Context], Response]:
    """Runs a method again if a base that it read from was swept meanwhile."""

    @wraps(method)
    def twice(self: Any, request: Any, context: Context) -> Response:
        snapshots: Snapshots = self._snapshots
        return snapshots.again(lambda: method(self, request, context))

    return twice


def _in_one_message(method: Callable[[Any, Any, Context], Response]) -> Callable[[Any, Any, Context], Response]:
    """Repeats a page with fewer files if it is larger than a message may be.

    How many bytes a file takes depends on its path and on the bounds of its texts.
    """

    @wraps(method)
    def fitting(self: Any, request: Any, context: Context) -> Response:
        answer: Any = method(self, request, context)
        asked, bytes_max = request, self._page_bytes_max
        while (size := answer.ByteSize()) > bytes_max and asked.page_size != 1:
            files = getattr(answer, "page_files", 0) or _page_size(asked)
            asked = type(request)()
            asked.CopyFrom(request)
            asked.page_size = max(1, files * bytes_max // size * 9 // 10)
            answer = method(self, asked, context)
        return cast(Response, answer)

    return fitting


class SnapshotServicer(SnapshotServiceServicer):
    """``page_bytes_max``: the size limit of a response with files. ``noted`` is told the id of each table that is
    planned."""

    def __init__(
        self,
        snapshots: Snapshots,
        planner: Planner,
        page_bytes_max: int = 64 << 20,
        noted: Callable[[int], None] = lambda table_id: None,
    ) -> None:
        self._noted = noted
        self._page_bytes_max = page_bytes_max
        self._snapshots = snapshots
        self._planner = planner
        self._predicates = Predicates()
        self._responses = PlanResponses()
        self.quick: Mapping[str, Quick] = {
            "PlanFiles": Quick(lambda request: request if is_small(request) else None, self._plan_at_once)
        }
        self._slices: ByteLru[tuple[str, int], FileSlices] = ByteLru(_SLICES_BYTES, lambda slices: slices.memory_bytes)

    @method(Rank.READ)
    @_again
    def GetSnapshot(self, request: pb.GetSnapshotRequest, context: Context) -> pb.Snapshot:
        return _message(request, self._snapshot(request.table, at_of(request.at)))

    @method(Rank.READ)
    @_again
    def GetSnapshots(self, request: pb.GetSnapshotsRequest, context: Context) -> pb.GetSnapshotsResponse:
        if not 1 <= len(request.snapshots) <= SNAPSHOTS_MAX:
            raise InvalidArgument(f"ask for 1 to {SNAPSHOTS_MAX} snapshots at once, not {len(request.snapshots)}")
        tables = [require_name(wanted.table) for wanted in request.snapshots]
        names = [
            (table.catalog, table.database, table.table, at_of(wanted.at))
            for table, wanted in zip(tables, request.snapshots, strict=True)
        ]
        return pb.GetSnapshotsResponse(snapshots=map(_message, request.snapshots, self._snapshots.snapshots(names)))

    @method(Rank.READ)
    @_in_one_message
    @_again
    def PlanFiles(self, request: pb.PlanFilesRequest, context: Context) -> pb.PlanFilesResponse:
        token = PageToken.decode(request.page_token) if request.page_token else None
        loaded, offset = self._snapshot(request.table, at_of(request.at), token), token.offset if token else 0
        if token:
            _check_same(token, _same_plan(request), loaded)
        else:
            self._noted(loaded.table.table_id)
        return self._plan_page(request, loaded, self._plan(loaded, request), offset)

    def _plan_page(
        self, request: pb.PlanFilesRequest, loaded: TableSnapshot, plan: Plan, offset: int
    ) -> pb.PlanFilesResponse:
        if request.limit < 0:
            raise InvalidArgument(f"limit is {request.limit}: it must be 0 (all files) or more")
        columns = [_statistics_column(loaded.schema, name) for name in request.statistics_columns]
        wanted = min(plan.files, request.limit) if request.limit > 0 else plan.files
        compact = request.encoding == pb.ARROW_COMPACT
        about = max(PAGE_FILES, PAGE_FILES_MAX // (1 + len(columns))) if compact else PAGE_FILES
        size = min(_page_size(request, about), max(0, wanted - offset))
        response = pb.PlanFilesResponse(version=loaded.snapshot.version)
        if compact and size >= COMPACT_FILES_MIN:
            if request.page_size <= 0 and offset + size < wanted:
                size = plan.whole_parts(offset, size)
            response.files.arrow = to_plain_ipc(self._planner.compact_page(plan, offset, size, columns))
        else:
            put_files(response.files, plan.page(offset, size, columns), loaded.schema, request.encoding)
        response.page_files = size
        if offset + size < wanted:
            digest = _check_same(None, _same_plan(request), loaded)
            response.next_page_token = PageToken(
                loaded.snapshot.version, offset + size, digest, loaded.snapshot.origin
            ).encode()
        if not offset:
            response.schema.CopyFrom(definitions.schema_message(loaded.schema))
            response.location = loaded.table.record.location
            response.summary.CopyFrom(_summary(plan))
        self._responses.keep(loaded.reference, request, response)
        return response

    async def _plan_at_once(self, request: pb.PlanFilesRequest) -> QuickAnswer | None:
        """The response, if it was given before, or if it takes little time and all it needs is in memory; else None."""
        name = require_name(request.table)
        reference = self._snapshots.resolve_at_once(name.catalog, name.database, name.table, at_of(request.at))
        if reference is None:
            return None
        known = self._responses.find(reference, request)
        if known is not None:
            self._noted(reference.table.table_id)
        if known is not None or not is_short(request):
            return known
        loaded = self._snapshots.at_hand(reference)
        if loaded is None or len(loaded.snapshot.parts) > QUICK_SNAPSHOT_PARTS_MAX:
            return None
        try:
            with only_at_hand():
                bound = self._predicates.bound(request.predicate, loaded.schema)
                buckets = buckets_of(bound, loaded.table.kind, loaded.schema)
                plan = self._planner.plan_bound(loaded.snapshot, bound, QUICK_PARTS_MAX, buckets)
                if plan.files > QUICK_FILES_MAX:
                    return None
                response = self._plan_page(request, loaded, plan, 0)
        except NotAtHand:
            return None
        if response.ByteSize() > self._page_bytes_max:
            return None
        if not request.page_token:
            self._noted(reference.table.table_id)
        return response

    @method(Rank.READ)
    @_again
    def PlanPartitions(self, request: pb.PlanPartitionsRequest, context: Context) -> pb.PlanPartitionsResponse:
        loaded = self._snapshot(request.table, at_of(request.at))
        plan = self._plan(loaded, request)
        partitions = [
            pb.PlanPartitionsResponse.Partition(
                values=partition_message(name, loaded.schema), name=name, files=files, rows=rows, bytes=size
            )
            for name, files, rows, size in partition_totals(plan)
        ]
        return pb.PlanPartitionsResponse(version=loaded.snapshot.version, partitions=partitions)

    @method(Rank.READ)
    @_in_one_message
    @_again
    def ListChanges(self, request: pb.ListChangesRequest, context: Context) -> pb.ListChangesResponse:
        token = PageToken.decode(request.page_token) if request.page_token else None
        newer = self._snapshot(
            request.table, SnapshotReference(version=request.to_version or None, branch=request.branch), token
        )
        older = self._older(request, newer)
        same = pb.ListChangesRequest(table=request.table, branch=request.branch, from_version=request.from_version)
        digest = _check_same(token, same, newer)
        plans = (
            self._planner.plan(added_between(older, newer.snapshot), None),
            self._planner.plan(removed_between(older, newer.snapshot), None),
        )
        offset, left = token.offset if token else 0, _page_size(request)
        response = pb.ListChangesResponse(to_version=newer.snapshot.version)
        total = first = 0
        for plan, files in zip(plans, (response.added, response.removed), strict=True):
            page = plan.page(max(0, offset - first), min(left, max(0, first + plan.files - offset)), ())
            put_files(files, page, newer.schema, request.encoding)
            left -= page.num_rows
            total += page.num_rows
            first += plan.files
        if not offset:
            response.schema.CopyFrom(definitions.schema_message(newer.schema))
            response.location = newer.table.record.location
        if offset + total < first:
            response.next_page_token = PageToken(
                newer.snapshot.version, offset + total, digest, newer.snapshot.origin
            ).encode()
        return response

    @method(Rank.READ)
    @_again
    def Aggregate(self, request: pb.AggregateRequest, context: Context) -> pb.AggregateResponse:
        loaded = self._snapshot(request.table, at_of(request.at))
        plan = self._plan(loaded, request)
        fields = [_data_column(loaded.schema, name) for name in request.columns]
        groups, exact = aggregate(plan, fields, by_partition=request.by_partition)
        schema = definitions.schema_message(loaded.schema)
        response = pb.AggregateResponse(version=loaded.snapshot.version, exact=exact, schema=schema)
        for group in groups:
            message = response.groups.add(name=group.partition, files=group.files, rows=group.rows, bytes=group.bytes)
            if request.by_partition:
                message.partition.extend(partition_message(group.partition, loaded.schema))
            message.columns.extend(map(bounds_message, group.columns))
        return response

    @method(Rank.READ)
    @_in_one_message
    @_again
    def ListFileSlices(self, request: pb.ListFileSlicesRequest, context: Context) -> pb.PlanFilesResponse:
        token = PageToken.decode(request.page_token) if request.page_token else None
        loaded = self._snapshot(request.table, at_of(request.at), token)
        same = pb.ListFileSlicesRequest()
        same.CopyFrom(request)
        same.ClearField("page_token")
        same.ClearField("page_size")
        digest, offset = _check_same(token, same, loaded), token.offset if token else 0
        key = (digest, loaded.snapshot.version)
        slices = self._slices.get(key) if token else None
        if slices is None:
            slices = self._file_slices(loaded, request)
            self._slices.put(key, slices)
        page = slices.page(offset, min(_page_size(request), max(0, slices.files - offset)))
        schema = slices.plan.snapshot.schema
        response = pb.PlanFilesResponse(version=slices.plan.snapshot.version, page_files=page.num_rows)
        put_files(response.files, page, schema, request.encoding)
        if offset + page.num_rows < slices.files:
            token = PageToken(loaded.snapshot.version, offset + page.num_rows, digest, loaded.snapshot.origin)
            response.next_page_token = token.encode()
        if not offset:
            response.schema.CopyFrom(definitions.schema_message(schema))
            response.location = loaded.table.record.location
        return response

    def _file_slices(self, loaded: TableSnapshot, request: pb.ListFileSlicesRequest) -> FileSlices:
        table, lineage, snapshot = loaded.table, loaded.lineage, loaded.snapshot
        if request.view not in request.View.values():
            raise InvalidArgument(f"view {request.view} is not one of {', '.join(request.View.keys()[1:])}")
        groups: frozenset[str] | None = frozenset(request.file_groups) or None
        predicate = parsed(request.predicate) if request.HasField("predicate") else None
        if request.view == request.REPLACED:
            return replaced_files(
                self._planner,
                self._snapshots,
                table,
                lineage,
                request.from_version,
                snapshot.version,
                predicate,
                groups,
            )
        if request.view == request.BEFORE_INSTANT:
            if request.before_instant <= 0:
                raise InvalidArgument("before_instant is missing: say of which instant the slices before it are wanted")
            version = self._snapshots.version_before(table, lineage, snapshot.version, request.before_instant)
            snapshot = self._snapshots.load(table, lineage, version)
        if request.view == request.PENDING_COMPACTION:
            pending = self._snapshots.pending_compaction(table, lineage)
            going = pending.among(groups_of(snapshot))
            groups = going if groups is None else going & groups
        return latest_slices(self._planner, snapshot, predicate, groups)

    def _snapshot(
        self, name: types_pb2.TableName, at: SnapshotReference, token: PageToken | None = None
    ) -> TableSnapshot:
        """The snapshot that is asked for; with a token, of the version that the first page came from."""
        require_name(name)
        if token and not at.tag:
            at = SnapshotReference(version=token.version, branch=at.branch)
        origin = token.origin if token else None
        return self._snapshots.snapshot(name.catalog, name.database, name.table, at, origin)

    def _older(self, request: pb.ListChangesRequest, newer: TableSnapshot) -> Snapshot:
        if not 0 <= request.from_version <= newer.snapshot.version:
            raise InvalidArgument(
                f"there are no changes from version {request.from_version} to version {newer.snapshot.version}: "
                f"from_version must lie between 0 and {newer.snapshot.version}"
            )
        return self._snapshots.load_beside(newer, request.from_version)

    def _plan(
        self, loaded: TableSnapshot, request: pb.PlanFilesRequest | pb.PlanPartitionsRequest | pb.AggregateRequest
    ) -> Plan:
        bound = self._predicates.bound(request.predicate, loaded.schema) if request.HasField("predicate") else TRUE
        buckets = buckets_of(bound, loaded.table.kind, loaded.schema)
        return self._planner.plan_bound(loaded.snapshot, bound, buckets=buckets)


def _message(request: pb.GetSnapshotRequest, loaded: TableSnapshot) -> pb.Snapshot:
    snapshot, record = loaded.snapshot, loaded.snapshot.record
    message = pb.Snapshot(
        table=definitions.table_name(loaded.table),
        branch=request.at.branch or MAIN,
        version=snapshot.version,
        schema=definitions.schema_message(snapshot.schema),
        files=snapshot.files,
        rows=snapshot.rows,
        bytes=snapshot.size_bytes,
        location=loaded.table.record.location,
    )
    if record is not None:
        message.instant = record.instant
        message.committed_ms = record.committed_ms
        message.operation = record.operation
    return message


def at_of(reference: pb.SnapshotReference) -> SnapshotReference:
    """The reference in a message.

    Raises InvalidArgument for a tag together with a branch: a tag has a branch of its own.
    """
    match reference.WhichOneof("at"):
        case "version":
            return SnapshotReference(version=reference.version, branch=reference.branch)
        case "timestamp_ms":
            return SnapshotReference(timestamp_ms=reference.timestamp_ms, branch=reference.branch)
        case "tag":
            if reference.branch:
                raise InvalidArgument(f"tag {reference.tag!r} stands for a version of its own branch: name no branch")
            if not reference.tag:
                raise InvalidArgument("the tag to read has no name")
            return SnapshotReference(tag=reference.tag)
        case _:
            return SnapshotReference(branch=reference.branch)


def put_files(files: types_pb2.DataFiles, page: pa.RecordBatch, schema: Schema, encoding: int) -> None:
    """Adds the entries of a page in the encoding that the client asked for."""
    if encoding == pb.PROTOBUF:
        files.list.files.extend(to_messages(page, schema))
    else:
        files.arrow = to_small_ipc(page) if page.nbytes <= SMALL_BYTES_MAX else to_ipc(page)


def _page_size(
    request: pb.PlanFilesRequest | pb.ListChangesRequest | pb.ListFileSlicesRequest, default: int = PAGE_FILES
) -> int:
    most = PAGE_MESSAGES_MAX if request.encoding == pb.PROTOBUF else PAGE_FILES_MAX
    return page_limit(request.page_size, most, default)


def _check_same(token: PageToken | None, same: Message, loaded: TableSnapshot) -> str:
    """A digest of what must stay the same from page to page. Raises InvalidArgument if the token has another.

    Table and branch enter it by id and key, because others may have taken their names meanwhile.
    """
    place = f"{loaded.table.table_id} {loaded.lineage.key} "
    data = place.encode() + same.SerializeToString(deterministic=True)
    digest = hashlib.blake2b(data, digest_size=8).hexdigest()
    if token and (token.digest != digest or token.version != loaded.snapshot.version):
        raise InvalidArgument("the page token belongs to another request: send the same one again, with the token only")
    return digest


def _same_plan(request: pb.PlanFilesRequest) -> pb.PlanFilesRequest:
    """The fields of a request that must stay the same from page to page."""
    return pb.PlanFilesRequest(table=request.table, at=request.at, predicate=request.predicate, limit=request.limit)


def _data_column(schema: Schema, name: str) -> Field:
    """The column with this name.

    Raises InvalidArgument for partition columns (their values are in names) and nested ones: they have no bounds.
    """
    field = schema.find(name)
    if field is None:
        raise InvalidArgument(f"columns: there is no column {name!r}{schema.suggest(name)}", column=name)
    if schema.is_partition(name) or is_nested(field.type):
        raise InvalidArgument(f"columns: {name!r} is a partition column or nested, and has no bounds", column=name)
    return field


def _statistics_column(schema: Schema, name: str) -> int:
    field = schema.find(name)
    if field is None:
        raise InvalidPredicate(f"statistics_columns: there is no column {name!r}{schema.suggest(name)}", column=name)
    return field.id


def _summary(plan: Plan) -> pb.PlanSummary:
    return pb.PlanSummary(
        files_total=plan.snapshot.files,
        files_planned=plan.files,
        files_matching_entirely=plan.files_matching_entirely,
        rows_planned=plan.rows,
        bytes_planned=plan.size_bytes,
        residual=plan.residual,
    )
