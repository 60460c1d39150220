"""File entries that clients send by column: an Arrow IPC stream becomes one batch of ``entry_schema``.

How the columns of a stream map to entries is worked out once for each Arrow schema, and kept by the bytes of the schema
message. A writer sends the same ones with every commit, and for a few files this costs more than the rest.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from lakemark_core.errors import InvalidFile
from lakemark_core.types import Schema
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.file_index.arrow import AnyArray, nulls, one_array
from lakemark_server.file_index.entries.columns import REQUIRED, entry_schema, has_bounds, statistics_ids

_HEAD: Final = struct.Struct("<4si")  # continuation marker, length of the message's metadata in bytes
_MARK: Final = b"\xff" * 4
_ENDS: Final = frozenset({b"", _MARK + bytes(4)})
_HEAD_BYTES_KEPT_MAX: Final = 16 << 10
_FEW: Final = 64
_DEFAULTS: Final[dict[str, Any]] = {"kind": pb.BASE, "format": "parquet", "partition": "", "base_instant": 0}


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of entries. ``place`` is its place in the stream; None if the stream leaves it out."""

    field: pa.Field[Any]
    place: int | None
    alike: bool
    few: AnyArray
    """_FEW rows of the default, if the stream leaves the column out."""

    def of(self, batch: pa.RecordBatch) -> AnyArray:
        """The column of entries from a batch. Raises InvalidFile for values of a wrong type."""
        if self.place is None:
            rows = batch.num_rows
            return self.few.slice(0, rows) if rows <= _FEW else _left_out(self.field, rows)
        column: AnyArray = batch.column(self.place)
        if self.alike:
            return column
        try:
            return column.cast(self.field.type)
        except pa.ArrowException as error:
            raise InvalidFile(
                f"column {self.field.name!r} of the files is {column.type}, not {self.field.type}: {error}"
            ) from error


@dataclass(frozen=True, slots=True)
class _Columns:
    """How the columns of streams with the Arrow schema ``sent`` become those of entries."""

    sent: pa.Schema
    entries: pa.Schema
    columns: tuple[_Column, ...]
    never_null: tuple[int, ...]
    nested_bounds: tuple[tuple[int, str], ...]
    """The place in entries and the name of each column that cannot have bounds."""

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as entries. Raises InvalidFile."""
        arrays = [column.of(batch) for column in self.columns]
        for place in self.never_null:
            if arrays[place].null_count:
                raise InvalidFile(f"column {self.columns[place].field.name!r} of the files has nulls")
        for place, name in self.nested_bounds:
            if arrays[place].null_count < len(arrays[place]):
                raise InvalidFile(f"the nested column {name!r} cannot have bounds")
        return pa.RecordBatch.from_arrays(arrays, schema=self.entries)


def from_arrow(ipc: bytes, schema: Schema) -> pa.RecordBatch:
    """Entries as a client sent them. Raises InvalidFile for columns that are missing, unknown or of a wrong type."""
    try:
        head = ipc[: _head_bytes(ipc)]
        columns = (_columns if len(head) <= _HEAD_BYTES_KEPT_MAX else _columns.__wrapped__)(head, schema)
        batch = _read(ipc, len(head), columns.sent)
        batch.validate(full=True)  # Arrow would follow wrong offsets without a check
    except (pa.ArrowException, ValueError, OSError, EOFError) as error:  # ValueError: names that are not UTF-8
        raise InvalidFile(f"the files are not an Arrow IPC stream: {error}") from error
    return columns.of(batch)


def _head_bytes(ipc: bytes) -> int:
    """The length of the schema message, which comes first and has no body. Raises ValueError."""
    if len(ipc) < _HEAD.size:
        raise ValueError(f"it has only {len(ipc)} bytes")
    mark, size = _HEAD.unpack_from(ipc)
    if mark != _MARK or not 0 < size <= len(ipc) - _HEAD.size:
        raise ValueError("it does not begin with a schema, as streams of Arrow 0.15 and later do")
    return int(_HEAD.size + size)


def _read(ipc: bytes, head_bytes: int, sent: pa.Schema) -> pa.RecordBatch:
    """All rows of the stream as one batch."""
    stream = pa.BufferReader(ipc)
    stream.seek(head_bytes)
    if len(ipc) - head_bytes > _HEAD.size:
        message = pa.ipc.read_message(stream)
        left = len(ipc) - stream.tell()
        if message.type == "record batch" and left <= _HEAD.size and ipc[len(ipc) - left :] in _ENDS:
            return pa.ipc.read_record_batch(message, sent)
    with pa.ipc.open_stream(ipc) as reader:
        table = reader.read_all()
    return pa.RecordBatch.from_arrays([one_array(column) for column in table.columns], schema=table.schema)


@lru_cache(maxsize=256)
def _columns(head: bytes, schema: Schema) -> _Columns:
    """The mapping for the Arrow schema in ``head``. Raises InvalidFile, and what Arrow raises."""
    sent = pa.ipc.read_schema(pa.py_buffer(head))
    names = sent.names
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InvalidFile(f"the files have columns twice: {', '.join(twice[:10])}")
    missing = REQUIRED - set(names)
    if schema.partition_columns == ():
        missing -= {"partition"}
    if missing:
        raise InvalidFile(f"the files lack the columns {', '.join(sorted(missing))}")
    ids = statistics_ids(names)
    entries = entry_schema(schema, ids)
    unknown = [name for name in names if entries.get_field_index(name) < 0]
    if unknown:
        raise InvalidFile(f"the files have columns that are not known: {', '.join(unknown[:10])}")
    places = {name: place for place, name in enumerate(names)}
    nested = [field for field in map(schema.find_id, sorted(ids)) if field is not None and not has_bounds(field)]
    return _Columns(
        sent,
        entries,
        tuple(_column(field, places.get(field.name), sent) for field in entries),
        tuple(entries.get_field_index(name) for name in sorted(REQUIRED)),
        tuple(
            (entries.get_field_index(f"{kind}.{field.id}"), field.name) for field in nested for kind in ("min", "max")
        ),
    )


def _column(field: pa.Field[Any], place: int | None, sent: pa.Schema) -> _Column:
    if place is None:
        return _Column(field, None, False, _left_out(field, _FEW))
    return _Column(field, place, sent.field(place).type == field.type, _left_out(field, 0))


def _left_out(field: pa.Field[Any], rows: int) -> AnyArray:
    default = _DEFAULTS.get(field.name)
    return nulls(rows, field.type) if default is None else pa.array([default] * rows, field.type)
