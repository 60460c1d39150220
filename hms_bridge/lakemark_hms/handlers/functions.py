"""Functions."""

from __future__ import annotations

from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.names import database_name, matcher
from lakemark_hms.services import Services
from lakemark_hms.wire.cut import I32, LIST, STRING, Cut, patch
from lakemark_hms.wire.dispatch import Call
from lakemark_hms.wire.splice import (
    i32_value,
    reply_struct,
    string_list_value,
    string_value,
    struct,
    struct_list_field,
    value_field,
)
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog.names import DEFAULT_CATALOG
from lakemark_thrift.ttypes import Function

_NAME, _DB_NAME, _CREATE_TIME = 1, 2, 6


class Functions(Subject, title="Functions"):
    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._functions = services.warehouse.functions

    @method("create_function", Rank.WRITE)
    def create(self, call: Call) -> None:
        (sent,) = call.cut(Function, 1)
        database = database_name(sent.value.dbName, sent.value.catName)
        name = sent.value.functionName or ""
        self._functions.create(*database, name, _stored(sent, database.name, self._services.now()))

    @method("alter_function", Rank.WRITE)
    def alter(self, call: Call) -> None:
        (sent,) = call.cut(Function, 3)
        database = database_name(call.args.dbName)
        stored = _stored(sent, database.name, self._services.now())
        self._functions.alter(*database, call.args.funcName or "", sent.value.functionName or "", stored)

    @method("get_function", Rank.READ)
    def get(self, call: Call) -> bytes:
        function = self._functions.get(*database_name(call.args.dbName), call.args.funcName or "")
        return reply_struct(call.name, call.seqid, function)

    @method("get_functions", Rank.READ)
    def names(self, call: Call) -> list[str]:
        return list(self._functions.listed(*database_name(call.args.dbName), matcher(call.args.pattern)))

    @method("get_functions_req", Rank.READ)
    def matching_req(self, call: Call) -> bytes:
        request = call.args.request
        database = database_name(request.dbName, request.catalogName)
        functions = self._functions.listed(*database, matcher(request.pattern))
        if request.returnNames:
            return reply_struct(call.name, call.seqid, struct(value_field(LIST, 1, string_list_value(list(functions)))))
        return reply_struct(call.name, call.seqid, struct(struct_list_field(2, list(functions.values()))))

    @method("get_all_functions", Rank.READ)
    def all(self, call: Call) -> bytes:
        functions: list[bytes] = []
        for database in self._services.catalog.list_databases(DEFAULT_CATALOG):
            functions += self._functions.listed(DEFAULT_CATALOG, database.name, lambda _: True).values()
        return reply_struct(call.name, call.seqid, struct(struct_list_field(1, functions)))

    @method("drop_function", Rank.WRITE)
    def drop(self, call: Call) -> None:
        self._functions.drop(*database_name(call.args.dbName), call.args.funcName or "")


def _stored(sent: Cut[Function], database: str, now: int) -> bytes:
    name = (sent.value.functionName or "").strip().lower()
    changes = {_NAME: (STRING, string_value(name)), _DB_NAME: (STRING, string_value(database))}
    if not sent.value.createTime:
        changes[_CREATE_TIME] = (I32, i32_value(now))
    return patch(sent.raw, changes)
