"""The files that came and went between two versions: incremental reads."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakemark.client.calls import Calls
from lakemark.client.names import parse_table_name
from lakemark.files import DataFile
from lakemark.files.pages import files_of_page
from lakemark_core.messages.types import schema_from_proto
from lakemark_proto.v1 import snapshot_pb2 as pb
from lakemark_proto.v1.snapshot_pb2_grpc import SnapshotServiceStub


@dataclass(frozen=True, slots=True)
class Changes:
    """The net change after ``from_version`` up to ``to_version``.

    A file that came and went in between is in neither list. Paths are relative to ``location``. Rows that were
    rewritten are in a removed and in an added file.
    """

    from_version: int
    to_version: int
    location: str
    added: list[DataFile] = field(default_factory=list)
    removed: list[DataFile] = field(default_factory=list)


def list_changes(
    calls: Calls, table: str, from_version: int, to_version: int, page_size: int = 0, *, branch: str = ""
) -> Changes:
    """Raises TableNotFound, VersionNotFound, InvalidArgument."""
    stub = SnapshotServiceStub(calls.channel)
    request = pb.ListChangesRequest(
        table=parse_table_name(table),
        from_version=from_version,
        to_version=to_version,
        page_size=page_size,
        branch=branch,
    )
    page = calls(stub.ListChanges, request)
    schema = schema_from_proto(page.schema)
    changes = Changes(from_version, page.to_version, page.location)
    while True:
        changes.added.extend(files_of_page(page.added, schema))
        changes.removed.extend(files_of_page(page.removed, schema))
        if not page.next_page_token:
            return changes
        request.page_token = page.next_page_token
        page = calls(stub.ListChanges, request)
