"""Functions."""

from __future__ import annotations

from lakemark_core.errors import DatabaseNotFound, InvalidArgument, UnsupportedOperation
from lakemark_hms.errors import NotGiven
from lakemark_hms.given import given_database, given_name, given_struct, short
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.names import DatabaseName, matcher
from lakemark_hms.services import Services
from lakemark_hms.wire.codec import decode_struct
from lakemark_hms.wire.cut import I32, LIST, STRING, Cut, patch
from lakemark_hms.wire.dispatch import Call
from lakemark_hms.wire.splice import (
    i32_value,
    reply_struct,
    string_list_value,
    string_value,
    struct,
    struct_list_field,
    struct_list_value,
    value_field,
)
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog.names import DEFAULT_CATALOG
from lakemark_thrift.ttypes import Function

_NAME, _DB_NAME, _CREATE_TIME, _RESOURCES, _CATALOG = 1, 2, 6, 8, 9


class Functions(Subject, title="Functions"):
    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._functions = services.warehouse.functions

    @method("create_function", Rank.WRITE)
    def create(self, call: Call) -> None:
        sent = given_struct(call, Function, 1)
        _check(sent.value)
        database = given_database(sent.value.dbName, sent.value.catName)
        name = given_name("function", sent.value.functionName)
        self._functions.create(*database, name, _stored(sent, database, self._services.now()))

    @method("alter_function", Rank.WRITE)
    def alter(self, call: Call) -> None:
        sent = given_struct(call, Function, 3)
        _check(sent.value)
        database = given_database(call.args.dbName)
        target = given_database(sent.value.dbName, sent.value.catName or database.catalog)
        if target.catalog != database.catalog:
            raise UnsupportedOperation("a function cannot be moved to another catalog: create it there")
        new_name = given_name("function", sent.value.functionName)
        now = self._services.now()

        def change(old: bytes) -> bytes:
            return _stored(sent, target, decode_struct(Function, old).createTime or now, keeps_time=False)

        self._functions.alter(*database, given_name("function", call.args.funcName), target.name, new_name, change)

    @method("get_function", Rank.READ)
    def get(self, call: Call) -> bytes:
        database = given_database(call.args.dbName)
        function = self._functions.get(*database, given_name("function", call.args.funcName))
        return reply_struct(call.name, call.seqid, function)

    @method("get_functions", Rank.READ)
    def names(self, call: Call) -> list[str]:
        return list(self._listed(given_database(call.args.dbName), call.args.pattern))

    @method("get_functions_req", Rank.READ)
    def matching_req(self, call: Call) -> bytes:
        request = call.args.request
        functions = self._listed(given_database(request.dbName, request.catalogName), request.pattern)
        if request.returnNames:
            return reply_struct(call.name, call.seqid, struct(value_field(LIST, 1, string_list_value(list(functions)))))
        return reply_struct(call.name, call.seqid, struct(struct_list_field(2, list(functions.values()))))

    def _listed(self, database: DatabaseName, pattern: str | None) -> dict[str, bytes]:
        """Those that fit; none of a database that there is not, as in Hive."""
        try:
            return self._functions.listed(*database, matcher(pattern))
        except DatabaseNotFound:
            return {}

    @method("get_all_functions", Rank.READ)
    def all(self, call: Call) -> bytes:
        functions: list[bytes] = []
        for database in self._services.catalog.list_databases(DEFAULT_CATALOG):
            functions += self._functions.listed(DEFAULT_CATALOG, database.name, lambda _: True).values()
        return reply_struct(call.name, call.seqid, struct(struct_list_field(1, functions)))

    @method("drop_function", Rank.WRITE)
    def drop(self, call: Call) -> None:
        self._functions.drop(*given_database(call.args.dbName), given_name("function", call.args.funcName))


def _check(function: Function) -> None:
    """Raises NotGiven, InvalidArgument for a function that no metastore accepts."""
    if function.className is None:
        raise InvalidArgument(f"function {short(function.functionName)} has no class: name the one that implements it")
    for field, value in (("ownerType", function.ownerType), ("functionType", function.functionType)):
        if value is None:
            raise NotGiven(f"function {short(function.functionName)} has no {field}: give one")


def _stored(sent: Cut[Function], database: DatabaseName, time: int, *, keeps_time: bool = True) -> bytes:
    """The struct to store; ``keeps_time``: the time of creation that was sent counts, if there is one."""
    function = sent.value
    changes: dict[int, tuple[int, bytes] | None] = {
        _NAME: (STRING, string_value((function.functionName or "").strip().lower())),
        _DB_NAME: (STRING, string_value(database.name)),
        _CATALOG: (STRING, string_value(database.catalog)),
    }
    if not (keeps_time and function.createTime):
        changes[_CREATE_TIME] = (I32, i32_value(time))
    if function.resourceUris is None:
        changes[_RESOURCES] = (LIST, struct_list_value(()))
    return patch(sent.raw, changes)
