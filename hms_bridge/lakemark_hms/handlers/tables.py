"""Tables: look up and list."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from lakemark_core.errors import DatabaseNotFound, InvalidArgument, TableNotFound
from lakemark_hms.given import given_database, given_name
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.names import DatabaseName, beginning_of, database_name, database_pattern, matcher
from lakemark_hms.projection import Projection
from lakemark_hms.table_filters import TableFilter
from lakemark_hms.wire.codec import decode_struct
from lakemark_hms.wire.dispatch import Call
from lakemark_hms.wire.splice import reply_struct, reply_struct_list, struct, struct_field, struct_list_field
from lakemark_proto.store.v1.store_pb2 import TableEntry
from lakemark_proto.v1.catalog_pb2 import WAREHOUSE
from lakemark_server.admission.ranks import Rank
from lakemark_thrift.ttypes import ExtendedTableInfo, Table, TableMeta

_FILTERED_AT_ONCE: Final = 1_000  # tables


class Tables(Subject, title="Tables"):
    @method("get_table", Rank.READ)
    def get(self, call: Call) -> bytes:
        args = call.args
        named = self._services.find(given_database(args.dbname), given_name("table", args.tbl_name))
        return reply_struct(call.name, call.seqid, self._services.table_struct(named, call.session))

    @method("get_table_req", Rank.READ)
    def get_req(self, call: Call) -> bytes:
        request = call.args.req
        named = self._services.find(database_name(request.dbName, request.catName), request.tblName)
        table = self._services.table_struct(named, call.session)
        return reply_struct(call.name, call.seqid, struct(struct_field(1, table)))

    @method("get_table_objects_by_name", Rank.READ)
    def get_by_names(self, call: Call) -> bytes:
        args = call.args
        structs = self._structs(given_database(args.dbname), _given_names(args.tbl_names))
        return reply_struct_list(call.name, call.seqid, structs)

    @method("get_table_objects_by_name_req", Rank.READ)
    def get_by_names_req(self, call: Call) -> bytes:
        request = call.args.req
        database = given_database(request.dbName, request.catName)
        projection = Projection.of(request.projectionSpec)
        if request.tablesPattern is not None:
            structs = self._matching_structs(database, request.tablesPattern, request.tblNames)
        else:
            structs = self._structs(database, _given_names(request.tblNames))
        if projection is not None:
            structs = [projection.apply(one) for one in structs]
        return reply_struct(call.name, call.seqid, struct(struct_list_field(1, structs)))

    def _matching_structs(self, database: DatabaseName, pattern: str, names: Sequence[str] | None) -> list[bytes]:
        """Those that fit the pattern, and are among the names if there are any.

        The name of the database is a pattern, too, as in Hive. Raises DatabaseNotFound for a plain name.
        """
        among = None if names is None else {name.lower() for name in names}

        def of_database(owner: DatabaseName) -> list[bytes]:
            fitting = [name for name in self._names(owner, pattern) if among is None or name in among]
            return self._structs(owner, fitting)

        if "*" not in database.name and "|" not in database.name:
            return of_database(database)
        fits = matcher(database.name)
        structs: list[bytes] = []
        for owner in self._services.catalog.list_databases(database.catalog):
            if fits(owner.name):
                with suppress(DatabaseNotFound):  # dropped since it was listed
                    structs += of_database(DatabaseName(database.catalog, owner.name))
        return structs

    def _structs(self, database: DatabaseName, names: Sequence[str]) -> list[bytes]:
        """The structs of the tables that exist. Names without a table are left out, as in Hive."""
        structs: list[bytes] = []
        self._services.catalog.get_database(*database)
        for name in dict.fromkeys(names):
            try:
                structs.append(self._services.table_struct(self._services.find(database, name)))
            except TableNotFound:
                continue
        return structs

    @method("get_all_tables", Rank.READ)
    def get_all(self, call: Call) -> list[str]:
        return self._names_if_any(given_database(call.args.db_name), None)

    @method("get_tables", Rank.READ)
    def get_matching(self, call: Call) -> list[str]:
        return self._names_if_any(given_database(call.args.db_name), call.args.pattern)

    @method("get_tables_by_type", Rank.READ)
    def get_by_type(self, call: Call) -> list[str]:
        wanted = call.args.tableType
        return self._names_if_any(
            given_database(call.args.db_name),
            call.args.pattern,
            lambda entry: not wanted or self._services.table_type(entry) == wanted,
        )

    def _names_if_any(
        self,
        database: DatabaseName,
        pattern: str | None,
        wanted: Callable[[TableEntry], bool] = lambda _: True,
    ) -> list[str]:
        """Like ``_names``; none of a database that there is not, as in Hive."""
        try:
            return self._names(database, pattern, wanted)
        except DatabaseNotFound:
            return []

    def _names(
        self,
        database: DatabaseName,
        pattern: str | None,
        wanted: Callable[[TableEntry], bool] = lambda _: True,
    ) -> list[str]:
        fits = matcher(pattern)
        listed = self._services.catalog.list_tables(*database, prefix=beginning_of(pattern))
        return [name for name, entry in listed if fits(name) and wanted(entry)]

    @method("get_table_meta", Rank.READ)
    def get_meta(self, call: Call) -> list[TableMeta]:
        args = call.args
        catalog, pattern = database_pattern(args.db_patterns)
        databases = matcher(pattern)
        fits, types = matcher(args.tbl_patterns), set(args.tbl_types or ())
        prefix = beginning_of(args.tbl_patterns)
        metas: list[TableMeta] = []
        for database in self._services.catalog.list_databases(catalog):
            if not databases(database.name):
                continue
            listed = self._services.catalog.list_tables(catalog, database.name, prefix=prefix)
            fitting = [
                (name, entry)
                for name, entry in listed
                if fits(name) and (not types or self._services.table_type(entry) in types)
            ]
            comments = self._services.warehouse.tables.comments(
                [entry.table_id for _, entry in fitting if entry.kind == WAREHOUSE]
            )
            metas += [
                TableMeta(
                    dbName=database.name,
                    tableName=name,
                    tableType=self._services.table_type(entry),
                    comments=comments.get(entry.table_id) or None,
                    catName=catalog,
                )
                for name, entry in fitting
            ]
        return metas

    @method("get_tables_ext", Rank.READ)
    def get_ext(self, call: Call) -> list[ExtendedTableInfo]:
        request = call.args.req
        names = self._names(database_name(request.database, request.catalog), request.tableNamePattern)
        limit = request.limit or 0
        return [ExtendedTableInfo(tblName=name) for name in (names[:limit] if limit > 0 else names)]

    @method("get_table_names_by_filter", Rank.READ)
    def get_names_by_filter(self, call: Call) -> list[str]:
        """Names of the warehouse tables that a filter selects. One that is not understood is refused."""
        args = call.args
        selection = TableFilter(args.filter or "")
        limit = args.max_tables if args.max_tables is not None and args.max_tables >= 0 else None
        database, names = database_name(args.dbname), list[str]()
        listed = self._services.catalog.list_tables(*database)
        candidates = [name for name, entry in listed if entry.kind == WAREHOUSE]
        for at in range(0, len(candidates), _FILTERED_AT_ONCE):
            if limit is not None and len(names) >= limit:
                break
            page = list(self._existing(database, candidates[at : at + _FILTERED_AT_ONCE]))
            names += [page[place][0] for place in selection.chosen([table for _, table in page])]
        return names[:limit]

    def _existing(self, database: DatabaseName, names: Sequence[str]) -> Iterator[tuple[str, Table]]:
        for name in names:
            with suppress(TableNotFound):  # dropped since it was listed
                stored = self._services.warehouse.tables.get(*database, name)
                yield name, decode_struct(Table, stored.record.hive)


def _given_names(names: Sequence[str] | None) -> Sequence[str]:
    if names is None:
        raise InvalidArgument("the list of table names is null: give one, which may be empty, or a pattern")
    return names
