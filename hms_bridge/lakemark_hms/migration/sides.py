"""One side of a migration: a Metastore, read object by object and page by page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from lakemark_hms.outside import Metastore, OutsideRefused
from lakemark_thrift import ttypes as t
from lakemark_thrift.ttypes import (
    ColumnStatisticsObj,
    Database,
    Function,
    HiveObjectPrivilege,
    HiveObjectRef,
    Partition,
    RolePrincipalGrant,
    Table,
)

_UNKNOWN: Final = "TApplicationException"
"""What a Metastore answers that does not know a method."""


class ConstraintKind(NamedTuple):
    """``asks`` makes the request for those of a table, ``field`` of the answer has them."""

    words: str
    get: str
    asks: Callable[[str, str], Any]
    field: str
    name: str
    add: str
    adds: Callable[[list[Any]], Any]


def _of_hive_3(words: str, camel: str, name: str, asked: type[Any], added: type[Any]) -> ConstraintKind:
    """Of the kinds that Hive 3 has brought; ``camel`` begins the names of fields."""
    method = f"{words.lower().replace(' ', '_')}"
    return ConstraintKind(
        words,
        f"get_{method}s",
        lambda db, table: asked(catName="hive", db_name=db, tbl_name=table),
        f"{camel}Constraints",
        name,
        f"add_{method}",
        lambda columns: added(**{f"{camel}ConstraintCols": columns}),
    )


CONSTRAINTS: Final = (
    ConstraintKind(
        "primary key",
        "get_primary_keys",
        lambda db, table: t.PrimaryKeysRequest(db_name=db, tbl_name=table),
        "primaryKeys",
        "pk_name",
        "add_primary_key",
        lambda columns: t.AddPrimaryKeyRequest(primaryKeyCols=columns),
    ),
    _of_hive_3("unique constraint", "unique", "uk_name", t.UniqueConstraintsRequest, t.AddUniqueConstraintRequest),
    _of_hive_3("NOT NULL constraint", "notNull", "nn_name", t.NotNullConstraintsRequest, t.AddNotNullConstraintRequest),
    _of_hive_3("default constraint", "default", "dc_name", t.DefaultConstraintsRequest, t.AddDefaultConstraintRequest),
    _of_hive_3("check constraint", "check", "dc_name", t.CheckConstraintsRequest, t.AddCheckConstraintRequest),
    ConstraintKind(
        "foreign key",
        "get_foreign_keys",
        lambda db, table: t.ForeignKeysRequest(
            parent_db_name=None, parent_tbl_name=None, foreign_db_name=db, foreign_tbl_name=table
        ),
        "foreignKeys",
        "fk_name",
        "add_foreign_key",
        lambda columns: t.AddForeignKeyRequest(foreignKeyCols=columns),
    ),
)
"""Foreign keys come last: they need the primary keys of other tables."""


class Side:
    """Not thread-safe. Methods raise OutsideUnavailable, OutsideRefused; None means that there is no such object."""

    def __init__(self, uri: str) -> None:
        self.metastore = Metastore(uri)

    def close(self) -> None:
        self.metastore.close()

    def databases(self) -> list[str]:
        return sorted(self.metastore.call("get_all_databases"))

    def database(self, name: str) -> Database | None:
        answer: Database | None = self.metastore.find("get_database", name=name)
        return answer

    def table_names(self, database: str) -> list[str]:
        return sorted(self.metastore.call("get_all_tables", db_name=database))

    def table(self, database: str, name: str) -> Table | None:
        request = t.GetTableRequest(dbName=database, tblName=name, capabilities=_capabilities())
        answer = self.metastore.find("get_table_req", req=request)
        return None if answer is None else answer.table

    def partition_names(self, database: str, table: str) -> list[str]:
        names: list[str] = self.metastore.call("get_partition_names", db_name=database, tbl_name=table, max_parts=-1)
        return names

    def partitions(self, database: str, table: str, names: Sequence[str]) -> list[Partition]:
        """Those of the names that are there, in any order."""
        if not names:
            return []
        answer: list[Partition] = self.metastore.call(
            "get_partitions_by_names", db_name=database, tbl_name=table, names=list(names)
        )
        return answer

    def statistics(self, database: str, table: str, columns: Sequence[str]) -> list[ColumnStatisticsObj]:
        request = t.TableStatsRequest(dbName=database, tblName=table, colNames=list(columns), engine="hive")
        answer = self.metastore.find("get_table_statistics_req", request=request)
        return [] if answer is None else list(answer.tableStats or ())

    def partition_statistics(
        self, database: str, table: str, names: Sequence[str], columns: Sequence[str]
    ) -> dict[str, list[ColumnStatisticsObj]]:
        request = t.PartitionsStatsRequest(
            dbName=database, tblName=table, colNames=list(columns), partNames=list(names), engine="hive"
        )
        answer = self.metastore.find("get_partitions_statistics_req", request=request)
        return {} if answer is None else dict(answer.partStats or {})

    def function_names(self, database: str) -> list[str]:
        return sorted(self.metastore.call("get_functions", dbName=database, pattern="*"))

    def function(self, database: str, name: str) -> Function | None:
        answer: Function | None = self.metastore.find("get_function", dbName=database, funcName=name)
        return answer

    def constraints(self, kind: ConstraintKind, database: str, table: str) -> list[Any] | None:
        """The columns of all of them; None if this Metastore knows no such constraints."""
        answer = self._if_known(kind.get, request=kind.asks(database, table))
        return answer if answer is None else list(getattr(answer, kind.field, None) or ())

    def role_names(self) -> list[str] | None:
        """None if this Metastore has no roles."""
        answer = self._if_known("get_role_names")
        return answer if answer is None else sorted(answer)

    def members(self, role: str) -> list[RolePrincipalGrant]:
        """Who has the role."""
        request = t.GetPrincipalsInRoleRequest(roleName=role)
        answer = self.metastore.call("get_principals_in_role", request=request)
        return list(answer.principalGrants or ())

    def privileges(self, on: HiveObjectRef) -> list[HiveObjectPrivilege] | None:
        """Of everybody on the object itself; None if this Metastore has no privileges."""
        answer = self._if_known("list_privileges", principal_name=None, principal_type=None, hiveObject=on)
        return answer if answer is None else [one for one in answer if not one.hiveObject.columnName]

    def _if_known(self, method: str, **arguments: Any) -> Any:
        """The answer of a method, [] if there is no such object, None if this Metastore does not have the method."""
        try:
            answer = self.metastore.find(method, **arguments)
        except OutsideRefused as error:
            if error.details["error"] == _UNKNOWN:
                return None
            raise
        return [] if answer is None else answer


def _capabilities() -> t.ClientCapabilities:
    """Without this one, Hive refuses tables of its own transactions."""
    return t.ClientCapabilities(values=[t.ClientCapability.INSERT_ONLY_TABLES])
