"""Constraints: add, drop, list. They are kept for engines, which may rely on them; nobody enforces them here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lakemark_core.errors import AlreadyExists, InvalidArgument, NotFound, UnsupportedOperation
from lakemark_hms import constraints
from lakemark_hms.constraints import CHECK, DEFAULT, FOREIGN_KEY, NOT_NULL, PRIMARY_KEY, UNIQUE, Kind
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.names import database_name
from lakemark_hms.objects import TableNames
from lakemark_hms.wire.dispatch import Call
from lakemark_server.admission.ranks import Rank
from lakemark_thrift.ttypes import (
    AllTableConstraintsResponse,
    CheckConstraintsResponse,
    DefaultConstraintsResponse,
    ForeignKeysResponse,
    InvalidObjectException,
    NotNullConstraintsResponse,
    PrimaryKeysResponse,
    SQLAllTableConstraints,
    UniqueConstraintsResponse,
)


class Constraints(Subject, title="Constraints"):
    # -- add and drop

    @method("add_primary_key", Rank.WRITE)
    def add_primary_key(self, call: Call) -> None:
        self._add(call, PRIMARY_KEY)

    @method("add_foreign_key", Rank.WRITE)
    def add_foreign_key(self, call: Call) -> None:
        self._add(call, FOREIGN_KEY)

    @method("add_unique_constraint", Rank.WRITE)
    def add_unique(self, call: Call) -> None:
        self._add(call, UNIQUE)

    @method("add_not_null_constraint", Rank.WRITE)
    def add_not_null(self, call: Call) -> None:
        self._add(call, NOT_NULL)

    @method("add_default_constraint", Rank.WRITE)
    def add_default(self, call: Call) -> None:
        self._add(call, DEFAULT)

    @method("add_check_constraint", Rank.WRITE)
    def add_check(self, call: Call) -> None:
        self._add(call, CHECK)

    def _add(self, call: Call, kind: Kind) -> None:
        """A request is one argument whose first field has the constraints."""
        sent = call.cut(kind.struct, 1, 1)
        if not sent:
            return
        with _as_hive():
            database, table = constraints.table_of(sent, kind)
            decide = constraints.decision([(kind, sent)])
            self._services.warehouse.constraints.add(*database, table, decide)

    @method("drop_constraint", Rank.WRITE)
    def drop(self, call: Call) -> None:
        request = call.args.req
        database = database_name(request.dbname, request.catName)
        with _as_hive():
            self._services.warehouse.constraints.drop(*database, request.tablename or "", request.constraintname or "")

    # -- list

    @method("get_primary_keys", Rank.READ)
    def primary_keys(self, call: Call) -> PrimaryKeysResponse:
        return PrimaryKeysResponse(primaryKeys=self._of_request(call, PRIMARY_KEY))

    @method("get_foreign_keys", Rank.READ)
    def foreign_keys(self, call: Call) -> ForeignKeysResponse:
        request = call.args.request
        child = (request.foreign_db_name, request.foreign_tbl_name)
        parent = (request.parent_db_name, request.parent_tbl_name)
        return ForeignKeysResponse(foreignKeys=self._foreign(request.catName, child, parent))

    @method("get_unique_constraints", Rank.READ)
    def unique(self, call: Call) -> UniqueConstraintsResponse:
        return UniqueConstraintsResponse(uniqueConstraints=self._of_request(call, UNIQUE))

    @method("get_not_null_constraints", Rank.READ)
    def not_null(self, call: Call) -> NotNullConstraintsResponse:
        return NotNullConstraintsResponse(notNullConstraints=self._of_request(call, NOT_NULL))

    @method("get_default_constraints", Rank.READ)
    def default(self, call: Call) -> DefaultConstraintsResponse:
        return DefaultConstraintsResponse(defaultConstraints=self._of_request(call, DEFAULT))

    @method("get_check_constraints", Rank.READ)
    def check(self, call: Call) -> CheckConstraintsResponse:
        return CheckConstraintsResponse(checkConstraints=self._of_request(call, CHECK))

    @method("get_all_table_constraints", Rank.READ)
    def all_of_table(self, call: Call) -> AllTableConstraintsResponse:
        request = call.args.request
        own = self._of_table(request.dbName, request.tblName, request.catName)
        every = SQLAllTableConstraints(
            primaryKeys=own[PRIMARY_KEY.kind],
            foreignKeys=self._foreign(request.catName, (request.dbName, request.tblName), (None, None)),
            uniqueConstraints=own[UNIQUE.kind],
            notNullConstraints=own[NOT_NULL.kind],
            defaultConstraints=own[DEFAULT.kind],
            checkConstraints=own[CHECK.kind],
        )
        return AllTableConstraintsResponse(allTableConstraints=every)

    def _of_request(self, call: Call, kind: Kind) -> list[Any]:
        request = call.args.request
        return self._of_table(request.db_name, request.tbl_name, request.catName)[kind.kind]

    def _of_table(self, database: str | None, table: str | None, catalog: str | None) -> dict[int, list[Any]]:
        """Its constraints by kind, but for foreign keys. A table that does not exist has none, as in Hive."""
        name = database_name(database, catalog)
        names = TableNames(name.catalog, name.name, (table or "").lower())
        listed: dict[int, list[Any]] = {kind.kind: [] for kind in constraints.KINDS}
        try:
            records = self._services.warehouse.constraints.listed(*name, names.table)
        except (NotFound, UnsupportedOperation):  # lake tables have none
            return listed
        kinds = {kind.kind: kind for kind in constraints.KINDS}
        for record in records:
            kind = kinds[record.kind]
            listed[record.kind] += constraints.decoded(kind, constraints.structs_of(kind, names, record))
        return listed

    def _foreign(
        self, catalog: str | None, child: tuple[str | None, str | None], parent: tuple[str | None, str | None]
    ) -> list[Any]:
        ends = []
        for database, table in (child, parent):
            name = database_name(database, catalog)
            ends.append((name.name, table.lower()) if table else None)
        in_catalog = database_name(child[0] or parent[0], catalog).catalog
        if not any(ends):
            raise InvalidArgument("the request names neither the table of the foreign keys nor the one they refer to")
        try:
            keys = self._services.warehouse.constraints.foreign_keys(in_catalog, *ends)
        except (NotFound, UnsupportedOperation):
            return []
        return [
            one
            for key in keys
            for one in constraints.decoded(FOREIGN_KEY, constraints.foreign_structs(key, in_catalog))
        ]


@contextmanager
def _as_hive() -> Iterator[None]:
    """Hive throws this exception for what is missing or wrong, which its interface does not declare."""
    try:
        yield
    except (NotFound, AlreadyExists, InvalidArgument) as error:
        raise InvalidObjectException(error.message) from error
