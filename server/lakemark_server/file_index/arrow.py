"""Wrappers for a few Arrow calls, with the types that the published stubs lack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

AnyArray: TypeAlias = "pa.Array[Any]"
_ARRAY_BYTES: Final = 500


def strings(batch: pa.RecordBatch, name: str) -> pa.StringArray:
    """A column of strings."""
    return cast(pa.StringArray, batch.column(name))


def texts(array: AnyArray) -> list[str]:
    """The values of a column of strings without nulls."""
    return cast("list[str]", array.to_pylist())


def take(array: AnyArray, places: npt.NDArray[np.integer[Any]]) -> AnyArray:
    """The values at these places."""
    return array.take(cast("pa.Array[Any]", pa.array(places)))


def take_rows(batch: pa.RecordBatch, places: npt.NDArray[np.integer[Any]]) -> pa.RecordBatch:
    """The rows at these places."""
    return batch.take(cast(Any, pa.array(places)))


def concat_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of all of these, which share one schema; at least one."""
    return cast(pa.RecordBatch, pa.concat_batches(batches))  # type: ignore[attr-defined]


def one_array(column: pa.ChunkedArray[Any]) -> AnyArray:
    """A chunked column as one array."""
    if column.num_chunks == 1:
        return cast(AnyArray, column.chunk(0))
    combined: Any = column.combine_chunks()
    return cast(AnyArray, pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined)


def buffer(data: object) -> pa.Buffer:
    """An Arrow buffer over bytes or a numpy array, without a copy."""
    return pa.py_buffer(cast(Any, data))


def bytes_within(array: AnyArray, at: int) -> npt.NDArray[np.uint8]:
    """One of the buffers of an array that is not empty.

    The buffer may reach beyond the array on both sides: arrays can be slices.
    """
    return np.frombuffer(cast(Any, array.buffers()[at]), np.uint8)


def dictionary(array: AnyArray) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Codes and the distinct texts of a column of strings without nulls."""
    encoded: Any = cast(Any, array).dictionary_encode()
    return encoded.indices.to_numpy(), texts(encoded.dictionary)


def replaced(batch: pa.RecordBatch, name: str, values: Sequence[str]) -> pa.RecordBatch:
    """The batch with other texts in a column of strings."""
    return batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), pa.array(values, pa.string()))


def array_bytes(array: AnyArray) -> int:
    """About how much memory the array takes. For a short array most of it is overhead, not values."""
    return _ARRAY_BYTES + array.nbytes


def batch_bytes(batch: pa.RecordBatch) -> int:
    """About how much memory the batch takes."""
    return _ARRAY_BYTES * (batch.num_columns + 1) + batch.nbytes


def nulls(length: int, data_type: pa.DataType) -> AnyArray:
    """An array of this length that holds only nulls."""
    return cast(Any, pa.nulls)(length, data_type)  # type: ignore[no-any-return]


def integer_form(data_type: pa.DataType) -> pa.DataType | None:
    """The signed integers that the values of a type can be cast to in the same order; None if there are none."""
    check = pa.types
    if check.is_boolean(data_type):
        return pa.int8()
    if check.is_integer(data_type) and data_type != pa.uint64():
        return data_type if check.is_signed_integer(data_type) else pa.int64()
    if check.is_date32(data_type):
        return pa.int32()
    return pa.int64() if check.is_timestamp(data_type) else None
