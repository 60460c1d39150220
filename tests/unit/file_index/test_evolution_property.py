"""Files written with older schemas and planned with the latest one, against brute force over their rows."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal as Dec
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakemark_server.file_index.parts.part as parts_module
from lakemark_core.expressions import Expr, to_sql
from lakemark_core.expressions.casts import EXACT
from lakemark_core.messages.values import value_to_proto
from lakemark_core.types import (
    BIGINT,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    TIMESTAMP,
    TINYINT,
    Decimal,
    Field,
    Schema,
    Type,
)
from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.file_index.entries.columns import from_messages
from lakemark_server.file_index.pages import blocks
from lakemark_server.file_index.pages.contents import with_version
from lakemark_server.file_index.parts.fold import Snapshot, VersionEdit, empty, fold
from lakemark_server.file_index.parts.part import in_memory
from lakemark_server.file_index.planning.planner import Planner
from tests.lengths import examples
from tests.unit.predicates import PARTITIONS, POOLS, SCHEMA, Row, holds, predicates, values

# What each column may have been before it was widened to what it is in SCHEMA.
EARLIER: dict[str, list[Type]] = {
    "i": [INT, SMALLINT, TINYINT],
    "l": [BIGINT, INT, TINYINT],
    "x": [DOUBLE, FLOAT, INT],
    "m": [Decimal(10, 2), Decimal(9, 2), Decimal(4, 1), INT],
    "w": [Decimal(30, 5), Decimal(20, 3), Decimal(5, 0)],
    "t": [TIMESTAMP, DATE],
}
DATA = [column for column in SCHEMA.columns if column.name not in PARTITIONS]
DROPPED = Field(99, "dropped", INT)
_BITS = {TINYINT: 8, SMALLINT: 16, INT: 32, BIGINT: 64}


@dataclass
class Written:
    """A file: the schema it was written with, its rows as the latest schema reads them, and its entry."""

    schema: Schema
    rows: list[Row]
    entry: p.DataFile


@st.composite
def schemas(draw: st.DrawFn, schema_id: int) -> Schema:
    columns = []
    for column in DATA:
        if draw(st.integers(0, 4)):  # else it was added later
            earlier = draw(st.sampled_from(EARLIER.get(column.name, [column.type])))
            columns.append(Field(column.id, draw(st.sampled_from([column.name, "old_" + column.name])), earlier))
    if not columns or draw(st.booleans()):
        columns.append(DROPPED)
    return Schema.build([*columns, *SCHEMA.partition_fields], PARTITIONS, schema_id)


def fitting(name: str, of: Type) -> list[Any]:
    """Values from the latest column's pool that the earlier type can hold, in the latest type."""
    if of in _BITS:
        half = 1 << (_BITS[of] - 1)
        return [one for one in POOLS[name] if math.isfinite(one) and one == int(one) and -half <= one < half]
    if of == FLOAT:
        with np.errstate(over="ignore"):
            return [one for one in POOLS[name] if math.isnan(one) or float(np.float32(one)) == one]
    if isinstance(of, Decimal):
        limit = Dec(10) ** (of.precision - of.scale)
        return [one for one in POOLS[name] if abs(one) < limit and one.quantize(_unit(of), context=EXACT) == one]
    if of == DATE and name == "t":
        return [one for one in POOLS[name] if one.timetz() == dt.time(tzinfo=dt.UTC)]
    return POOLS[name]


def _unit(of: Decimal) -> Dec:
    return Dec(1).scaleb(-of.scale)


def written_value(value: Any, of: Type) -> Any:
    """A value of the latest type, in the earlier type."""
    if of in _BITS:
        return int(value)
    if of == DATE and isinstance(value, dt.datetime):
        return value.date()
    return value.quantize(_unit(of), context=EXACT) if isinstance(of, Decimal) else value


@st.composite
def files(draw: st.DrawFn) -> list[Written]:
    known = [draw(schemas(number)) for number in range(1, draw(st.integers(2, 4)))] + [SCHEMA]
    found = []
    for number in range(draw(st.integers(1, 8))):
        schema = draw(st.sampled_from(known))
        # The empty text is null in a partition's name, as in Hive and Spark.
        partition = {name: draw(values(name).map(lambda value: None if value == "" else value)) for name in PARTITIONS}
        rows = []
        for _ in range(draw(st.integers(0, 3))):
            row = dict.fromkeys((column.name for column in DATA), None) | partition
            for column in DATA:
                earlier = schema.find_id(column.id)
                if earlier is not None:
                    pool = fitting(column.name, earlier.type)
                    row[column.name] = draw(st.none() | st.sampled_from(pool)) if pool else None
            rows.append(row)
        statistics = [draw(statistic(column, schema, rows)) for column in DATA if schema.find_id(column.id)]
        if schema.find_id(DROPPED.id) and draw(st.booleans()):
            statistics.append(p.ColumnStatistics(column_id=DROPPED.id, null_count=0))
        entry = p.DataFile(
            path=f"1/{number}/f",
            file_group=str(number),
            row_count=len(rows),
            partition=[value_to_proto(partition[field.name], field.type) for field in SCHEMA.partition_fields],
            statistics=statistics,
        )
        found.append(Written(schema, rows, entry))
    return found


