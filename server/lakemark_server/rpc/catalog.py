"""CatalogService over the catalog domain."""

from __future__ import annotations

from typing import Final

import grpc

from lakemark_core.errors import InvalidArgument
from lakemark_core.evolution.messages import change_from_proto
from lakemark_core.messages.types import schema_from_proto
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, LakeTableRecord
from lakemark_proto.v1 import catalog_pb2 as pb
from lakemark_proto.v1.catalog_pb2_grpc import CatalogServiceServicer
from lakemark_proto.v1.types_pb2 import TableName
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog import definitions, schemas
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.catalog.service import Catalog
from lakemark_server.rpc import messages
from lakemark_server.rpc.declaration import method
from lakemark_server.rpc.mounts import MountedTables, NothingMounted
from lakemark_server.rpc.pages import cut, unknown_token
from lakemark_server.snapshots.service import SnapshotReference, Snapshots
from lakemark_server.timeline.jobs.alteration import AlterJob, check_branch
from lakemark_server.timeline.jobs.buckets import BucketsJob
from lakemark_server.timeline.references import MergeDraft, ReferenceDraft
from lakemark_server.timeline.service import Timeline

PAGE_MAX: Final = 1_000
Context = grpc.ServicerContext


def require_name(name: TableName) -> TableName:
    """Raises InvalidArgument if database or table is missing."""
    if not name.database or not name.table:
        raise InvalidArgument("the table is not named: both database and table are needed")
    return name


def page_limit(size: int, most: int = PAGE_MAX, default: int = PAGE_MAX) -> int:
    """``size`` 0: the default. Raises InvalidArgument for a negative one."""
    if size < 0:
        raise InvalidArgument(f"page_size is {size}: it must be 0 (the service's choice) or more")
    return min(size or default, most)


def _place(token: str) -> tuple[str, str, int]:
    """The dropped table after which a page begins. Raises InvalidArgument."""
    names, _, table_id = token.rpartition(".")
    database, _, name = names.rpartition(".")
    if not (table_id.isascii() and table_id.isdigit() and len(table_id) < 20):
        raise unknown_token()
    return database, name, int(table_id)


