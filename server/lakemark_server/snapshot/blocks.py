"""Blocks: file entries as bytes below the store's limit for a value. The first byte names the encoding.

A small commit is kept as the protobuf list in which it came (cheap to write); larger ones are Arrow IPC, compressed.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from lakemark.errors import CorruptStore, InvalidFile
from lakemark.types import Schema
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.snapshot.entries import conform, entry_schema, from_messages, statistics_ids

BLOCK_BYTES_MAX: Final = 90_000
LIST_FILES_MAX: Final = 64
_ARROW: Final = b"A"
_LIST: Final = b"P"
# A block is small: handing its columns to threads takes longer than decompressing them.
_READ_OPTIONS: Final = pa.ipc.IpcReadOptions(use_threads=False)
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def encode_list(files: pb.DataFileList) -> bytes | None:
    """One block of few files, as they are; None if it would be too large for one."""
    if len(files.files) > LIST_FILES_MAX or files.ByteSize() >= BLOCK_BYTES_MAX:
        return None
    return _LIST + files.SerializeToString()


def encode(batch: pa.RecordBatch) -> list[bytes]:
    """Blocks that together hold the entries in their order. Raises InvalidFile if one entry alone is too large."""
    if not batch.num_rows:
        return []
    data = _ARROW + to_ipc(batch)
    if len(data) <= BLOCK_BYTES_MAX:
        return [data]
    if batch.num_rows == 1:
        path = batch.column("path")[0].as_py()
        raise InvalidFile(
            f"the entry of file {path!r} takes {len(data)} bytes with its statistics; at most {BLOCK_BYTES_MAX} fit. "
            "Send shorter bounds, or statistics on fewer columns",
            path=path,
        )
    pieces = min(batch.num_rows, -(-len(data) // (BLOCK_BYTES_MAX * 4 // 5)))
    size = -(-batch.num_rows // pieces)
    return [block for at in range(0, batch.num_rows, size) for block in encode(batch.slice(at, size))]


def to_ipc(batch: pa.RecordBatch) -> bytes:
    """A complete Arrow IPC stream, compressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def decode_fixed(block: bytes) -> pa.RecordBatch:
    """The entries of a block without statistics, as ``encode`` wrote it."""
    if block[:1] != _ARROW:
        raise CorruptStore(f"a block of file entries begins with {block[:1]!r}: written by a newer release?")
    with pa.ipc.open_stream(pa.py_buffer(block).slice(1), options=_READ_OPTIONS) as reader:
        return reader.read_next_batch()


def decode(block: bytes, schema: Schema) -> pa.RecordBatch:
    """The entries of a block, their statistics in the types of ``schema`` (without columns that it no longer has)."""
    encoding, data = block[:1], pa.py_buffer(block).slice(1)
    if encoding == _LIST:
        return from_messages(pb.DataFileList.FromString(block[1:]).files, schema)
    if encoding != _ARROW:
        raise CorruptStore(f"a block of file entries begins with {encoding!r}: written by a newer release?")
    with pa.ipc.open_stream(data, options=_READ_OPTIONS) as reader:
        known = entry_schema(schema, statistics_ids(reader.schema.names))
        if reader.schema.equals(known):  # written with this very schema, in one batch
            return reader.read_next_batch()
        table = reader.read_all()
    return conform(table.select([name for name in table.column_names if known.get_field_index(name) >= 0]), schema)
