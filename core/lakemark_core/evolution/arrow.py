"""Arrow columns of data files, converted to the columns of a later schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from lakemark_core.evolution.file_schemas import source_of
from lakemark_core.types import Field, ListOf, MapOf, Struct, Type, to_arrow

AnyArray: TypeAlias = "pa.Array[Any]"
_LISTS: Final = (pa.ListArray, pa.LargeListArray)


def as_column(stored: pa.ChunkedArray[Any], old: Type, new: Type) -> pa.ChunkedArray[Any]:
    """A file's column, written as ``old``, as a column of type ``new`` (``lakemark_core.types.to_arrow``).

    Fields of structs are found by id, under the name that they have in ``old``, whatever their case and order in the
    file; what the file does not have is null. Raises pyarrow.ArrowInvalid if the file holds something else.
    """
    wanted: Any = to_arrow(new)
    chunks = [_converted(chunk, old, new) for chunk in stored.chunks]
    return pa.chunked_array(chunks, wanted)


def _converted(array: AnyArray, old: Type, new: Type) -> AnyArray:
    wanted: Any = to_arrow(new)
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    match old, new:
        case Struct(stored), Struct(fields) if isinstance(array, pa.StructArray):
            return _struct(array, stored, fields, wanted)
        case ListOf(element), ListOf(wanted_element) if isinstance(array, _LISTS):
            whole = _at_its_start(array)
            values = _converted(whole.values, element, wanted_element)
            offsets: Any = whole.offsets.cast(pa.int32())
            return pa.ListArray.from_arrays(offsets, values, type=wanted, mask=_nulls(array))
        case MapOf(key, value), MapOf(wanted_key, wanted_value) if isinstance(array, pa.MapArray):
            whole = _at_its_start(array)
            keys, items = _converted(whole.keys, key, wanted_key), _converted(whole.items, value, wanted_value)
            return pa.MapArray.from_arrays(whole.offsets, keys, items, type=wanted, mask=_nulls(array))
    return cast(AnyArray, array.cast(wanted))


def _struct(array: pa.StructArray, stored: Sequence[Field], fields: Sequence[Field], wanted: Any) -> AnyArray:
    names = {array.type.field(at).name.lower(): at for at in range(array.type.num_fields)}
    children: list[AnyArray] = []
    for field in fields:
        source = source_of(field, stored)
        at = None if source is None else names.get(source.name.lower())
        if source is None or at is None:
            missing: Any = to_arrow(field.type)
            children.append(pa.nulls(len(array), missing))
        else:
            # The struct's own offset counts for its fields, its nulls do not: they are put back below.
            children.append(_converted(array.field(at), source.type, field.type))
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=_nulls(array))


def _nulls(array: AnyArray) -> Any:
    return pc.is_null(array) if array.null_count else None


def _at_its_start(array: AnyArray) -> Any:
    """An array whose buffers begin with its first entry: offsets and nulls of a slice cannot be taken apart."""
    return pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array