class CatalogServicer(CatalogServiceServicer):
    def __init__(
        self, catalog: Catalog, snapshots: Snapshots, timeline: Timeline, mounted: MountedTables | None = None
    ) -> None:
        self._catalog = catalog
        self._mounted = mounted or NothingMounted()
        self._timeline = timeline
        self._snapshots = snapshots

    @method(Rank.WRITE)
    def CreateDatabase(self, request: pb.CreateDatabaseRequest, context: Context) -> pb.Database:
        given = request.database
        record = DatabaseRecord(
            catalog=given.catalog,
            name=given.name,
            description=given.description,
            location=given.location,
            properties=given.properties,
            owner=given.owner,
        )
        return definitions.database(
            self._catalog.create_database(record, if_not_exists=request.if_not_exists, request_id=request.request_id)
        )

    @method(Rank.READ)
    def GetDatabase(self, request: pb.GetDatabaseRequest, context: Context) -> pb.Database:
        return definitions.database(self._catalog.get_database(request.catalog, request.name))

    @method(Rank.READ)
    def ListDatabases(self, request: pb.ListDatabasesRequest, context: Context) -> pb.ListDatabasesResponse:
        limit = page_limit(request.page_size)
        databases = self._catalog.list_databases(request.catalog, after=request.page_token, limit=limit + 1)
        mounted = (name for name in self._mounted.names(request.catalog) if name > request.page_token)
        names, token = cut(sorted({*(database.name for database in databases), *mounted}), limit, str)
        return pb.ListDatabasesResponse(names=names, next_page_token=token)

    @method(Rank.WRITE)
    def DropDatabase(self, request: pb.DropDatabaseRequest, context: Context) -> pb.DropDatabaseResponse:
        self._catalog.drop_database(
            request.catalog, request.name, if_exists=request.if_exists, request_id=request.request_id
        )
        return pb.DropDatabaseResponse()

    @method(Rank.WRITE)
    def CreateTable(self, request: pb.CreateTableRequest, context: Context) -> pb.Table:
        name = require_name(request.name)
        record = LakeTableRecord(
            catalog=name.catalog,
            database=name.database,
            name=name.table,
            location=request.location,
            properties=request.properties,
            owner=request.owner,
            comment=request.comment,
        )
        table = self._catalog.create_lake_table(
            record,
            schema_from_proto(request.schema),
            if_not_exists=request.if_not_exists,
            request_id=request.request_id,
        )
        return definitions.lake_table(table)

    @method(Rank.READ)
    def GetTable(self, request: pb.GetTableRequest, context: Context) -> pb.Table:
        name = require_name(request.name)
        table, version = self._snapshots.version(name.catalog, name.database, name.table, SnapshotReference())
        return definitions.lake_table(table, version)

    @method(Rank.READ)
    def ListTables(self, request: pb.ListTablesRequest, context: Context) -> pb.ListTablesResponse:
        limit = page_limit(request.page_size)
        mounted = self._mounted.tables(request.catalog, request.database)
        if mounted is not None:
            rest = [table for table in mounted if table.name > request.page_token]
            shown, token = cut(rest, limit, lambda table: table.name)
            wanted = [table for table in shown if request.kind in (pb.TABLE_KIND_UNSPECIFIED, table.kind)]
            return pb.ListTablesResponse(tables=wanted, next_page_token=token)
        tables = self._catalog.list_tables(request.catalog, request.database, after=request.page_token, limit=limit + 1)
        page, token = cut(tables, limit, lambda named: named[0])
        return pb.ListTablesResponse(
            tables=[
                pb.TableSummary(name=name, kind=entry.kind, hive_type=entry.hive_type)
                for name, entry in page
                if request.kind in (pb.TABLE_KIND_UNSPECIFIED, entry.kind)
            ],
            next_page_token=token,
        )

    @method(Rank.WRITE)
    def DropTable(self, request: pb.DropTableRequest, context: Context) -> pb.DropTableResponse:
        name = require_name(request.name)
        record = self._catalog.dropped.drop(
            name.catalog,
            name.database,
            name.table,
            if_exists=request.if_exists,
            delete_files=request.purge,
            now=request.now,
            request_id=request.request_id,
        )
        kept = record.HasField("dropped")
        return pb.DropTableResponse(dropped=messages.dropped_table(record) if kept else None)

    @method(Rank.READ)
    def ListDroppedTables(self, request: pb.ListDroppedTablesRequest, context: Context) -> pb.ListDroppedTablesResponse:
        limit = page_limit(request.page_size)
        after = _place(request.page_token) if request.page_token else None
        dropped = self._catalog.dropped.listed(request.catalog, request.database, after=after, limit=limit + 1)
        page, token = cut(dropped, limit, lambda table: f"{table.database}.{table.name}.{table.table_id}")
        return pb.ListDroppedTablesResponse(tables=map(messages.dropped_table, page), next_page_token=token)

    @method(Rank.WRITE)
    def UndropTable(self, request: pb.UndropTableRequest, context: Context) -> pb.Table:
        name = require_name(request.name)
        table = self._catalog.dropped.undrop(
            name.catalog,
            name.database,
            name.table,
            table_id=request.table_id,
            new_database=request.new_database,
            new_name=request.new_name,
            request_id=request.request_id,
        )
        return self._described(table)

    @method(Rank.WRITE)
    def PurgeTable(self, request: pb.PurgeTableRequest, context: Context) -> pb.PurgeTableResponse:
        name = require_name(request.name)
        self._catalog.dropped.purge(
            name.catalog, name.database, name.table, table_id=request.table_id, request_id=request.request_id
        )
        return pb.PurgeTableResponse()

    @method(Rank.WRITE)
    def RenameTable(self, request: pb.RenameTableRequest, context: Context) -> pb.Table:
        name = require_name(request.name)
        table = self._catalog.rename_lake_table(
            name.catalog,
            name.database,
            name.table,
            request.new_database,
            request.new_name,
            request_id=request.request_id,
        )
        return self._described(table)

    @method(Rank.WRITE)
    def SetTableProperties(self, request: pb.SetTablePropertiesRequest, context: Context) -> pb.Table:
        name = require_name(request.name)
        table = self._catalog.set_properties(
            name.catalog, name.database, name.table, request.set, request.remove, request_id=request.request_id
        )
        return self._described(table)

    @method(Rank.WRITE)
    def AlterSchema(self, request: pb.AlterSchemaRequest, context: Context) -> pb.Table:
        table = self._lake_table(request.name)
        check_branch(request.branch)
        changes = tuple(map(change_from_proto, request.changes))
        if request.dry_run:
            return self._described(schemas.changed(table, changes, request.expected_schema_id))
        job = AlterJob(changes, request.expected_schema_id, request.request_id)
        return self._described(self._timeline.alter_schema(table.table_id, job))

    @method(Rank.WRITE)
    def AlterBuckets(self, request: pb.AlterBucketsRequest, context: Context) -> pb.Table:
        table = self._lake_table(request.name)
        job = BucketsJob(tuple(request.split), tuple(request.merge), request.request_id)
        return self._described(self._timeline.alter_buckets(table.table_id, job))

    @method(Rank.READ)
    def ListSchemas(self, request: pb.ListSchemasRequest, context: Context) -> pb.ListSchemasResponse:
        versions = self._catalog.schemas(self._lake_table(request.name))
        return pb.ListSchemasResponse(schemas=map(messages.schema_version, versions))

    @method(Rank.WRITE)
    def CreateReference(self, request: pb.CreateReferenceRequest, context: Context) -> pb.Reference:
        draft = ReferenceDraft(
            request.name,
            request.kind,
            request.from_branch,
            request.from_version,
            request.retain_ms,
            request.request_id,
        )
        return self._timeline.references.create(self._lake_table(request.table), draft)

    @method(Rank.READ)
    def ListReferences(self, request: pb.ListReferencesRequest, context: Context) -> pb.ListReferencesResponse:
        references = self._timeline.references.find(self._lake_table(request.table), request.kind)
        return pb.ListReferencesResponse(references=references)

    @method(Rank.WRITE)
    def DropReference(self, request: pb.DropReferenceRequest, context: Context) -> pb.DropReferenceResponse:
        table = self._lake_table(request.table)
        self._timeline.references.drop(table, request.name, request.request_id, request.kind)
        return pb.DropReferenceResponse()

    @method(Rank.WRITE)
    def MergeBranch(self, request: pb.MergeBranchRequest, context: Context) -> pb.MergeBranchResponse:
        draft = MergeDraft(request.branch, request.into, request.fast_forward_only, request.request_id)
        merged = self._timeline.references.merge(self._lake_table(request.table), draft)
        return pb.MergeBranchResponse(**merged._asdict())

    def _lake_table(self, name: TableName) -> LakeTable:
        require_name(name)
        return self._catalog.get_lake_table(name.catalog, name.database, name.table)

    def _described(self, table: LakeTable) -> pb.Table:
        record = table.record
        _, version = self._snapshots.version(record.catalog, record.database, record.name, SnapshotReference())
        return definitions.lake_table(table, version)
