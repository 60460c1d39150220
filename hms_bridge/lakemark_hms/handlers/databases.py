"""Databases."""

from __future__ import annotations

from collections.abc import Sequence

from lakemark_core.errors import AlreadyExists, DatabaseNotFound
from lakemark_hms.given import given_database, given_struct
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.names import DatabaseName, database_name, database_pattern, matcher
from lakemark_hms.objects import altered_database, database_record, database_struct
from lakemark_hms.services import Services
from lakemark_hms.wire.codec import encode_struct
from lakemark_hms.wire.cut import Cut
from lakemark_hms.wire.dispatch import Call
from lakemark_hms.wire.splice import reply_struct, struct, struct_list_field
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog import directories
from lakemark_server.catalog.names import DEFAULT_CATALOG
from lakemark_server.catalog.service import require_droppable
from lakemark_server.kv import lasts
from lakemark_thrift.ttypes import (
    AsyncOperationResp,
    CreateDatabaseRequest,
    Database,
)


class Databases(Subject, title="Databases"):
    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._catalog = services.catalog

    # -- databases

    @method("create_database", Rank.WRITE)
    def create(self, call: Call) -> None:
        sent = given_struct(call, Database, 1)
        self._create(sent, sent.value.catalogName)

    @method("create_database_req", Rank.WRITE)
    def create_req(self, call: Call) -> None:
        request: CreateDatabaseRequest = call.args.createDatabaseRequest
        database = Database(
            name=request.databaseName,
            description=request.description,
            locationUri=request.locationUri,
            parameters=request.parameters,
            ownerName=request.ownerName,
            ownerType=request.ownerType,
            catalogName=request.catalogName,
            createTime=request.createTime,
            managedLocationUri=request.managedLocationUri,
            type=request.type,
        )
        self._create(Cut(database, encode_struct(database)), request.catalogName)

    def _create(self, sent: Cut[Database], catalog: str | None) -> None:
        name = given_database(sent.value.name, catalog)
        record = database_record(sent, name.catalog, name.name)
        try:
            self._catalog.create_database(record, may_make_catalog=False)
        except AlreadyExists:
            raise AlreadyExists(f"Database {name.name} already exists", database=name.name) from None

    @method("get_database", Rank.READ)
    def get(self, call: Call) -> bytes:
        lasts()
        record = self._catalog.get_database(*given_database(call.args.name))
        return reply_struct(call.name, call.seqid, self._struct(record))

    @method("get_database_req", Rank.READ)
    def get_req(self, call: Call) -> bytes:
        lasts()
        request = call.args.request
        record = self._catalog.get_database(*given_database(request.name, request.catalogName))
        return reply_struct(call.name, call.seqid, self._struct(record))

    def _struct(self, record: DatabaseRecord) -> bytes:
        return database_struct(record, self._services.for_engines(record.location))

    @method("get_all_databases", Rank.READ)
    def get_all(self, _call: Call) -> list[str]:
        return [record.name for record in self._catalog.list_databases(DEFAULT_CATALOG)]

    @method("get_databases", Rank.READ)
    def get_matching(self, call: Call) -> list[str]:
        return [record.name for record in self._matching(call.args.pattern)]

    @method("get_databases_req", Rank.READ)
    def get_matching_req(self, call: Call) -> bytes:
        request = call.args.request
        records = self._matching(request.pattern, request.catalogName)
        return reply_struct(
            call.name, call.seqid, struct(struct_list_field(1, [self._struct(record) for record in records]))
        )

    def _matching(self, pattern: str | None, catalog: str | None = None) -> Sequence[DatabaseRecord]:
        catalog, pattern = database_pattern(pattern, catalog)
        fits = matcher(pattern)
        records = self._catalog.list_databases(catalog)
        return [record for record in records if fits(record.name)]

    @method("alter_database", Rank.WRITE)
    def alter(self, call: Call) -> None:
        sent = given_struct(call, Database, 2)
        self._alter(given_database(call.args.dbname), sent)

    @method("alter_database_req", Rank.WRITE)
    def alter_req(self, call: Call) -> None:
        sent = given_struct(call, Database, 1, 2)
        self._alter(database_name(call.args.alterDbReq.oldDbName, sent.value.catalogName), sent)

    def _alter(self, name: DatabaseName, sent: Cut[Database]) -> None:
        """As in Hive, a database keeps its name whatever the new definition says."""
        self._services.warehouse.alter_database(*name, lambda old: altered_database(old, sent))

    @method("drop_database", Rank.WRITE)
    def drop(self, call: Call) -> None:
        args = call.args
        self._drop(given_database(args.name), delete_data=bool(args.deleteData), cascade=bool(args.cascade))

    @method("drop_database_req", Rank.WRITE)
    def drop_req(self, call: Call) -> AsyncOperationResp:
        request = call.args.req
        try:
            self._drop(
                database_name(request.name, request.catalogName),
                delete_data=bool(request.deleteData),
                cascade=bool(request.cascade),
            )
        except DatabaseNotFound:
            if not request.ignoreUnknownDb:
                raise
        return AsyncOperationResp(id="", finished=True)

    def _drop(self, name: DatabaseName, *, delete_data: bool, cascade: bool) -> None:
        require_droppable(*name)
        self._catalog.get_database(*name)
        if cascade:
            self._services.warehouse.drop_content(*name, delete_data=delete_data)
        with directories.leaving_files():
            self._catalog.drop_database(*name, delete_data=delete_data)
