"""A batch of changes of a table with buckets: checked, computed once, and brought together by bucket."""

# ruff: noqa: S608 - all names are quoted

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from lakemark import DataFile
from lakemark.files import groups_of
from lakemark_core.bucket_directory import Directory
from lakemark_core.errors import InvalidArgument, Unavailable
from lakemark_core.evolution.sql import quoted
from lakemark_core.table_kind import TableKind
from lakemark_core.types import ColumnValue, Field, Schema, name_of_partition, values_of_partition
from lakemark_spark.keys import example_of, from_python, in_python_sql, is_null_sql, null_key, repeated_key
from lakemark_spark.layout import gathered
from lakemark_spark.queries import query
from lakemark_spark.sessions import is_connect

Bucket: TypeAlias = tuple[tuple[ColumnValue, ...], int]
"""The partition and the number of a bucket."""

BUCKET: Final = " bucket"
"""The column with a row's bucket. No column is named so: names do not begin with a space."""

_LOST: Final = "Checkpoint block"
"""Begins what Spark says of rows of a local checkpoint that nobody has any more."""

_LETTER: Final = ord("A")
"""For depth 0 in a directory that is looked up by Spark."""

_COUNT: Final = " count"
_NULL: Final = " null"
_REPEATED: Final = " repeated"
_LACKING: Final = " lacking"


class BucketGroup(NamedTuple):
    """A file group of a table with buckets: its partition, by the values of the partition columns, and its name."""

    partition: tuple[ColumnValue, ...]
    name: str


@dataclass(frozen=True)
class Batch:
    """``rows`` have the table's columns and ``BUCKET``, those of a group in one task. Each has a key of its own.

    ``counts``: how many there are in each group.
    """

    rows: DataFrame
    counts: Mapping[BucketGroup, int]

    @property
    def groups(self) -> Sequence[BucketGroup]:
        """The groups of the rows."""
        return list(self.counts)

    @property
    def count(self) -> int:
        """The number of rows."""
        return sum(self.counts.values())


def by_bucket(rows: DataFrame, schema: Schema, kind: TableKind) -> DataFrame:
    """``rows``, which have the table's columns, with ``BUCKET``, and those of a group in one task."""
    key = f"hash({', '.join(quoted(field.name) for field in kind.bucket_fields(schema))})"
    bucket = f"pmod({key}, {kind.buckets})" if kind.directory is None else _leaf(key, kind.directory)
    return gathered(rows.selectExpr("*", f"{bucket} AS {quoted(BUCKET)}"), BUCKET, schema)


def _leaf(key_hash: str, directory: Directory) -> str:
    """The bucket of the directory that has a hash."""
    depths = directory.depths()
    known = sorted(set(depths))
    leaves = {depth: f"pmod({key_hash}, {1 << depth}) + {1 << depth}" for depth in known}
    if len(known) == 1:
        return leaves[known[0]]
    # One literal, however many buckets there are. In bytes every place is found at once, in a text one after another.
    letters = bytes(depth + _LETTER for depth in depths).hex()
    letter = f"CAST(substr(X'{letters}', pmod({key_hash}, {len(depths)}) + 1, 1) AS STRING)"
    cases = " ".join(f"WHEN '{chr(depth + _LETTER)}' THEN {leaf}" for depth, leaf in leaves.items())
    return f"CASE {letter} {cases} END"


@contextmanager
def batch_of(
    rows: DataFrame,
    schema: Schema,
    kind: TableKind,
    table: str,
    required: Sequence[Field] = (),
    *,
    at_once: bool = False,
) -> Iterator[Batch]:
    """``rows``, which have the table's columns and perhaps more, for the block.

    They are computed once. Raises Unavailable if an executor is lost with some of them; InvalidArgument, with an
    example, if a key has a null or occurs twice, or if a column of ``required`` has a null.

    ``at_once`` False: the job that counts them also keeps them; one job less. If an executor is lost in the middle of
    it, Spark computes its rows again, and what is kept may not be what was counted. So the files of the batch are
    compared with it (``check_written``, ``check_rewritten``).
    """
    # In place before they are kept, so that neither the check nor the writer shuffles them again.
    with computed_once(by_bucket(rows, schema, kind), at_once=at_once) as kept:
        yield Batch(kept, _counts(kept, schema, kind, table, required))


