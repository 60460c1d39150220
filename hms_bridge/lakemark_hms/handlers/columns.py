"""Columns of a table: ``get_fields`` without its partition columns, ``get_schema`` with them."""

from __future__ import annotations

from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.names import DatabaseName, database_name
from lakemark_hms.wire.codec import decode_struct
from lakemark_hms.wire.dispatch import Call
from lakemark_server.admission.ranks import Rank
from lakemark_thrift.ttypes import FieldSchema, GetFieldsResponse, GetSchemaResponse, Table


class Columns(Subject, title="Columns of a table"):
    @method("get_fields", Rank.READ)
    @method("get_fields_with_environment_context", Rank.READ)
    def fields(self, call: Call) -> list[FieldSchema]:
        return self._columns(database_name(call.args.db_name), call.args.table_name, keys=False)

    @method("get_fields_req", Rank.READ)
    def fields_req(self, call: Call) -> GetFieldsResponse:
        request = call.args.req
        database = database_name(request.dbName, request.catName)
        return GetFieldsResponse(fields=self._columns(database, request.tblName, keys=False))

    @method("get_schema", Rank.READ)
    @method("get_schema_with_environment_context", Rank.READ)
    def schema(self, call: Call) -> list[FieldSchema]:
        return self._columns(database_name(call.args.db_name), call.args.table_name, keys=True)

    @method("get_schema_req", Rank.READ)
    def schema_req(self, call: Call) -> GetSchemaResponse:
        request = call.args.req
        database = database_name(request.dbName, request.catName)
        return GetSchemaResponse(fields=self._columns(database, request.tblName, keys=True))

    def _columns(self, database: DatabaseName, name: str, *, keys: bool) -> list[FieldSchema]:
        struct = self._services.table_struct(self._services.find(database, name))
        table = decode_struct(Table, struct)
        columns = list(table.sd.cols or ()) if table.sd is not None else []
        return columns + list(table.partitionKeys or ()) if keys else columns
