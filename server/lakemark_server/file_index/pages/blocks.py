"""Blocks: file entries as bytes, below the store's limit for a value. The first byte names the encoding.

A small commit is kept as the protobuf list or Arrow batch in which it came, which is cheap to write and to read. Larger
ones are encoded by column (``page``).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, cast

import pyarrow as pa

from lakemark_core.errors import CorruptStore, InvalidFile
from lakemark_core.types import Schema
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.file_index.arrow import AnyArray, nulls
from lakemark_server.file_index.entries.columns import FIXED, entry_schema, from_messages, statistics_ids
from lakemark_server.file_index.pages.page import Page, encode_page

BLOCK_BYTES_MAX: Final = 90_000
LIST_FILES_MAX: Final = 64
BLOCK_BYTES_AIM: Final = 80_000
_SAMPLE: Final = 500
_PAGE: Final = b"C"
_BATCH: Final = b"B"
_SMALL_HEAD: Final = struct.Struct("<IIH")  # fingerprint of the schema, bytes before compression, statistics ids
_CODEC: Final = pa.Codec("zstd", compression_level=1)
_LIST: Final = b"P"
_STREAM_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def encode_list(files: pb.DataFileList) -> bytes | None:
    """One block with the message as it is; None if it is too large for one block."""
    if len(files.files) > LIST_FILES_MAX or files.ByteSize() >= BLOCK_BYTES_MAX:
        return None
    return _LIST + files.SerializeToString()


def encode(batch: pa.RecordBatch) -> list[bytes]:
    """Blocks that together hold the entries in their order. Raises InvalidFile if one entry alone is too large."""
    if 0 < batch.num_rows <= LIST_FILES_MAX:
        small = _encode_small(batch)
        if len(small) <= BLOCK_BYTES_MAX:
            return [small]
    return encode_pages(batch)


def encode_pages(batch: pa.RecordBatch) -> list[bytes]:
    """Like ``encode``, but always by column."""
    size = batch.num_rows
    if size > _SAMPLE:
        size = max(_SAMPLE, BLOCK_BYTES_AIM * _SAMPLE // len(encode_page(batch.slice(0, _SAMPLE))))
    return [block for at in range(0, batch.num_rows, max(size, 1)) for block in _encode(batch.slice(at, size))]


def _encode_small(batch: pa.RecordBatch) -> bytes:
    """One block of few entries. Encoding all columns at once takes a tenth of the time of encoding each."""
    data = batch.serialize().to_pybytes()
    ids = sorted(statistics_ids(batch.schema.names))
    header = struct.pack(f"<IIH{len(ids)}I", _fingerprint(batch.schema), len(data), len(ids), *ids)
    return _BATCH + header + _CODEC.compress(data, asbytes=True)


def packed(batch: pa.RecordBatch) -> bytes:
    """Few entries as bytes to keep in memory, for ``unpacked``. Not compressed."""
    ids = sorted(statistics_ids(batch.schema.names))
    return struct.pack(f"<{1 + len(ids)}q", len(ids), *ids) + batch.serialize().to_pybytes()


def unpacked(data: bytes, schema: Schema) -> pa.RecordBatch:
    """The entries in ``data``, which were packed with this schema. Not copied."""
    (count,) = struct.unpack_from("<q", data)
    ids = struct.unpack_from(f"<{count}q", data, 8)
    return pa.ipc.read_record_batch(pa.py_buffer(data).slice(8 + 8 * count), entry_schema(schema, ids))


def _decode_small(block: bytes, schema: Schema | None) -> pa.RecordBatch:
    fingerprint, size, count = _SMALL_HEAD.unpack_from(block, 1)
    start = 1 + _SMALL_HEAD.size
    ids = struct.unpack_from(f"<{count}I", block, start)
    known = FIXED if schema is None else entry_schema(schema, ids)
    if _fingerprint(known) != fingerprint:
        raise CorruptStore("a block of file entries was written with another schema than it is read with")
    data = _CODEC.decompress(block[start + 4 * count :], size)
    return pa.ipc.read_record_batch(data, known)


@lru_cache(maxsize=256)
def _fingerprint(schema: pa.Schema) -> int:
    """32 bits of a hash over the columns of a schema."""
    return int.from_bytes(hashlib.blake2b(str(schema).encode(), digest_size=4).digest(), "little")


def _encode(batch: pa.RecordBatch) -> list[bytes]:
    data = _PAGE + encode_page(batch)
    if len(data) <= BLOCK_BYTES_MAX:
        return [data]
    if batch.num_rows == 1:
        path = batch.column("path")[0].as_py()
        raise InvalidFile(
            f"the entry of file {path!r} takes {len(data)} bytes with its statistics; at most {BLOCK_BYTES_MAX} fit. "
            "Send shorter bounds, or statistics on fewer columns",
            path=path,
        )
    half = batch.num_rows // 2
    return [*_encode(batch.slice(0, half)), *_encode(batch.slice(half))]


def to_ipc(batch: pa.RecordBatch) -> bytes:
    """A complete Arrow IPC stream, compressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def to_small_ipc(batch: pa.RecordBatch) -> bytes:
    """A complete Arrow IPC stream of few entries, not compressed.

    A stream writer takes thirty times as long for them, most of it to encode the schema again.
    """
    return b"".join((_schema_message(batch.schema), cast(Any, batch.serialize()), _STREAM_END))


@lru_cache(maxsize=256)
def _schema_message(schema: pa.Schema) -> bytes:
    """The message that begins a stream."""
    return schema.serialize().to_pybytes()


def to_plain_ipc(batches: Sequence[pa.RecordBatch]) -> bytes:
    """A complete Arrow IPC stream of batches with one schema, not compressed; at least one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def page_of(block: bytes) -> Page | None:
    """The page in a block that has its entries by column; None for the encodings of few entries."""
    if block[:1] == _PAGE:
        return Page(block[1:])
    if block[:1] not in (_LIST, _BATCH):
        raise CorruptStore(f"a block of file entries begins with {block[:1]!r}: written by a newer release?")
    return None


def decode_fixed(block: bytes) -> pa.RecordBatch:
    """The entries of a block without statistics, as ``encode`` wrote it."""
    page = page_of(block)
    if page is None:
        return _decode_small(block, None)
    arrays = [_column(page, field) for field in FIXED]
    return pa.RecordBatch.from_arrays(arrays, schema=FIXED)


def decode(block: bytes, schema: Schema) -> pa.RecordBatch:
    """The entries of a block that was written with this schema."""
    page = page_of(block)
    if block[:1] == _BATCH:
        return _decode_small(block, schema)
    if page is None:
        return from_messages(pb.DataFileList.FromString(block[1:]).files, schema)
    known = entry_schema(schema, statistics_ids(page.names))
    return pa.RecordBatch.from_arrays([_column(page, field) for field in known], schema=known)


def _column(page: Page, field: pa.Field[Any]) -> AnyArray:
    array = page.column(field.name, field.type)
    return nulls(page.entries, field.type) if array is None else array
