"""What a base knows of its parts without reading them: bounds, counts and totals, one row for each part."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark_core.types import Field, Schema, is_nested, to_arrow
from lakemark_server.file_index.arrow import AnyArray, take
from lakemark_server.file_index.pages.blocks import to_ipc

TOTALS: Final = ("row_count", "size_bytes")
KINDS: Final = ("min", "max", "null_count", "nan_count")

Row = dict[str, Any]


def zone_schema(schema: Schema) -> pa.Schema:
    """Totals over all entries, and the zone of each column that may have bounds, partition columns included."""
    fields: list[pa.Field[Any]] = [pa.field(name, pa.int64()) for name in TOTALS]
    for column in schema.columns:
        if not is_nested(column.type):
            fields += [pa.field(f"{kind}.{column.id}", to_arrow(column.type)) for kind in KINDS[:2]]
        fields += [pa.field(f"{kind}.{column.id}", pa.int64()) for kind in KINDS[2:]]
    return pa.schema(fields)


def encode_zones(rows: list[Row], schema: Schema) -> bytes:
    """The rows as an Arrow IPC stream."""
    return to_ipc(pa.RecordBatch.from_pylist(rows, schema=zone_schema(schema)))


class ZoneTable:
    """The zones of all parts of a base that were written with one schema. Columns are decoded on demand."""

    def __init__(self, arrow: bytes, schema: Schema) -> None:
        self.schema = schema
        with pa.ipc.open_stream(arrow) as reader:
            self._batch = reader.read_next_batch()
        self._columns: dict[str, list[Any]] = {}

    @property
    def memory_bytes(self) -> int:
        """How much memory the table takes with all columns decoded."""
        return 2_000 + self._batch.nbytes + 40 * self._batch.num_rows * self._batch.num_columns

    def value(self, name: str, row: int) -> Any:
        """A value of one part; None if it is unknown or the zones lack the column."""
        column = self._columns.get(name)
        if column is None:
            at = self._batch.schema.get_field_index(name)
            column = [None] * self._batch.num_rows if at < 0 else self._batch.column(at).to_pylist()
            self._columns[name] = column
        return column[row]

    def values(self, name: str, rows: npt.NDArray[np.int64]) -> AnyArray | None:
        """The values of several parts (null: unknown); None if the zones lack the column."""
        at = self._batch.schema.get_field_index(name)
        return None if at < 0 else take(self._batch.column(at), rows)

    def row(self, row: int) -> Row:
        """All values of one part."""
        return {name: self.value(name, row) for name in self._batch.schema.names}


def zone_of(field: Field, known: ZoneTable, row: int) -> tuple[Any, Any, int | None, int | None]:
    """Low, high, nulls and NaNs of a column, in the type of the files' schema."""
    low, high, nulls, nans = (known.value(f"{kind}.{field.id}", row) for kind in KINDS)
    return low, high, nulls, nans
