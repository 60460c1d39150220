"""File slices, for engines that merge base files and deltas themselves. The views are Hudi's FileSystemView's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from lakemark.client.calls import Calls
from lakemark.client.names import parse_table_name
from lakemark.files import DataFile
from lakemark.files.pages import files_of_page
from lakemark_core.errors import InvalidArgument
from lakemark_core.messages.predicates import predicate_to_proto
from lakemark_core.messages.types import schema_from_proto
from lakemark_core.types import ColumnValue
from lakemark_proto.v1 import snapshot_pb2 as pb
from lakemark_proto.v1.snapshot_pb2_grpc import SnapshotServiceStub

View: TypeAlias = Literal["latest", "before_instant", "pending_compaction"]
_VIEWS: Final = {
    "latest": pb.ListFileSlicesRequest.LATEST,
    "before_instant": pb.ListFileSlicesRequest.BEFORE_INSTANT,
    "pending_compaction": pb.ListFileSlicesRequest.PENDING_COMPACTION,
}


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A file group as one version has it: its base file, if there is one, and the deltas on top in their order."""

    partition: tuple[ColumnValue, ...]
    file_group: str
    base: DataFile | None
    deltas: tuple[DataFile, ...]


def list_slices(
    calls: Calls,
    table: str,
    view: View,
    reference: pb.SnapshotReference,
    *,
    before_instant: int,
    file_groups: Sequence[str],
    predicate: str | None,
) -> list[FileSlice]:
    """Raises InvalidArgument, TableNotFound, VersionNotFound, BranchNotFound, InvalidPredicate."""
    if view not in get_args(View):
        raise InvalidArgument(f"view {view!r} is not one of {', '.join(get_args(View))}")
    request = pb.ListFileSlicesRequest(
        table=parse_table_name(table),
        at=reference,
        view=_VIEWS[view],
        before_instant=before_instant,
        file_groups=file_groups,
    )
    if predicate is not None:
        request.predicate.CopyFrom(predicate_to_proto(predicate))
    return slices_of(_files(calls, request))


def list_replaced(calls: Calls, table: str, from_version: int, reference: pb.SnapshotReference) -> list[DataFile]:
    """Files that were removed after ``from_version``, with the version that removed each. Raises as ``list_slices``."""
    request = pb.ListFileSlicesRequest(
        table=parse_table_name(table),
        at=reference,
        view=pb.ListFileSlicesRequest.REPLACED,
        from_version=from_version,
    )
    return list(_files(calls, request))


def slices_of(files: Iterable[DataFile]) -> list[FileSlice]:
    """Groups files of one version. A file group with two base files gives two slices: its name was used twice."""
    groups: dict[tuple[object, ...], tuple[list[DataFile], list[DataFile]]] = {}
    for file in files:
        bases, deltas = groups.setdefault((file.partition, file.file_group), ([], []))
        (bases if file.kind == "base" else deltas).append(file)
    slices = []
    for bases, deltas in groups.values():
        first = (bases or deltas)[0]
        slices.append(FileSlice(first.partition, first.file_group, bases[0] if bases else None, tuple(deltas)))
        slices += [FileSlice(one.partition, one.file_group, one, ()) for one in bases[1:]]
    return slices


def _files(calls: Calls, request: pb.ListFileSlicesRequest) -> Iterator[DataFile]:
    stub = SnapshotServiceStub(calls.channel)
    page = calls(stub.ListFileSlices, request)
    schema = schema_from_proto(page.schema)
    while True:
        yield from files_of_page(page.files, schema)
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token
        page = calls(stub.ListFileSlices, request)
