"""Rows of other libraries: accepted by Arrow's PyCapsule protocol, and refused if they are not rows."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from lakemark.parquet.rows import table_of
from lakemark_core.errors import InvalidArgument

TABLE = pa.table({"id": pa.array([1, 2]), "name": ["a", None]})


class Stream:
    """Like objects of Polars and DuckDB: implements the protocol, and nothing else of Arrow."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class Array:
    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        return self._batch.__arrow_c_array__(requested_schema)


class Failing:
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        raise RuntimeError("the query was cancelled")


BATCH = TABLE.to_batches()[0]


@pytest.mark.parametrize(
    "rows",
    [
        TABLE,
        BATCH,
        pa.RecordBatchReader.from_batches(TABLE.schema, [BATCH]),
        Stream(TABLE),
        Array(BATCH),
        pd.DataFrame({"id": [1, 2], "name": ["a", None]}),
        pd.DataFrame({"id": [2, 1], "name": [None, "a"]}).sort_values("id"),
        pd.DataFrame({"id": [1, 2], "name": ["a", None]}).set_index("id"),
        pd.DataFrame({"id": [1, 2], "name": ["a", None]}).set_index(["id", pd.Index([9, 7])]),
    ],
    ids=["table", "batch", "reader", "stream", "array", "pandas", "sorted", "with an index", "with two"],
)
def test_rows_of_any_library(rows: Any) -> None:
    assert table_of(rows).to_pylist() == TABLE.to_pylist()


@pytest.mark.parametrize("rows", [{"id": [1]}, [{"id": 1}], None, "rows.parquet", pa.Table, pd.DataFrame])
def test_what_is_no_table_is_refused_with_what_is_taken(rows: Any) -> None:
    with pytest.raises(
        InvalidArgument, match=r"cannot be written; give a pyarrow Table, .* pandas .* Polars .* DuckDB"
    ):
        table_of(rows)


@pytest.mark.parametrize("rows", [pa.array([1]), pd.Series([1]), Stream(pa.chunked_array([[1]]))])  # type: ignore[arg-type]
def test_a_column_is_no_table(rows: Any) -> None:
    with pytest.raises(InvalidArgument, match="does not give its rows as a table of named columns"):
        table_of(rows)


def test_a_library_that_fails_says_why() -> None:
    with pytest.raises(InvalidArgument, match=r"Failing does not give its rows .*: the query was cancelled"):
        table_of(Failing())


def test_no_such_library_is_imported() -> None:
    code = "import sys; import lakemark; print({'pandas', 'polars', 'duckdb'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
