"""Constraints: there are none on any table, which is what engines want to know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakemark_hms.names import database_name
from lakemark_hms.services import Services
from lakemark_hms.wire.dispatch import Call, Handler
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


def handlers(services: Services) -> dict[str, Handler]:
    def none_of(make: Callable[[], Any], database: str = "db_name", table: str = "tbl_name") -> Handler:
        def handler(call: Call) -> Any:
            request = call.args.request
            name = getattr(request, table)
            if name:  # foreign keys may be asked by either of their tables
                services.find(database_name(getattr(request, database), request.catName), name)
            return make()

        return handler

    return {
        "get_primary_keys": none_of(lambda: PrimaryKeysResponse(primaryKeys=[])),
        "get_foreign_keys": none_of(lambda: ForeignKeysResponse(foreignKeys=[]), "foreign_db_name", "foreign_tbl_name"),
        "get_unique_constraints": none_of(lambda: UniqueConstraintsResponse(uniqueConstraints=[])),
        "get_not_null_constraints": none_of(lambda: NotNullConstraintsResponse(notNullConstraints=[])),
        "get_default_constraints": none_of(lambda: DefaultConstraintsResponse(defaultConstraints=[])),
        "get_check_constraints": none_of(lambda: CheckConstraintsResponse(checkConstraints=[])),
        "get_all_table_constraints": none_of(
            lambda: AllTableConstraintsResponse(allTableConstraints=SQLAllTableConstraints()), "dbName", "tblName"
        ),
    }
