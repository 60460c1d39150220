"""A plan: the files of one version that a predicate needs, page by page."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from lakemark.client.calls import Calls
from lakemark.client.model import milliseconds
from lakemark.files import DataFile, without_settled_deletes
from lakemark.files.model import KIND_NUMBERS
from lakemark.files.pages import files_of_page, table_of_page
from lakemark_core.errors import FailedPrecondition, InvalidArgument, UnsupportedOperation
from lakemark_core.messages.types import schema_from_proto
from lakemark_core.storage import join
from lakemark_core.table_kind import TableKind, kind_of
from lakemark_core.types import Schema
from lakemark_proto.v1 import catalog_pb2, types_pb2
from lakemark_proto.v1 import snapshot_pb2 as pb
from lakemark_proto.v1.catalog_pb2_grpc import CatalogServiceStub
from lakemark_proto.v1.snapshot_pb2_grpc import SnapshotServiceStub

_DELTA: Final = KIND_NUMBERS["delta"]


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """Of the whole plan. ``residual``: SQL left to evaluate in the files that do not match entirely; "": nothing."""

    files_total: int
    files_planned: int
    files_matching_entirely: int
    rows_planned: int
    bytes_planned: int
    residual: str


class Plan:
    """The planned files; later pages are fetched when they are asked for, all of the same version.

    Iterate over it for DataFile objects, or use ``table()`` for Arrow columns (docs/files.md). Whoever goes on to a
    later page has the one behind it fetched meanwhile. Not thread-safe.
    """

    def __init__(self, calls: Calls, request: pb.PlanFilesRequest, predicate: str | None) -> None:
        self._call = calls
        self._stub = SnapshotServiceStub(calls.channel)
        self._request = request
        self._pages: list[types_pb2.DataFiles] = []
        self._coming: Future[pb.PlanFilesResponse] | None = None
        self._file_schemas: dict[int, Schema] = {}
        first = self._take(self._ask())
        self.predicate = predicate
        self.version = first.version
        self.schema = schema_from_proto(first.schema)
        self.location = first.location
        self.summary = PlanSummary(
            first.summary.files_total,
            first.summary.files_planned,
            first.summary.files_matching_entirely,
            first.summary.rows_planned,
            first.summary.bytes_planned,
            first.summary.residual,
        )

    def file_schema(self, file: DataFile) -> Schema:
        """The schema that a file of this plan was written with: by what names and types its columns are found."""
        if file.schema_id in (0, self.schema.schema_id):
            return self.schema
        if file.schema_id not in self._file_schemas:
            stub = CatalogServiceStub(self._call.channel)
            answer = self._call(stub.ListSchemas, catalog_pb2.ListSchemasRequest(name=self._request.table))
            schemas = [schema_from_proto(one.schema) for one in answer.schemas]
            self._file_schemas.update({schema.schema_id: schema for schema in schemas})
        return self._file_schemas[file.schema_id]

    def kind(self) -> TableKind:
        """What kind of table it is: how deltas are merged."""
        stub = CatalogServiceStub(self._call.channel)
        answer = self._call(stub.GetTable, catalog_pb2.GetTableRequest(name=self._request.table))
        return kind_of(answer.properties)

    def __iter__(self) -> Iterator[DataFile]:
        return chain.from_iterable(files_of_page(page, self.schema) for page in self._all_pages())

    def files(self) -> list[DataFile]:
        """All files."""
        return list(self)

    def pages(self) -> Iterator[pa.Table]:
        """The files as Arrow columns, one table a page."""
        return (table_of_page(page, self.schema) for page in self._all_pages())

    def table(self) -> pa.Table:
        """All files as Arrow columns."""
        tables = list(self.pages())
        return pa.concat_tables(tables, promote_options="default")

    @property
    def paths(self) -> list[str]:
        """The locations of all files that have to be read: URIs, or paths where the table's location is one.

        Deletes that a compaction has kept, and that no row is left to take out, are not among them.
        """
        pages = list(self.pages())
        if any(_DELTA in page.column("kind").unique().to_pylist() for page in pages):
            return [join(self.location, file.path) for file in without_settled_deletes(self.files())]
        paths: list[Any] = [path for page in pages for path in page.column("path").to_pylist()]
        return [join(self.location, path) for path in paths]

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows for which the plan's predicate is true, in memory, with the names and types of this version.

        ``columns`` None: all, partition columns last. Without a file to read it is an empty table of the same schema.
        Raises as ``Client.read``.
        """
        from lakemark.reading.scan import read_plan

        return read_plan(self, columns)

    def to_reader(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """The same rows as ``to_arrow``, in batches: only some files at a time are in memory.

        It can be read once. File groups with deltas are merged in memory, all together. Raises as ``Client.read``, for
        a file that cannot be read when its batch is asked for.
        """
        from lakemark.reading.scan import scan_plan

        schema, tables = scan_plan(self, columns)
        batches = (batch for table in tables for batch in table.to_batches())
        return pa.RecordBatchReader.from_batches(schema, batches)

    def to_duckdb(self, connection: Any = None, columns: Sequence[str] | None = None) -> Any:
        """The rows of ``to_arrow`` as a relation of DuckDB, on ``connection`` or DuckDB's default one.

        Raises FailedPrecondition without DuckDB, and as ``Client.read``.
        """
        try:
            import duckdb
        except ImportError as error:
            raise FailedPrecondition("a relation of DuckDB needs DuckDB: pip install duckdb") from error
        rows = self.to_arrow(columns)
        return duckdb.from_arrow(rows) if connection is None else connection.from_arrow(rows)

    def _all_pages(self) -> Iterator[types_pb2.DataFiles]:
        index = 0
        while True:
            if index == len(self._pages):
                if not self._request.page_token:
                    return
                coming, self._coming = self._coming, None
                self._take(coming.result() if coming else self._ask())
            if index == len(self._pages) - 1 and self._request.page_token and self._coming is None:
                self._coming = _in_background(self._ask)
            yield self._pages[index]
            index += 1

    def _ask(self) -> pb.PlanFilesResponse:
        return self._call(self._stub.PlanFiles, self._request)

    def _take(self, answer: pb.PlanFilesResponse) -> pb.PlanFilesResponse:
        self._request.page_token = answer.next_page_token
        self._pages.append(answer.files)
        return answer


def _in_background(ask: Callable[[], pb.PlanFilesResponse]) -> Future[pb.PlanFilesResponse]:
    pool = ThreadPoolExecutor(1, thread_name_prefix="lakemark-plan")
    coming = pool.submit(ask)
    pool.shutdown(wait=False)
    return coming


def require_no_deltas(files: Sequence[DataFile], version: int) -> None:
    """Raises UnsupportedOperation if there are deltas among the files, which a reader needs that does not merge."""
    deltas = sum(file.kind != "base" for file in files)
    if deltas:
        raise UnsupportedOperation(
            f"version {version} has {deltas} delta files among those needed, which this reader does not merge: "
            "compact their file groups first"
        )


def snapshot_reference(
    version: int | None, timestamp: dt.datetime | int | str | None, branch: str = "", tag: str = ""
) -> pb.SnapshotReference:
    """Raises InvalidArgument for more than one of version, timestamp and tag; a tag needs no branch."""
    if sum((version is not None, timestamp is not None, bool(tag))) > 1:
        raise InvalidArgument("give only one of version, timestamp and tag")
    if tag and branch:
        raise InvalidArgument("give a tag or a branch, not both: a tag names a version of one branch")
    reference = pb.SnapshotReference(branch=branch)
    if version is not None:
        reference.version = version
    elif timestamp is not None:
        reference.timestamp_ms = milliseconds(timestamp)
    elif tag:
        reference.tag = tag
    return reference
