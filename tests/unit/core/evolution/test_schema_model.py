"""Sequences of changes against a model without paths, ids and trees: rows keyed by the identity of columns.

The model is a list of columns, each with a token for its identity and a type as text. The schema must accept and refuse
the same changes, and files of every older schema must be read as the model says.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark_core.errors import InvalidSchema
from lakemark_core.evolution import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    WidenColumn,
    readable_with,
    reading_groups,
)
from lakemark_core.evolution.arrow import as_column
from lakemark_core.types import Field, Schema, Struct, assign_ids, format_type, parse_type, schema_to_arrow
from lakemark_server.catalog.schema_changes import apply_changes

# Few, so that names come back after they were dropped.
NAMES = ["a", "b", "B"]
TYPES = ["tinyint", "int", "bigint", "float", "double", "date", "timestamp_ntz", "varchar(3)", "string", "decimal(5,2)"]
# Written out, not computed: what the model knows of widening.
WIDER = {
    "tinyint": {"int", "bigint", "float", "double", "decimal(5,2)"},
    "int": {"bigint", "double"},
    "float": {"double"},
    "date": {"timestamp_ntz"},
    "varchar(3)": {"string"},
}
VALUES: dict[str, list[Any]] = {
    "tinyint": [-128, 0, 127, None],
    "int": [-(2**31), 7, 2**31 - 1, None],
    "bigint": [-(2**63), 2**53 + 1, None],
    "float": [0.1, -0.0, float("inf"), None],
    "double": [0.1, 1e300, None],
    "date": [dt.date(1, 1, 1), dt.date(2013, 2, 28), None],
    "timestamp_ntz": [dt.datetime(2013, 1, 1, 2, 3, 4, 5), None],
    "varchar(3)": ["", "äöü", None],
    "string": ["long text", None],
    "decimal(5,2)": [None],
}


@dataclass
class Column:
    """``of``: its identity. ``fields``: those of a struct; None for a primitive type."""

    of: int
    name: str
    type: str = ""
    fields: list[Column] | None = None


class Model:
    def __init__(self) -> None:
        self.made = 1
        self.columns = [Column(1, "a", "int")]

    def new(self, name: str, shape: str | list[tuple[str, str]]) -> Column:
        self.made += 1
        column = Column(self.made, name, shape if isinstance(shape, str) else "struct")
        if isinstance(shape, list):
            column.fields = [self.new(inner, text) for inner, text in shape]
        return column

    def siblings(self, path: list[str]) -> list[Column] | None:
        level: list[Column] | None = self.columns
        for name in path:
            found = next((one for one in level or [] if one.name.lower() == name.lower()), None)
            level = found.fields if found else None
        return level


def find(level: list[Column] | None, name: str) -> Column | None:
    return next((one for one in level or [] if one.name.lower() == name.lower()), None)


SHAPES = st.one_of(
    st.sampled_from(TYPES),
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(TYPES)),
        min_size=1,
        max_size=3,
        unique_by=lambda p: p[0].lower(),
    ),
)
PATHS = st.one_of(*[st.lists(st.sampled_from(NAMES), min_size=length, max_size=length) for length in (1, 1, 2)])
OPERATIONS = st.one_of(
    st.tuples(st.just("add"), PATHS, SHAPES, st.sampled_from(["", "first", *NAMES])),
    st.tuples(st.just("drop"), PATHS),
    st.tuples(st.just("rename"), PATHS, st.sampled_from(NAMES)),
    st.tuples(st.just("widen"), PATHS, st.sampled_from(TYPES)),
    st.tuples(st.just("move"), PATHS, st.sampled_from(["first", *NAMES])),
)


def field_of(name: str, shape: str | list[tuple[str, str]]) -> Field:
    text = shape if isinstance(shape, str) else "struct<" + ",".join(f"{inner}:{of}" for inner, of in shape) + ">"
    return Field(0, name, parse_type(text))


def change_of(operation: tuple[Any, ...]) -> SchemaChange:
    kind, path, *rest = operation
    text = ".".join(path)
    if kind == "add":
        shape, place = rest
        first, after = place == "first", "" if place == "first" else place
        return AddColumn(field_of(path[-1], shape), ".".join(path[:-1]), first, after)
    if kind == "drop":
        return DropColumn(text)
    if kind == "rename":
        return RenameColumn(text, rest[0])
    if kind == "widen":
        return WidenColumn(text, parse_type(rest[0]))
    return MoveColumn(text, rest[0] == "first", "" if rest[0] == "first" else rest[0])


def place(level: list[Column], column: Column, where: str) -> bool:
    if where == "first":
        level.insert(0, column)
    elif where:
        after = find(level, where)
        if after is None:
            return False
        level.insert(level.index(after) + 1, column)
    else:
        level.append(column)
    return True


def apply_to_model(model: Model, operation: tuple[Any, ...]) -> bool:
    """Applies a change if it is legal. Returns whether it was."""
    kind, path, *rest = operation
    level = model.siblings(path[:-1])
    if level is None:
        return False
    column = find(level, path[-1])
    if kind == "add":
        return column is None and place(level, model.new(path[-1], rest[0]), rest[1])
    if column is None:
        return False
    if kind == "drop":
        if len(level) == 1:
            return False
        level.remove(column)
    elif kind == "rename":
        other = find(level, rest[0])
        if other is not None and other is not column:
            return False
        column.name = rest[0]
    elif kind == "widen":
        if column.type == "struct" or (rest[0] != column.type and rest[0] not in WIDER.get(column.type, ())):
            return False
        column.type = rest[0]
    else:
        if rest[0] != "first" and find([one for one in level if one is not column], rest[0]) is None:
            return False
        level.remove(column)
        place(level, column, rest[0])
    return True


def shape_of(columns: list[Column]) -> list[tuple[str, Any]]:
    return [(one.name, shape_of(one.fields) if one.fields is not None else one.type) for one in columns]


def real_shape(fields: tuple[Field, ...]) -> list[tuple[str, Any]]:
    return [(f.name, real_shape(f.type.fields) if isinstance(f.type, Struct) else format_type(f.type)) for f in fields]


def identities(columns: list[Column], fields: tuple[Field, ...]) -> dict[int, int]:
    """The model's identity of each column id."""
    found: dict[int, int] = {}
    for column, field in zip(columns, fields, strict=True):
        found[field.id] = column.of
        if isinstance(field.type, Struct):
            found |= identities(column.fields or [], field.type.fields)
    return found