def check_written(batch: Batch, files: Sequence[DataFile]) -> None:
    """Raises Unavailable if ``files``, written of the batch's rows alone, do not have as many in each group."""
    written: dict[BucketGroup, int] = {}
    for file in files:
        group = BucketGroup(file.partition, file.file_group)
        written[group] = written.get(group, 0) + file.row_count
    if written != batch.counts:
        raise _computed_again()


def check_rewritten(batch: Batch, files: Sequence[DataFile], old: Sequence[DataFile]) -> None:
    """Raises Unavailable if ``files``, which replace ``old``, have rows of groups that are neither there nor in the
    batch: of such a group the old file was not read."""
    replaced = groups_of(old).whole(batch.groups)
    if not all(replaced.touch(file.partition, file.file_group) for file in files):
        raise _computed_again()


def _computed_again() -> Unavailable:
    return Unavailable(
        "the rows that were written are not those that were checked: some were lost with an executor, and computing "
        "them again gave others; nothing is changed: call again"
    )


@contextmanager
def computed_once(rows: DataFrame, *, at_once: bool = True) -> Iterator[DataFrame]:
    """The same rows for the block, whatever they are made of. Raises Unavailable if an executor is lost with some.

    ``at_once`` False: by the first job that reads them, which has to read all; one job less.
    """
    kept = rows.localCheckpoint(eager=at_once)
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


def _counts(
    rows: DataFrame, schema: Schema, kind: TableKind, table: str, required: Sequence[Field]
) -> dict[BucketGroup, int]:
    """The number of rows in each group, after all checks."""
    fields = kind.key_fields(schema)
    key, bucket, count = ", ".join(quoted(field.name) for field in fields), quoted(BUCKET), quoted(_COUNT)
    null, lacking = " OR ".join(is_null_sql(field, schema) for field in fields), quoted(_LACKING)
    by_key = (
        f"SELECT {key}, {bucket}, count(*) AS {count}, max({_lacking(required)}) AS {lacking} "
        f"FROM \x00rows GROUP BY {key}, {bucket}"
    )
    place = [f"{in_python_sql(field)} AS {quoted(f' {at}')}" for at, field in enumerate(schema.partition_fields)]
    group = ", ".join([*(quoted(f" {at}") for at in range(len(place))), bucket])
    told = {
        _COUNT: f"sum({count})",
        _NULL: f"count_if({null})",
        _REPEATED: f"count_if({count} > 1)",
        _LACKING: f"max({lacking})",
    }
    # Numbers alone, for which Spark hashes: of texts it would sort all rows.
    totals = query(
        f"SELECT {group}, {', '.join(f'{value} AS {quoted(name)}' for name, value in told.items())} "
        f"FROM (SELECT {', '.join(['*', *place])} FROM ({by_key})) GROUP BY {group}",
        rows=rows,
    ).collect()
    for row in totals:
        if row[_NULL]:
            raise null_key(example_of(rows, by_key, null, fields), table)
        if row[_REPEATED]:
            raise repeated_key(example_of(rows, by_key, f"{count} > 1", fields), table)
        if row[_LACKING] is not None:
            at = row[_LACKING]
            raise InvalidArgument(
                f"column '{required[at].name}' of {table} needs a value in every row, and the DataFrame has rows "
                f"without one, as that with the key {example_of(rows, by_key, f'{lacking} = {at}', fields)}"
            )
    return {BucketGroup(_partition(row, schema), kind.group_name(row[BUCKET])): row[_COUNT] for row in totals}


def _partition(row: Row, schema: Schema) -> tuple[ColumnValue, ...]:
    """The partition of a group, with the very values that the entries of its files have."""
    values = [from_python(row[f" {at}"], field) for at, field in enumerate(schema.partition_fields)]
    return values_of_partition(name_of_partition(values, schema), schema)


def _lacking(required: Sequence[Field]) -> str:
    """The place in ``required`` of a column that has no value in a row; null if all have one."""
    cases = (f"WHEN {quoted(field.name)} IS NULL THEN {at}" for at, field in enumerate(required))
    return f"CASE {' '.join(cases)} END" if required else "CAST(NULL AS INT)"
