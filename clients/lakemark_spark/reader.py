"""Snapshots of lake tables as DataFrames: planned by the service, scanned by Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from lakemark import Client, DataFile, Plan
from lakemark.client.client import Moment
from lakemark.files import groups_of, without_settled_deletes
from lakemark.reading.plan import require_no_deltas
from lakemark_core.evolution import reading_groups, scanned_columns
from lakemark_core.evolution.sql import quoted, scanned_sql, type_sql
from lakemark_core.expressions import Literal
from lakemark_core.expressions.render import literal_sql
from lakemark_core.merge_sql import DELTA_FIELDS, LogSize
from lakemark_core.storage import join
from lakemark_core.table_kind import TableKind
from lakemark_core.types import ColumnValue, Field, ListOf, MapOf, Schema, Struct
from lakemark_spark.connection import SERVER_DEFAULT, use_client
from lakemark_spark.files import scan
from lakemark_spark.kinds import kind_of_table
from lakemark_spark.locations import same_as_listed, same_for_all, spellings
from lakemark_spark.merges import merge
from lakemark_spark.queries import Value, selected, text_sql
from lakemark_spark.schema import struct_of, to_spark
from lakemark_spark.trees import Tree, trees_of

UNION_MAX: Final = 50
"""Up to so many scans are put together; of more, the partitions are looked up by path."""

TREES_MAX: Final = 8
"""Up to so many instants' files are scanned one by one; each scan lists its files, of many in a job of its own."""

_PATH: Final = "lakemark_path"

FilePartitions = Mapping[str, tuple[ColumnValue, ...]]


def read(
    spark: SparkSession,
    table: str,
    where: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    version: int | None = None,
    timestamp: Moment | None = None,
    branch: str = "",
    tag: str = "",
    server: str | Client = SERVER_DEFAULT,
) -> DataFrame:
    """The rows of a snapshot for which ``where`` (Spark SQL) is true; only files that can hold such rows are read.

    The snapshot is chosen now: the latest, ``version``, the last one at or before ``timestamp``, or that of a ``tag``;
    ``branch`` "": main. The DataFrame stays
    with it. Texts that ``where`` compares with instants are in UTC unless they name a zone. ``columns`` None: all,
    partition columns last. Raises TableNotFound, VersionNotFound, InvalidPredicate, InvalidSchema (no such column).
    """
    with use_client(server) as client:
        plan = client.plan(table, where, version=version, timestamp=timestamp, branch=branch, tag=tag)
        files = without_settled_deletes(plan.files())
        kind = kind_of_table(client, table) if any(file.kind == "delta" for file in files) else TableKind()
        rows = merged_rows(spark, plan, files, kind)
    wanted = [plan.schema.field(name).name for name in columns] if columns is not None else None
    if plan.summary.residual and files:
        rows = rows.where(plan.summary.residual)
    names = wanted if wanted is not None else [field.name for field in plan.schema.columns]
    return rows.selectExpr(*map(quoted, names))


def numbered_rows(
    spark: SparkSession,
    plan: Plan,
    files: Sequence[DataFile],
    schema: Schema,
    number: str,
    numbers: Sequence[int] | None = None,
) -> DataFrame:
    """The rows of some files of a plan, and in column ``number`` what ``numbers`` has for their file (None: its place).

    ``schema``: the plan's, or a later one of the table.
    """
    fields = [*_nullable(schema.partition_fields).fields, T.StructField(number, T.IntegerType())]
    if not files:
        return spark.createDataFrame([], T.StructType([*_nullable(schema.data_columns).fields, *fields]))
    scans = []
    for group, members in _groups(spark, plan, files, schema):
        known = {
            join(plan.location, files[at].path): (*files[at].partition, at if numbers is None else numbers[at])
            for at in members
        }
        scans.append(_with_lookup(group, known, fields))
    return reduce(DataFrame.unionAll, scans)


