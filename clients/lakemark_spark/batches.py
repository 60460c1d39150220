"""A batch of changes of a table with buckets: checked, computed once, and brought together by bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from lakemark_core.bucket_directory import Directory
from lakemark_core.errors import InvalidArgument, Unavailable
from lakemark_core.table_kind import TableKind
from lakemark_core.types import ColumnValue, Field, Schema, is_textual, name_of_partition, values_of_partition
from lakemark_spark.keys import from_python, in_python, null_key, repeated_key
from lakemark_spark.layout import gathered
from lakemark_spark.sessions import is_connect

BUCKET: Final = " bucket"
"""The column with a row's bucket. No column is named so: names do not begin with a space."""

_NULL_PARTITION: Final = ("", "__HIVE_DEFAULT_PARTITION__")
"""Texts that a partition's path cannot hold: they are read as null."""

_LOST: Final = "Checkpoint block"
"""Begins what Spark says of rows of a local checkpoint that nobody has any more."""

_LETTER: Final = ord("A")
"""For depth 0 in a directory that is looked up by Spark."""

_COUNT: Final = " count"
_EXAMPLE: Final = " example"
_NULL: Final = " null"
_REPEATED: Final = " repeated"
_LACKING: Final = " lacking"


class BucketGroup(NamedTuple):
    """A file group of a table with buckets: its partition, by the values of the partition columns, and its name."""

    partition: tuple[ColumnValue, ...]
    name: str


@dataclass(frozen=True)
class Batch:
    """``rows``, ``count`` of them, have the table's columns and ``BUCKET``, those of a group in one task.

    Each has a key of its own.
    """

    rows: DataFrame
    groups: Sequence[BucketGroup]
    count: int


def by_bucket(rows: DataFrame, schema: Schema, kind: TableKind) -> DataFrame:
    """``rows``, which have the table's columns, with ``BUCKET``, and those of a group in one task."""
    key = F.hash(*(F.col(f"`{field.name}`") for field in kind.bucket_fields(schema)))
    bucket = F.pmod(key, F.lit(kind.buckets)) if kind.directory is None else _leaf(key, kind.directory)
    return gathered(rows.withColumn(BUCKET, bucket), BUCKET, schema)


def _leaf(key_hash: Column, directory: Directory) -> Column:
    """The bucket of the directory that has a hash."""
    depths = directory.depths()
    known = sorted(set(depths))
    leaves = {depth: F.pmod(key_hash, F.lit(1 << depth)) + F.lit(1 << depth) for depth in known}
    if len(known) == 1:
        return leaves[known[0]]
    # One literal, however many buckets there are. In bytes every place is found at once, in a text one after another.
    letters = F.expr(f"X'{bytes(depth + _LETTER for depth in depths).hex()}'")
    letter = letters.substr(F.pmod(key_hash, F.lit(len(depths))) + F.lit(1), F.lit(1)).cast("string")
    return F.coalesce(*(F.when(letter == chr(depth + _LETTER), leaf) for depth, leaf in leaves.items()))


@contextmanager
def batch_of(
    rows: DataFrame, schema: Schema, kind: TableKind, table: str, required: Sequence[Field] = ()
) -> Iterator[Batch]:
    """``rows``, which have the table's columns and perhaps more, for the block.

    They are computed once. Raises Unavailable if an executor is lost with some of them; InvalidArgument, with an
    example, if a key has a null or occurs twice, or if a column of ``required`` has a null.
    """
    # In place before they are kept, so that neither the check nor the writer shuffles them again.
    with computed_once(by_bucket(rows, schema, kind)) as kept:
        groups, count = _groups(kept, schema, kind, table, required)
        yield Batch(kept, groups, count)


@contextmanager
def computed_once(rows: DataFrame) -> Iterator[DataFrame]:
    """The same rows for the block, whatever they are made of. Raises Unavailable if an executor is lost with some."""
    kept = rows.localCheckpoint()
    try:
        yield kept
    except (Py4JJavaError, PySparkException) as error:
        if _LOST in str(error):
            raise Unavailable(
                "rows that were computed once are lost with an executor, and computing them again could give others; "
                "nothing is changed: call again"
            ) from error
        raise
    finally:
        if not is_connect(rows.sparkSession):  # there the rows are freed when the client drops the DataFrame
            kept._jdf.queryExecution().logical().rdd().unpersist(False)


def _groups(
    rows: DataFrame, schema: Schema, kind: TableKind, table: str, required: Sequence[Field]
) -> tuple[list[BucketGroup], int]:
    """The groups of the rows, and the number of these, after all checks."""
    fields = kind.key_fields(schema)
    key = [_column(field) for field in fields]
    example = F.col(f"`{_EXAMPLE}`")
    by_key = (
        rows.groupBy(*key, F.col(f"`{BUCKET}`"))
        .agg(F.count("*").alias(_COUNT), F.max(_lacking(required)).alias(_LACKING))
        .withColumn(_EXAMPLE, F.to_json(F.struct(*key), {"ignoreNullFields": "false"}))
    )
    faults = {
        _NULL: reduce(or_, (_is_null(field, schema) for field in fields)),
        _REPEATED: F.col(f"`{_COUNT}`") > 1,
        _LACKING: F.col(f"`{_LACKING}`").isNotNull(),
    }
    place = [in_python(field).alias(f" {at}") for at, field in enumerate(schema.partition_fields)]
    totals = (
        by_key.groupBy(*place, F.col(f"`{BUCKET}`"))
        .agg(
            *(F.max(F.when(fault, example)).alias(f"{name} key") for name, fault in faults.items()),
            F.max(f"`{_LACKING}`").alias(_LACKING),
            F.sum(f"`{_COUNT}`").alias(_COUNT),
        )
        .collect()
    )
    for row in totals:
        if row[f"{_NULL} key"] is not None:
            raise null_key(row[f"{_NULL} key"], table)
        if row[f"{_REPEATED} key"] is not None:
            raise repeated_key(row[f"{_REPEATED} key"], table)
        if row[_LACKING] is not None:
            raise InvalidArgument(
                f"column '{row[_LACKING]}' of {table} needs a value in every row, and the DataFrame has rows without "
                f"one, as that with the key {row[f'{_LACKING} key']}"
            )
    groups = [BucketGroup(_partition(row, schema), kind.group_name(row[BUCKET])) for row in totals]
    return groups, sum(row[_COUNT] for row in totals)


def _partition(row: Row, schema: Schema) -> tuple[ColumnValue, ...]:
    """The partition of a group, with the very values that the entries of its files have."""
    values = [from_python(row[f" {at}"], field) for at, field in enumerate(schema.partition_fields)]
    return values_of_partition(name_of_partition(values, schema), schema)


def _is_null(field: Field, schema: Schema) -> Column:
    column = _column(field)
    if schema.is_partition(field.name) and is_textual(field.type):
        return column.isNull() | column.isin(*_NULL_PARTITION)
    return column.isNull()


def _lacking(required: Sequence[Field]) -> Column:
    """The name of a column that has no value in a row; null if all have one."""
    none = F.lit(None).cast("string")
    return F.coalesce(none, *(F.when(_column(field).isNull(), F.lit(field.name)) for field in required))


def _column(field: Field) -> Column:
    return F.col(f"`{field.name}`")