@st.composite
def statistic(draw: st.DrawFn, column: Field, schema: Schema, rows: list[Row]) -> p.ColumnStatistics:
    """Correct statistics in the type of the file's schema, some of them missing."""
    field = schema.find_id(column.id)
    assert field is not None
    found = [row[column.name] for row in rows if row[column.name] is not None]
    plain = [one for one in found if not (isinstance(one, float) and math.isnan(one))]
    message = p.ColumnStatistics(column_id=column.id)
    if plain and draw(st.integers(0, 4)):
        message.min.CopyFrom(value_to_proto(written_value(min(plain), field.type), field.type))
    if plain and draw(st.integers(0, 4)):
        message.max.CopyFrom(value_to_proto(written_value(max(plain), field.type), field.type))
    if draw(st.integers(0, 4)):
        message.null_count = len(rows) - len(found)
    if field.type in (FLOAT, DOUBLE) and draw(st.integers(0, 4)):
        message.nan_count = len(found) - len(plain)
    return message


def snapshot_of(written: list[Written], *, as_list: bool) -> Snapshot:
    """A snapshot with one version for each file, through blocks as the store would have them."""
    changes = []
    for version, one in enumerate(written, 1):
        batch = from_messages([one.entry], one.schema)
        listed = blocks.encode_list(p.DataFileList(files=[one.entry])) if as_list else None
        encoded = [listed] if listed else blocks.encode(batch)
        batches = [with_version(blocks.decode(block, one.schema), version) for block in encoded]
        added = tuple(in_memory(batch, one.schema) for batch in batches)
        changes.append(VersionEdit(version, added=added))
    return fold(empty(SCHEMA), changes, VersionRecord(version=len(written)), SCHEMA)


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(files(), predicates(), st.booleans(), st.sampled_from([1, 3, 8_192]))
def test_no_row_is_lost_whatever_schema_a_file_was_written_with(
    written: list[Written], expr: Expr, as_list: bool, part_files_max: int
) -> None:
    most, parts_module.PART_FILES_MAX = parts_module.PART_FILES_MAX, part_files_max  # type: ignore[misc]
    try:
        snapshot = snapshot_of(written, as_list=as_list)
    finally:
        parts_module.PART_FILES_MAX = most  # type: ignore[misc]
    page = Planner().plan(snapshot, expr).page(0, 100, [column.id for column in DATA])
    planned = {row["path"]: row for row in page.to_pylist()}
    for one in written:
        truths = [holds(expr, row) for row in one.rows]
        found = planned.get(one.entry.path)
        if any(truths):
            assert found is not None, to_sql(expr)
        if found is not None:
            assert found["schema_id"] == one.schema.schema_id
            _check_statistics(found, one.rows)
            if found["matches_entirely"]:
                assert all(truths), to_sql(expr)


def _check_statistics(found: dict[str, Any], rows: list[Row]) -> None:
    """The statistics hold for the rows as they are read now."""
    for column in DATA:
        values_ = [row[column.name] for row in rows]
        low, high, nulls = (found[f"{kind}.{column.id}"] for kind in ("min", "max", "null_count"))
        assert nulls in (None, values_.count(None))
        for value in values_:
            if value is not None and not (isinstance(value, float) and math.isnan(value)):
                key = value.encode() if isinstance(value, str) else value
                assert low is None or (low.encode() if isinstance(low, str) else low) <= key
                assert high is None or (high.encode() if isinstance(high, str) else high) >= key


@pytest.mark.parametrize(
    ("sql", "planned", "entirely"),
    [("late IS NULL", 1, 1), ("late IS NOT NULL", 0, 0), ("late = 1", 0, 0), ("late <=> NULL", 1, 1)],
)
def test_a_column_added_later_is_null_in_older_files(sql: str, planned: int, entirely: int) -> None:
    from lakemark_core.expressions import parse_predicate

    old = Schema.build([Field(1, "i", INT), *SCHEMA.partition_fields], PARTITIONS, 1)
    partition = [p.Value(null=True), p.Value(null=True)]
    entry = p.DataFile(path="1/a/f", file_group="a", row_count=3, partition=partition)
    plan = Planner().plan(snapshot_of([Written(old, [], entry)], as_list=True), parse_predicate(sql))
    assert (plan.files, plan.files_matching_entirely) == (planned, entirely)
