"""The rows by which a table is changed: their keys as the table's columns, and their own columns beside these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Final, Literal, TypeAlias, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from lakemark_core.errors import InvalidArgument, InvalidSchema
from lakemark_core.evolution.sql import quoted
from lakemark_core.table_kind import TableKind
from lakemark_core.types import Field, Schema
from lakemark_spark.batches import BucketGroup, batch_of, computed_once
from lakemark_spark.clauses import SOURCE, TARGET
from lakemark_spark.keys import count_keys
from lakemark_spark.queries import named, selected
from lakemark_spark.schema import columns_for

JoinBy: TypeAlias = Literal["auto", "broadcast", "shuffle"]
"""How source and table are joined: as Spark decides, by sending the source to all executors, or by a sort of both."""

_HINTS: Final = {"broadcast": "broadcast", "shuffle": "merge"}


@dataclass(frozen=True)
class Source:
    """``rows``, computed once, have the key columns ``keys`` under their own names; each has a key of its own.

    ``names``: the columns that the user knows. ``count``: of the rows. ``groups``: those of a table with buckets that
    the keys belong to.
    """

    rows: DataFrame
    keys: Sequence[Field]
    names: Sequence[str]
    count: int
    join: JoinBy = "auto"
    groups: Sequence[BucketGroup] = ()

    def side(self) -> DataFrame:
        """The user's columns, qualified by ``s``, and the columns ``key_names``, for a join with the table."""
        columns = [
            *(F.col(quoted(_inner(name))).alias(name) for name in self.names),
            *(F.col(quoted(field.name)).alias(_key(field)) for field in self.keys),
        ]
        rows = self.rows.select(*columns).alias(SOURCE)
        return rows.hint(_HINTS[self.join]) if self.join in _HINTS else rows

    @property
    def key_names(self) -> list[str]:
        """The key columns of ``side``; no column of a table or of the user is named so."""
        return [_key(field) for field in self.keys]

    def same_key(self) -> Column:
        """Whether a row of the table (``t``) has the key of one of ``side``."""
        return reduce(
            and_, (F.col(f"{TARGET}.{quoted(field.name)}") == F.col(quoted(_key(field))) for field in self.keys)
        )

    def is_there(self) -> Column:
        """Whether an outer join has found a row of ``side``."""
        return F.col(quoted(_key(self.keys[0]))).isNotNull()


def check_join(join: str) -> None:
    """Raises InvalidArgument for what is not a ``JoinBy``."""
    if join not in get_args(JoinBy):
        raise InvalidArgument(f"join={join!r} is not known; use {', '.join(map(repr, get_args(JoinBy)))}")


@contextmanager
def source_of(df: DataFrame, schema: Schema, keys: Sequence[Field], table: str, join: JoinBy) -> Iterator[Source]:
    """``df`` for the block. Raises InvalidSchema; InvalidArgument, with an example: a key has a null or comes twice."""
    with computed_once(_with_keys(df, schema, keys, table)) as kept:
        count = count_keys(kept.select(*(F.col(quoted(field.name)) for field in keys)), keys, schema, table)
        yield Source(kept, keys, df.columns, count, join)


@contextmanager
def bucketed_source_of(df: DataFrame, schema: Schema, kind: TableKind, table: str, join: JoinBy) -> Iterator[Source]:
    """The same by the key of a table with buckets: rows of a bucket are in one task."""
    keys = kind.key_fields(schema)
    # At once: no file is written of these rows that would tell whether they are those of the groups.
    with batch_of(_with_keys(df, schema, keys, table), schema, kind, table, at_once=True) as batch:
        yield Source(batch.rows, keys, df.columns, batch.count, join, batch.groups)


def _with_keys(df: DataFrame, schema: Schema, keys: Sequence[Field], table: str) -> DataFrame:
    names = {field.name.lower() for field in keys}
    twice = sorted({name for name in df.columns if [one.lower() for one in df.columns].count(name.lower()) > 1})
    if twice:
        raise InvalidSchema(f"the DataFrame has column '{twice[0]}' twice (case does not matter)", table=table)
    given = T.StructType([one for one in df.schema.fields if one.name.lower() in names])
    columns = columns_for(given, Schema.build(keys), table)
    return selected(df, [*columns, *(named(quoted(name), _inner(name)) for name in df.columns)])


def _inner(name: str) -> str:
    return f" source {name}"


def _key(field: Field) -> str:
    return f" key {field.name}"
