"""What has become of a table's rows between two versions: inserts, updates and deletes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from lakemark import Client, Plan
from lakemark.reading.partitions import partitions_predicate
from lakemark_core.errors import InvalidArgument, InvalidSchema
from lakemark_core.evolution.sql import quoted
from lakemark_core.types import Field, ListOf, MapOf, Schema, Struct, Type
from lakemark_spark.connection import SERVER_DEFAULT, use_client
from lakemark_spark.groups import files_of_groups
from lakemark_spark.kinds import kind_of_table
from lakemark_spark.reader import merged_rows, rows_of

CHANGE: Final = "lakemark_change"
"""The column that says what has become of a row."""

_OLD: Final = " old "
_NEW: Final = " new "


def changes(
    spark: SparkSession,
    table: str,
    from_version: int,
    to_version: int | None = None,
    *,
    before: bool = False,
    branch: str = "",
    server: str | Client = SERVER_DEFAULT,
) -> DataFrame:
    """The rows that differ between two versions, with the column ``lakemark_change`` before the table's columns.

    It is ``insert``, ``update_after`` (the row as it is now) or ``delete`` (as it was). ``before``: each updated row is
    there as it was, too, as ``update_before``. What came and went again between the versions is not told, nor are rows
    that were only written again (compactions). ``to_version`` None: the latest. Columns are those of ``to_version``.

    Rows are told apart by the table's key. In a table without one there are no updates: a row that was changed is a
    ``delete`` and an ``insert``. Only file groups (without buckets: files) that changed are read. Raises TableNotFound,
    VersionNotFound, InvalidArgument.
    """
    with use_client(server) as client:
        upto = client.plan(table, version=to_version, branch=branch, limit=1)
        if not 0 <= from_version <= upto.version:
            raise InvalidArgument(
                f"from_version={from_version} is not a version up to {upto.version}, the one that is compared with"
            )
        if upto.schema.find(CHANGE) is not None:
            raise InvalidSchema(f"{table} has a column '{CHANGE}', a name that changes need: rename it", table=table)
        kind = kind_of_table(client, table)
        changed = client.changes(table, from_version, upto.version, branch=branch)
        files = [*changed.added, *changed.removed]
        where = partitions_predicate(list(dict.fromkeys(file.partition for file in files)), upto.schema)
        groups = {(file.partition, file.file_group) for file in files}
        sides = []
        for version, own in ((from_version, changed.removed), (upto.version, changed.added)):
            plan = _planned(client, table, version, branch, upto.schema, where)
            paths = {file.path for file in own}
            differ = files_of_groups(plan, groups) if kind.buckets else [file for file in plan if file.path in paths]
            sides.append(merged_rows(spark, plan, differ, kind, upto.schema))
        old, new = sides
        if kind.buckets and not changed.removed and all(file.kind == "delta" for file in changed.added):
            # Nothing but deltas came: only their keys are looked at, which are few.
            keys = rows_of(spark, plan, changed.added, upto.schema)
            old, new = (_with_keys(side, keys, kind.key_fields(upto.schema)) for side in sides)
    if kind.key:
        return _by_key(old, new, kind.key_fields(upto.schema), upto.schema, before=before)
    return _by_row(old, new)


def _planned(client: Client, table: str, version: int, branch: str, schema: Schema, where: str | None) -> Plan:
    if where is None:
        return client.plan(table, version=version, branch=branch)
    # A version of an older schema may have the columns under other names.
    behind = client.plan(table, version=version, branch=branch, limit=1).schema.schema_id != schema.schema_id
    return client.plan(table, None if behind else where, version=version, branch=branch)


def _with_keys(rows: DataFrame, keys: DataFrame, key: Sequence[Field]) -> DataFrame:
    names = [field.name for field in key]
    return rows.join(keys.select(*map(quoted, names)), names, "left_semi").select(*map(quoted, rows.columns))


def _by_key(old: DataFrame, new: DataFrame, key: Sequence[Field], schema: Schema, *, before: bool) -> DataFrame:
    names = [field.name for field in schema.columns]
    there, here = _renamed(old, _OLD, names), _renamed(new, _NEW, names)
    same_key = reduce(and_, (_of(_OLD, field) == _of(_NEW, field) for field in key))
    both = there.join(here, same_key, "full")
    same = reduce(and_, (_comparable(_OLD, one).eqNullSafe(_comparable(_NEW, one)) for one in schema.columns))
    was, is_there = _of(_OLD, key[0]).isNotNull(), _of(_NEW, key[0]).isNotNull()
    updated = ["update_before", "update_after"] if before else ["update_after"]
    kinds = (
        F.when(~was, F.array(F.lit("insert")))
        .when(~is_there, F.array(F.lit("delete")))
        .when(~same, F.array(*map(F.lit, updated)))
    )
    # A row whose kinds are null has not changed; explode leaves it out.
    told = both.select("*", F.explode(kinds).alias(CHANGE))
    as_it_was = F.col(CHANGE).isin("delete", "update_before")
    columns = [F.when(as_it_was, _of(_OLD, one)).otherwise(_of(_NEW, one)).alias(one.name) for one in schema.columns]
    return told.select(F.col(CHANGE), *columns)


def _by_row(old: DataFrame, new: DataFrame) -> DataFrame:
    """Without a key: what the one has more often than the other."""
    inserted = new.exceptAll(old).select(F.lit("insert").alias(CHANGE), "*")
    return inserted.unionAll(old.exceptAll(new).select(F.lit("delete").alias(CHANGE), "*"))


def _renamed(rows: DataFrame, prefix: str, names: Sequence[str]) -> DataFrame:
    return rows.select(*(F.col(quoted(name)).alias(prefix + name) for name in names))


def _of(prefix: str, field: Field) -> Column:
    return F.col(quoted(prefix + field.name))


def _comparable(prefix: str, field: Field) -> Column:
    """Spark does not compare maps; their text it does."""
    column = _of(prefix, field)
    return F.to_json(F.struct(column.alias("v"))) if _has_map(field.type) else column


def _has_map(column_type: Type) -> bool:
    match column_type:
        case MapOf():
            return True
        case ListOf(element):
            return _has_map(element)
        case Struct(fields):
            return any(_has_map(field.type) for field in fields)
    return False
