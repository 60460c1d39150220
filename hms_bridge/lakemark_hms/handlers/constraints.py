"""Constraints: no table has any, which is what engines want to know."""

from __future__ import annotations

from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.names import database_name
from lakemark_hms.wire.dispatch import Call
from lakemark_server.admission.ranks import Rank
from lakemark_thrift.ttypes import (
    AllTableConstraintsResponse,
    CheckConstraintsResponse,
    DefaultConstraintsResponse,
    ForeignKeysResponse,
    NotNullConstraintsResponse,
    PrimaryKeysResponse,
    SQLAllTableConstraints,
    UniqueConstraintsResponse,
)


class Constraints(Subject, title="Constraints"):
    @method("get_primary_keys", Rank.READ)
    def primary_keys(self, call: Call) -> PrimaryKeysResponse:
        self._require_table(call)
        return PrimaryKeysResponse(primaryKeys=[])

    @method("get_foreign_keys", Rank.READ)
    def foreign_keys(self, call: Call) -> ForeignKeysResponse:
        self._require_table(call, "foreign_db_name", "foreign_tbl_name")
        return ForeignKeysResponse(foreignKeys=[])

    @method("get_unique_constraints", Rank.READ)
    def unique(self, call: Call) -> UniqueConstraintsResponse:
        self._require_table(call)
        return UniqueConstraintsResponse(uniqueConstraints=[])

    @method("get_not_null_constraints", Rank.READ)
    def not_null(self, call: Call) -> NotNullConstraintsResponse:
        self._require_table(call)
        return NotNullConstraintsResponse(notNullConstraints=[])

    @method("get_default_constraints", Rank.READ)
    def default(self, call: Call) -> DefaultConstraintsResponse:
        self._require_table(call)
        return DefaultConstraintsResponse(defaultConstraints=[])

    @method("get_check_constraints", Rank.READ)
    def check(self, call: Call) -> CheckConstraintsResponse:
        self._require_table(call)
        return CheckConstraintsResponse(checkConstraints=[])

    @method("get_all_table_constraints", Rank.READ)
    def all_of_table(self, call: Call) -> AllTableConstraintsResponse:
        self._require_table(call, "dbName", "tblName")
        return AllTableConstraintsResponse(allTableConstraints=SQLAllTableConstraints())

    def _require_table(self, call: Call, database: str = "db_name", table: str = "tbl_name") -> None:
        """Raises DatabaseNotFound or TableNotFound if the request names a table that does not exist.

        ``database`` and ``table`` are fields of the request. Foreign keys may be asked for by either of their tables,
        so the name may be missing.
        """
        request = call.args.request
        name = getattr(request, table)
        if name:
            self._services.find(database_name(getattr(request, database), request.catName), name)
