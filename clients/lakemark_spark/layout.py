"""A DataFrame as files in the layout of lake tables: each directory holds exactly one file.

Spark writes one file for each task and directory. So the number of the task, as one more partition column, gives each
file a directory of its own: with Spark's own writer and committer, no file is ever renamed, and no shuffle is needed
for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, cast
from uuid import uuid4

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from lakemark_core.evolution.sql import quoted
from lakemark_core.storage import join, list_files
from lakemark_core.types import DEFAULT_PARTITION, TIMESTAMP, ListOf, MapOf, Schema, Struct, Type, is_textual
from lakemark_spark.locations import reached_by
from lakemark_spark.queries import text_sql
from lakemark_spark.sessions import is_connect

_GROUP_COLUMN: Final = "lakemark_group"
"""Begins the last part of a directory: ``lakemark_group_<attempt>=<number>``."""

_TIMESTAMP_TYPE: Final = "spark.sql.parquet.outputTimestampType"
_OPEN_FILES: Final = "spark.sql.maxConcurrentOutputFileWriters"
_SHUFFLED_BYTES: Final = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
"""How much of a shuffle one task gets."""
_TASK: Final = "spark_partition_id()"
_PIECES_MAX: Final = 1 << 16
_SMALL_BYTES: Final = 1 << 20
"""What one task gets without asking: far less than what Spark itself would give to one task of a shuffle."""
_SMALL_PACKED_BYTES: Final = 64 << 10
"""The same of files, which are encoded and compressed: a row may take less than a byte of them."""
_SMALL_ROWS: Final = 1 << 16
_SIMPLE: Final = frozenset({"Project", "Filter", "LocalLimit", "LocalRelation", "LogicalRDD", "Range", "Relation"})
_NODE: Final = re.compile(r"^[ :+-]*([^\s\[(]+)", re.MULTILINE)
_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
_ROWS: Final = re.compile(r"rowCount=([0-9.]+(?:E\+?[0-9]+)?)")
_SIZE: Final = re.compile(r"sizeInBytes=([0-9.]+(?:E\+?[0-9]+)?) (B|KiB|MiB)(?![A-Za-z])")
_ROW_OF_TASK: Final = (1 << 33) - 1


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to write an instant. What an earlier attempt left in the same place is not taken for its own."""

    location: str
    prefix: str

    @classmethod
    def new(cls, location: str) -> Attempt:
        return cls(location, uuid4().hex[:12])

    @property
    def column(self) -> str:
        """The partition column with the number of the file: a number, which Spark compares for each row."""
        return f"{_GROUP_COLUMN}_{self.prefix}"


@dataclass(frozen=True, slots=True)
class FileSize:
    """How large files should be. ``rows``: about so many have this size; None: not known."""

    bytes: int
    rows: int | None


def write(rows: DataFrame, schema: Schema, attempt: Attempt, *, distribute: bool, size: FileSize | None = None) -> None:
    """Writes ``rows``, whose columns are the table's, below ``attempt.location``.

    ``distribute``: rows of a partition are first brought together, so that a partition has few files of a good size.
    That is ``size`` as rows are shuffled, where they take more than in a file; a task that has more rows nevertheless
    writes several files. None: as the session says, and rows of tables without partitions stay in their tasks.
    """
    partitions = list(schema.partition_columns)
    if distribute and (partitions or size is not None):
        rows = _rebalanced(rows, partitions)
    elif _is_local(rows):
        rows = rows.coalesce(1)
    number = _TASK
    if size is not None and size.rows is not None:
        # Below the number of the task, this identifier has the number of the row in it.
        piece = f"least((monotonically_increasing_id() & {_ROW_OF_TASK}) div {size.rows}, {_PIECES_MAX - 1})"
        number = f"{_TASK} * {_PIECES_MAX}L + {piece}"
    settings = {} if size is None else {_SHUFFLED_BYTES: f"{size.bytes}b"}
    with _with_settings(rows.sparkSession, settings):
        _save(rows, number, schema, attempt)


def write_ordered(rows: DataFrame, by: Sequence[str], schema: Schema, attempt: Attempt, *, pieces: int | None) -> None:
    """Writes ``rows`` in the order of the columns ``by``; those that are not the table's are left out.

    Rows are cut into about ``pieces`` ranges of equal size, of which each becomes a file, or one for each partition
    that it reaches into. None: each partition becomes one file.
    """
    partitions = [F.col(f"`{name}`") for name in schema.partition_columns]
    if pieces is not None:
        placed = rows.repartitionByRange(pieces, *partitions, *(F.col(f"`{name}`") for name in by))
    else:
        placed = rows.repartition(*partitions) if partitions else rows.repartition(1)
    _save(placed, _TASK, schema, attempt, by=by)


