"""Base rows and deltas merged in memory, against changes that are made one after the other."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.reading.merge import merge_rows
from lakemark_core.merge_sql import COLUMNS, DELTA_FIELDS, INSTANT, OPERATION, columns_text
from lakemark_core.table_kind import TableKind
from lakemark_core.types import Field, Schema, parse_type, schema_to_arrow, to_arrow

TYPES = {"id": "int", "a": "int", "b": "string", "t": "double", "p": "string"}
SCHEMA = Schema.build([Field(at, name, parse_type(text)) for at, (name, text) in enumerate(TYPES.items(), 1)], ["p"])
ARROW = schema_to_arrow(SCHEMA)
LOG = pa.schema([*ARROW, *(pa.field(field.name, to_arrow(field.type)) for field in DELTA_FIELDS)])
KEYS = st.tuples(st.integers(0, 2), st.sampled_from("xy"))
VALUES = st.tuples(
    st.none() | st.integers(0, 3), st.none() | st.sampled_from(["", "é"]), st.sampled_from([0.0, math.inf, math.nan])
)
BASES = st.dictionaries(KEYS, VALUES, max_size=4)
# For each instant what becomes of some keys: a delete or not, the values, and which of the columns are given.
CHANGES = st.lists(
    st.dictionaries(KEYS, st.tuples(st.booleans(), VALUES, st.sets(st.sampled_from("ab"))), max_size=3), max_size=4
)


def _row(key: tuple[int, str], values: tuple[Any, ...]) -> dict[str, Any]:
    return {"id": key[0], "a": values[0], "b": values[1], "t": values[2], "p": key[1]}


def _shown(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr([row[name] for name in TYPES]) for row in rows)


@given(BASES, CHANGES, st.sampled_from(["commits", "ordered", "by_column"]))
def test_the_rows_are_those_that_the_changes_leave(base: Any, changes: Any, how: str) -> None:
    kind = TableKind(
        ("ID", "p"), "merge-on-read", "T" if how == "ordered" else "", "column" if how == "by_column" else "row", 2
    )
    rows = {key: _row(key, values) for key, values in base.items()}
    newest = {key: row["t"] for key, row in rows.items()}
    log = []
    for instant, batch in enumerate(changes):
        for key, (deletes, values, given_columns) in batch.items():
            new = _row(key, values)
            listed = [field for field in SCHEMA.columns if field.name not in "ab" or field.name in given_columns]
            partial = how == "by_column" and not deletes
            stored = {**new, **({"a": None, "b": None} if deletes else {})}
            if partial:
                stored |= {name: None for name in "ab" if name not in given_columns}
            log.append(
                {
                    **stored,
                    OPERATION: "delete" if deletes else "upsert",
                    INSTANT: instant,
                    COLUMNS: columns_text(listed) if partial else None,
                }
            )
            if how == "ordered" and _greater(newest.get(key, 0.0), new["t"]):
                continue
            newest[key] = new["t"]
            if deletes:
                rows.pop(key, None)
            elif partial:
                before = rows.get(key, {**new, "a": None, "b": None})
                rows[key] = {**before, **{name: new[name] for name in ("t", *given_columns)}}
            else:
                rows[key] = new

    merged = merge_rows(
        pa.Table.from_pylist([_row(key, values) for key, values in base.items()], schema=ARROW),
        pa.Table.from_pylist(log, schema=LOG),
        SCHEMA,
        kind,
    )

    assert merged.schema == ARROW
    assert _shown(merged.to_pylist()) == _shown(list(rows.values()))


def _greater(one: float, other: float) -> bool:
    """As Spark compares: NaN is the greatest value, and equals itself."""
    return not math.isnan(other) and (math.isnan(one) or one > other)


@pytest.mark.parametrize("columns", [["id", "p"], ["id", "p", "b"]])
def test_only_some_columns(columns: list[str]) -> None:
    base = pa.Table.from_pylist([_row((1, "x"), (1, "old", 0.0)), _row((2, "x"), (2, "old", 0.0))], schema=ARROW)
    log = pa.Table.from_pylist(
        [{**_row((1, "x"), (None, "new", 1.5)), OPERATION: "upsert", INSTANT: 5, COLUMNS: None}], schema=LOG
    )
    some = [*columns, *(field.name for field in DELTA_FIELDS)]

    merged = merge_rows(base.select(columns), log.select(some), SCHEMA, TableKind(("id", "p"), buckets=2))

    assert merged.column_names == columns
    assert sorted(row.get("b", "") for row in merged.to_pylist()) == (["new", "old"] if "b" in columns else ["", ""])