def merged_rows(
    spark: SparkSession, plan: Plan, files: Sequence[DataFile], kind: TableKind, schema: Schema | None = None
) -> DataFrame:
    """The rows that files of a plan stand for, with all columns of ``schema``: the plan's (None), or a later one.

    Of files that share keys ``files`` has all, or none. Raises UnsupportedOperation if there is no key to merge by.
    """
    schema = schema or plan.schema
    files = without_settled_deletes(files)
    changed = groups_of(file for file in files if file.kind == "delta")
    if not changed:
        return rows_of(spark, plan, files, schema)
    if not kind.buckets:
        require_no_deltas(files, plan.version)
    settled: list[DataFile] = []
    bases: list[DataFile] = []
    deltas: list[DataFile] = []
    for file in files:
        under = changed.touch(file.partition, file.file_group)
        (deltas if file.kind == "delta" else bases if under else settled).append(file)
    if kind.merge_by == "row" and len({file.partition for file in (*bases, *deltas)}) == 1:
        kind = kind.in_one_partition(schema)  # by one number rows are found in less time than by several values
    log = rows_of(spark, plan, deltas, schema, DELTA_FIELDS)
    layers = Counter((file.partition, file.file_group) for file in deltas)
    size = LogSize(sum(file.row_count for file in deltas), max(layers.values()))
    merged = merge(rows_of(spark, plan, bases, schema), log, schema, kind, size)
    return merged.unionAll(rows_of(spark, plan, settled, schema)) if settled else merged


def rows_of(
    spark: SparkSession, plan: Plan, files: Sequence[DataFile], schema: Schema, more: Sequence[Field] = ()
) -> DataFrame:
    """The rows of some files of a plan, as they are, with all columns of ``schema``: the plan's, or a later one.

    ``more``: columns that the files have beside those of their schemas; they come before the partition columns.
    """
    if not files:
        return spark.createDataFrame([], _nullable((*schema.data_columns, *more, *schema.partition_fields)))
    scans = []
    for group, members in _groups(spark, plan, files, schema, more):
        known = {files[at].path: files[at].partition for at in members}
        scans += _group_rows(group, known, plan.location, schema)
    return reduce(DataFrame.unionAll, scans)


def _groups(
    spark: SparkSession, plan: Plan, files: Sequence[DataFile], wanted: Schema, more: Sequence[Field] = ()
) -> Iterator[tuple[_Scan, list[int]]]:
    """Each scan that is needed, with the places of its files."""
    schemas = {file.schema_id: plan.file_schema(file) for file in files}
    for group in reading_groups(schemas, wanted):
        columns = [*scanned_columns([schemas[one] for one in group], wanted), *((field, field) for field in more)]
        yield _Scan(spark, columns), [at for at, file in enumerate(files) if file.schema_id in group]


@dataclass(frozen=True, slots=True)
class _Scan:
    """Of files whose schemas are read alike: each data column of the table with what is asked of the files."""

    spark: SparkSession
    columns: Sequence[tuple[Field, Field | None]]

    def rows(self, paths: Sequence[str], more: Sequence[T.StructField] = (), root: str | None = None) -> DataFrame:
        """``more``: the partition columns that Spark reads off the paths below ``root``."""
        return scan(self.spark, paths, T.StructType([*_nullable(self.scanned).fields, *more]), root)

    @property
    def scanned(self) -> list[Field]:
        """What is asked of the files."""
        return [scanned for _, scanned in self.columns if scanned is not None]

    def values(self) -> list[Value]:
        """The table's data columns from those of ``rows``."""
        return [_value(column, scanned) for column, scanned in self.columns]


def _group_rows(group: _Scan, files: FilePartitions, location: str, schema: Schema) -> list[DataFrame]:
    """The rows of files, by their paths in the table, in as few scans as can be without a join."""
    by_partition: dict[tuple[ColumnValue, ...], list[str]] = {}
    for path, values in files.items():
        by_partition.setdefault(values, []).append(join(location, path))
    trees = trees_of(files, schema, [field.name for field in group.scanned])
    if trees is not None and len(trees) <= min(TREES_MAX, len(by_partition) - 1):
        return [_of_tree(group, location, tree, paths, schema) for tree, paths in trees.items()]
    if len(by_partition) > UNION_MAX:
        known = {join(location, path): values for path, values in files.items()}
        return [_with_lookup(group, known, _nullable(schema.partition_fields).fields)]
    return [_with_constants(group, paths, values, schema) for values, paths in by_partition.items()]