def write_numbered(
    rows: DataFrame, number: str, schema: Schema, attempt: Attempt, more: Sequence[str] = (), by: Sequence[str] = ()
) -> None:
    """Writes the table's columns of ``rows`` below ``attempt.location``, and the columns ``more`` with them.

    ``by``: the columns of ``rows`` by which those of a file are sorted; () leaves their order.

    There is one file for each partition of the table and value of column ``number``, as ``number_of`` tells. Rows that
    go into one file are of one task (``gathered``).
    """
    _save(rows, quoted(number), schema, attempt, more, by)


def write_file(
    rows: DataFrame, partition: str, number: int, schema: Schema, attempt: Attempt, by: Sequence[str]
) -> None:
    """Writes ``rows``, in the order of their columns ``by``, as the one file of a partition and a number.

    ``partition``: its path, "" in a table without partitions. It lies where ``write_numbered`` would write it, but
    Spark neither shuffles the rows nor sorts them by directory. Several can be written at the same time: none of the
    committers has a directory in common with another one. Without rows there is a file, too.
    """
    place = "/".join(part for part in (partition, f"{attempt.column}={number}") if part)
    data = [quoted(field.name) for field in schema.data_columns]
    one = rows.coalesce(1).sortWithinPartitions(*(F.col(f"`{name}`") for name in by)).selectExpr(*data)
    spark, settings = rows.sparkSession, _timestamps_in_microseconds(schema)
    with _with_settings(spark, settings), reached_by(spark, join(attempt.location, place)) as path:
        _parquet_writer(one).parquet(path)


def gathered(rows: DataFrame, number: str, schema: Schema) -> DataFrame:
    """The same rows, those of one partition of the table and value of column ``number`` in one task."""
    if _is_small(rows):
        return rows.coalesce(1)  # which takes no shuffle, here and where the rows are counted
    return rows.repartition(*(F.col(f"`{name}`") for name in (*schema.partition_columns, number)))


def number_of(path: str) -> int:
    """The number under which ``write_numbered`` wrote the file at ``path``."""
    return int(path.rsplit("/", 2)[-2].rpartition("=")[2])


def _save(
    rows: DataFrame,
    number: str,
    schema: Schema,
    attempt: Attempt,
    more: Sequence[str] = (),
    by: Sequence[str] = (),
) -> None:
    """``number`` (Spark SQL) is the same for all rows of a task and partition that go into one file, and for no others.

    ``by``: the columns of ``rows`` that say the order within a file; () leaves it as it is.
    """
    textual = {quoted(field.name) for field in schema.partition_fields if is_textual(field.type)}
    names = [quoted(name) for name in (*(field.name for field in schema.columns), *more)]
    # Spark takes an empty text for null, but would write this one as another partition into the same files.
    columns = [
        f"nullif({name}, {text_sql(DEFAULT_PARTITION)}) AS {name}" if name in textual else name for name in names
    ]
    group = f"{number} AS {attempt.column}"
    spark = rows.sparkSession
    # Spark sorts by directory before it writes, unless rows are in such an order already. With one open file it sorts
    # only from the first row of a second directory on: most tasks have one. Rows that are in order stay so without it.
    settings = _timestamps_in_microseconds(schema) | {_OPEN_FILES: "0" if by else "1"}
    order = [F.col(f"`{name}`") for name in (*schema.partition_columns, attempt.column, *by)] if by else []
    hidden = [quoted(name) for name in by if schema.find(name) is None]
    named = rows.selectExpr(*columns, group, *hidden)
    if order:
        named = named.sortWithinPartitions(*order).selectExpr(*names, attempt.column)
    with _with_settings(spark, settings), reached_by(spark, attempt.location) as place:
        _parquet_writer(named).partitionBy(*schema.partition_columns, attempt.column).parquet(place)


def _parquet_writer(rows: DataFrame) -> DataFrameWriter:
    return (
        rows.write.mode("append")
        # A second file in a directory would be read with the first one by whoever lists directories.
        .option("maxRecordsPerFile", 0)
        # Instants in partition paths are in UTC, whatever the session's zone.
        .option("timeZone", "UTC")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    )


def _rebalanced(rows: DataFrame, partitions: Sequence[str]) -> DataFrame:
    """Rows of a partition in few tasks; adaptive execution splits large ones and gathers small ones."""
    if str(rows.sparkSession.conf.get("spark.sql.adaptive.enabled")).lower() != "true":  # the hint would have no effect
        return rows.repartition(*(F.col(f"`{name}`") for name in partitions)) if partitions else rows
    # In SQL, because DataFrame.hint of Spark 3.5 takes no columns. Braces would be taken for places to fill in.
    names = ", ".join("`" + name.replace("{", "{{").replace("}", "}}") + "`" for name in partitions)
    hint = f"REBALANCE({names})" if names else "REBALANCE"
    return rows.sparkSession.sql(f"SELECT /*+ {hint} */ * FROM {{rows}}", rows=rows)  # noqa: S608