def draw_row(data: st.DataObject, fields: tuple[Field, ...]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for field in fields:
        if isinstance(field.type, Struct):
            row[field.name] = draw_row(data, field.type.fields) if data.draw(st.booleans()) else None
        else:
            row[field.name] = data.draw(st.sampled_from(VALUES[format_type(field.type)]))
    return row


def by_identity(row: dict[str, Any] | None, columns: list[Column]) -> dict[int, Any] | None:
    if row is None:
        return None
    return {
        one.of: by_identity(row[one.name], one.fields) if one.fields is not None else row[one.name] for one in columns
    }


def as_now(values: dict[int, Any] | None, columns: list[Column]) -> dict[str, Any] | None:
    """An old row with the model's current columns."""
    if values is None:
        return None
    found: dict[str, Any] = {}
    for one in columns:
        value = values.get(one.of)
        if one.fields is not None:
            value = as_now(value, one.fields)
        elif one.type == "timestamp_ntz" and isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            value = dt.datetime(value.year, value.month, value.day)
        found[one.name] = value
    return found


def copied(columns: list[Column]) -> list[Column]:
    return [Column(c.of, c.name, c.type, copied(c.fields) if c.fields is not None else None) for c in columns]


@settings(max_examples=150)
@given(operations=st.lists(OPERATIONS, max_size=20), data=st.data())
def test_changes_do_what_the_model_says_and_old_files_are_read(
    operations: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    model = Model()
    schema, last_id = assign_ids(Schema.build([field_of("a", "int")], schema_id=1))
    ids: dict[int, int] = {}
    files: list[tuple[Schema, list[dict[int, Any] | None], pa.Table]] = []
    for operation in [None, *operations]:
        if operation is not None:
            legal = apply_to_model(model, operation)
            if not legal:
                with pytest.raises(InvalidSchema):
                    apply_changes(schema, last_id, [change_of(operation)], {})
                continue
            changed, last_id = apply_changes(schema, last_id, [change_of(operation)], {})
            schema = Schema(changed.columns, changed.partition_columns, schema.schema_id + 1)
        assert real_shape(schema.columns) == shape_of(model.columns)
        now = identities(model.columns, schema.columns)
        assert all(ids.get(one, of) == of for one, of in now.items())  # no id ever means two columns
        assert len(set(now.values())) == len(now)
        ids |= now
        assert max(ids) <= last_id
        rows = [draw_row(data, schema.columns) for _ in range(2)]
        # float values are stored in single precision
        table = pa.Table.from_pylist(rows, schema=schema_to_arrow(schema))
        files.append((schema, [by_identity(row, copied(model.columns)) for row in table.to_pylist()], table))
    for written, rows_then, table in files:
        assert readable_with(written, schema) == []
        expected = [as_now(row, model.columns) for row in rows_then]
        arrays = [read_column(table, written, field) for field in schema.columns]
        found = pa.Table.from_arrays(arrays, schema=schema_to_arrow(schema)).to_pylist()
        assert found == expected
    check_groups({written.schema_id: written for written, _, _ in files}, schema)


def read_column(table: pa.Table, written: Schema, field: Field) -> pa.ChunkedArray[Any]:
    source = next((one for one in written.columns if one.id == field.id), None)
    if source is None:
        return pa.chunked_array([pa.nulls(table.num_rows, schema_to_arrow(Schema((field,))).field(0).type)])
    return as_column(table.column(source.name), source.type, field.type)


def check_groups(schemas: dict[int, Schema], wanted: Schema) -> None:
    """A reader that goes by names finds the right column in each group, or none."""
    groups = reading_groups(schemas, wanted)
    assert sorted(one for group in groups for one in group) == sorted(schemas)
    for group in groups:
        for column in wanted.columns:
            stored = [next((c for c in schemas[one].columns if c.id == column.id), None) for one in group]
            names = {one.name.lower() for one in stored if one is not None}
            assert len(names) <= 1
            for one, source in zip(group, stored, strict=True):
                by_name = schemas[one].find(next(iter(names))) if names else None
                assert (by_name.id if by_name else None) == (source.id if source else None)