def _of_tree(group: _Scan, location: str, tree: Tree, paths: Sequence[str], schema: Schema) -> DataFrame:
    """Files of many partitions."""
    fields = [*_nullable(schema.partition_fields).fields, T.StructField(tree.column, T.StringType())]
    rows = group.rows([join(location, path) for path in paths], fields, root=join(location, tree.root))
    return selected(rows, [*group.values(), *(quoted(field.name) for field in schema.partition_fields)])


def _with_constants(group: _Scan, paths: Sequence[str], values: Sequence[ColumnValue], schema: Schema) -> DataFrame:
    """The files of one partition; Spark folds predicates on the constants away."""
    constants = [_constant(value, field) for value, field in zip(values, schema.partition_fields, strict=True)]
    return selected(group.rows(paths), [*group.values(), *constants])


def _with_lookup(
    group: _Scan, known: Mapping[str, Sequence[ColumnValue]], fields: Sequence[T.StructField]
) -> DataFrame:
    """Many files in one scan, joined by path with what is known of each: the values of ``fields``."""
    rows = group.rows(list(known))
    by_path = {same_for_all(path): values for path, values in known.items()}
    # Spark spells a file's path in its own way, which its list of files shows.
    spelled = {spelling: uri for uri in rows.inputFiles() for spelling in spellings(uri)}
    lookup = [(spelling, *by_path[same_as_listed(uri)]) for spelling, uri in spelled.items()]
    # Columns of the files may have any name: those of the look-up get names that none of them has.
    looked_up = [T.StructField(f"{_PATH}.{at}", field.dataType) for at, field in enumerate(fields)]
    table = group.spark.createDataFrame(lookup, T.StructType([T.StructField(_PATH, T.StringType()), *looked_up]))
    found = selected(rows, [*group.values(), f"_metadata.file_path AS {_PATH}_of_row"]).join(
        F.broadcast(table), F.col(f"{_PATH}_of_row") == F.col(_PATH), "left"
    )
    # A row without its partition must never pass for one with nulls.
    missing = F.raise_error(F.concat(F.lit("no partition is known for file "), F.col(f"{_PATH}_of_row")))
    values = [
        F.when(F.col(_PATH).isNull(), missing.cast(field.dataType))
        .otherwise(F.col(f"`{_PATH}.{at}`"))
        .alias(field.name)
        for at, field in enumerate(fields)
    ]
    return found.select(*(F.col(f"`{column.name}`") for column, _ in group.columns), *values)


def _value(column: Field, scanned: Field | None) -> Value:
    """A column of the table, by its name, from what a scan of files asks for."""
    text = scanned_sql(column, scanned)
    if scanned is not None and scanned.type == column.type:
        return f"{text} AS {quoted(column.name)}"
    if isinstance(column.type, Struct | ListOf | MapOf):
        # SQL does not say whether what is inside may be null.
        return F.expr(text).cast(to_spark(column.type)).alias(column.name)
    return f"CAST({text} AS {type_sql(column.type)}) AS {quoted(column.name)}"


def _constant(value: ColumnValue, field: Field) -> str:
    text = text_sql(value) if isinstance(value, str) else literal_sql(Literal(value, field.type))
    return f"CAST({text} AS {type_sql(field.type)}) AS {quoted(field.name)}"


def _nullable(fields: Sequence[Field]) -> T.StructType:
    """Spark trusts what a schema says about nulls; what files hold is not its promise to make."""
    return T.StructType([T.StructField(field.name, field.dataType, True) for field in struct_of(fields).fields])