def _is_small(rows: DataFrame) -> bool:
    """Whether Spark knows beforehand that one task can have all rows, and compute them, too."""
    if is_connect(rows.sparkSession):
        return False  # it does not tell
    plan: Any = rows._jdf.queryExecution().optimizedPlan()
    told = str(plan.stats().simpleString())
    return is_small(str(plan.toString()), told, str(plan.collectLeaves().head().stats().simpleString()))


def is_small(plan: str, told: str, leaf: str) -> bool:
    """Whether one task can compute an optimized plan and have all of its rows.

    ``told``: what Spark says of the plan's statistics; ``leaf``: of those of its first leaf.
    """
    size = size_told(told)
    if size is None or size > _SMALL_BYTES or not is_simple(plan):
        return False
    rows = rows_told(leaf)
    source: str = _NODE.findall(plan)[-1]  # of a simple plan there is one leaf, and it comes last
    if rows is not None:
        return rows <= _SMALL_ROWS
    if source == "Relation":
        packed = size_told(leaf)
        return packed is not None and packed <= _SMALL_PACKED_BYTES
    # Rows of a checkpoint have the size that Spark guessed for the plan that made them, whatever this plan did.
    return source != "LogicalRDD"


def is_simple(plan: str) -> bool:
    """Whether an optimized plan, as Spark shows it, does no work that is worth more than one task.

    Few rows may come from an aggregation of many, or from a model in Python.
    """
    return _SIMPLE.issuperset(_NODE.findall(plan))


def size_told(statistics: str) -> float | None:
    """The bytes in what Spark says of a plan, as ``sizeInBytes=3.2 KiB, rowCount=4``; None if they are GiB or more.

    A text, because the number may be larger than what the call of a JVM returns.
    """
    told = _SIZE.search(statistics)
    return float(told[1]) * _UNITS[told[2]] if told else None


def rows_told(statistics: str) -> float | None:
    """The number of rows in what Spark says of a plan, about; None if it does not know."""
    told = _ROWS.search(statistics)
    return float(told[1]) if told else None


def _is_local(rows: DataFrame) -> bool:
    """Whether Spark knows the rows beforehand: it then computes columns at once, the number of the task among them."""
    if is_connect(rows.sparkSession):
        plan: str = cast(Any, rows)._explain_string()
        return "LocalTableScan" in plan and "Exchange" not in plan
    return str(rows._jdf.queryExecution().optimizedPlan().getClass().getSimpleName()) == "LocalRelation"


def written_files(attempt: Attempt) -> list[str]:
    """The paths of the attempt's files, relative to ``attempt.location``, in order.

    One listing of the instant's directory, by pyarrow: Spark's own would take a request for each directory. What
    committers left behind is not among them. Raises Unavailable, StorageRefused.
    """
    marker = f"{attempt.column}="
    return sorted(path for path, _ in list_files(attempt.location) if _is_of(path.split("/"), marker))


def _is_of(path: Sequence[str], marker: str) -> bool:
    # The name of a partition column may begin so.
    hidden = any(part.startswith((".", "_")) and "=" not in part for part in path)
    return len(path) > 1 and path[-2].startswith(marker) and not hidden


_settings_lock = Lock()
_settings_users: dict[tuple[int, str], tuple[int, str | None]] = {}


def _timestamps_in_microseconds(schema: Schema) -> dict[str, str]:
    """Spark's default, INT96, has no statistics."""
    needed = any(_has_timestamp(field.type) for field in schema.data_columns)
    return {_TIMESTAMP_TYPE: "TIMESTAMP_MICROS"} if needed else {}


@contextmanager
def _with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session for the block, where there is no option of a single write.

    They are put back when the last of the writers that run at the same time in the session ends; of values that differ
    the latest one counts for all of them.
    """
    for name, value in settings.items():
        with _settings_lock:
            users, before = _settings_users.get((id(spark), name), (0, None))
            before = before if users else spark.conf.get(name, None)
            spark.conf.set(name, value)
            _settings_users[id(spark), name] = users + 1, before
    try:
        yield
    finally:
        for name in settings:
            with _settings_lock:
                users, before = _settings_users.pop((id(spark), name))
                if users > 1:
                    _settings_users[id(spark), name] = users - 1, before
                elif before is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, before)


def _has_timestamp(column_type: Type) -> bool:
    match column_type:
        case Struct(fields):
            return any(_has_timestamp(field.type) for field in fields)
        case ListOf(element):
            return _has_timestamp(element)
        case MapOf(key, value):
            return _has_timestamp(key) or _has_timestamp(value)
        case _:
            return column_type == TIMESTAMP
