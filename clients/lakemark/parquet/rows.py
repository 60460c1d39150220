"""Rows as they come from other libraries, by Arrow's PyCapsule protocol: no library has to be installed for it.

pandas, Polars, DuckDB, PyArrow and others hand out their data by the methods ``__arrow_c_stream__`` or
``__arrow_c_array__`` (Arrow's documentation: "The Arrow PyCapsule Interface"), without a copy where memory allows.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from lakemark.arguments import Called
from lakemark_core.errors import InvalidArgument

_ACCEPTED: Final = (
    "a pyarrow Table, RecordBatch or RecordBatchReader, a DataFrame of pandas (2.2 or newer) or Polars (a LazyFrame "
    "has to be collected), a relation of DuckDB (what 'sql' returns), or anything else with __arrow_c_stream__ or "
    "__arrow_c_array__"
)


@runtime_checkable
class ArrowStream(Protocol):
    """What hands out its rows in batches, as data frames do."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class ArrowArray(Protocol):
    """What hands out its rows as one array of structs, as record batches do."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...


Rows: TypeAlias = Annotated[
    pa.Table | pa.RecordBatch | pa.RecordBatchReader | ArrowStream | ArrowArray, Called(_ACCEPTED)
]


def table_of(rows: Rows) -> pa.Table:
    """The rows in memory. The named levels of a pandas index are columns; its other levels are left out.

    Raises InvalidArgument for what is no table of named columns, and with the words of the library that fails to hand
    its rows out.
    """
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, type) or not isinstance(rows, ArrowStream | ArrowArray):
        raise InvalidArgument(f"rows of type {_type_of(rows)} cannot be written; give {_ACCEPTED}")
    try:
        return pa.table(_with_index_as_columns(rows))
    except Exception as error:  # whatever the other library raises while it makes its rows
        raise InvalidArgument(
            f"{_type_of(rows)} does not give its rows as a table of named columns: {error}"
        ) from error


def _with_index_as_columns(rows: Any) -> Any:
    """What pandas itself hands out depends on the values of an index: 1, 2, 3 are left out, even under a name, and what
    a filter or a sort leaves is a column ``__index_level_0__``, which nobody means to write."""
    if type(rows).__module__.partition(".")[0] != "pandas":
        return rows
    named = [name for name in rows.index.names if name is not None]
    return (rows.reset_index(level=named) if named else rows).reset_index(drop=True)


def _type_of(rows: object) -> str:
    kind = rows if isinstance(rows, type) else type(rows)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
