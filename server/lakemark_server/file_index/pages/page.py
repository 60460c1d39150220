"""Pages: file entries, compressed column by column, so that only the columns asked for are decoded.

A page has the columns that ``entries.columns`` describes. A path of the standard shape ``<instant>/<partition>/<file
group>/<file>`` is taken apart, because other columns already have most of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark_core.errors import CorruptStore
from lakemark_proto.store.v1.store_pb2 import Page as PageMessage
from lakemark_proto.store.v1.store_pb2 import PageColumn
from lakemark_server.file_index.arrow import (
    AnyArray,
    buffer,
    bytes_within,
    dictionary,
    integer_form,
    nulls,
    take,
    texts,
)
from lakemark_server.file_index.pages.numbers import (
    Integers,
    decode_integers,
    encode_integers,
    pack,
    planes,
    unpack,
    unplaned,
)
from lakemark_server.file_index.pages.runs import Runs, constant, ends_of, runs_of

_FEW_DISTINCT: Final = 8  # use a dictionary if there are this many times fewer distinct texts than entries
_INSTANT_DIGITS_MAX: Final = 18
_MAX: Final = "max."


class PathRuns(NamedTuple):
    """The pieces of paths: ``above``, ``directory`` (null: the file group's name) and ``file_name``, joined by "/"."""

    above: Runs
    directory: Runs
    file_name: Runs


def encode_page(batch: pa.RecordBatch) -> bytes:
    """A serialized ``Page`` message."""
    page = PageMessage(entries=batch.num_rows)
    for name in batch.schema.names:
        column = _encode_path(batch) if name == "path" else None
        column = column or _encode(name, batch)
        column.name = name
        page.columns.append(column)
    return page.SerializeToString()


class Page:
    """A page in memory, still compressed. Thread-safe. Keeps nothing that it decodes."""

    def __init__(self, stored: bytes) -> None:
        """Raises google.protobuf.message.DecodeError."""
        message = PageMessage.FromString(stored)
        self.entries = message.entries
        self.memory_bytes = len(stored) + 500
        self._columns = {column.name: column for column in message.columns}

    @property
    def names(self) -> list[str]:
        """The names of the columns that an entry has."""
        return list(self._columns)

    def column(self, name: str, data_type: pa.DataType) -> AnyArray | None:
        """The decoded column; None if no entry has it. Raises CorruptStore."""
        column = self._columns.get(name)
        if column is None:
            return None
        with _corruption(name):
            return self._decode(column, data_type, self.entries)

    def runs(self, name: str, data_type: pa.DataType) -> Runs:
        """The column as runs of equal values; one run of null if no entry has it. Raises CorruptStore."""
        column = self._columns.get(name)
        if column is None:
            return constant(nulls(1, data_type), self.entries)
        with _corruption(name):
            return self._runs(column, data_type)

    def partition_codes(self) -> tuple[Integers, AnyArray]:
        """The index of each entry's partition name, and the names. Raises CorruptStore."""
        column = self._columns["partition"]
        with _corruption("partition"):
            if column.kind == PageColumn.DICTIONARY:
                names = _text(column.parts[1], column.first, pa.string())
                return decode_integers(column.parts[0], self.entries), names
            encoded: Any = cast(Any, self._decode(column, pa.string(), self.entries)).dictionary_encode()
            return np.asarray(encoded.indices.to_numpy(), np.int64), encoded.dictionary

    def path_runs(self) -> PathRuns | None:
        """The pieces of the paths; None if they are not of the standard shape. Raises CorruptStore."""
        column = self._columns["path"]
        instants = self.instants()
        if instants is None:
            return None
        codes, names = self.partition_codes()
        with _corruption("path"):
            ends = ends_of(instants, codes)
            above: Any = pa.array(instants[ends - 1]).cast(pa.string())
            if column.first:
                above = cast(Any, pc).binary_join_element_wise(above, take(names, codes[ends - 1]), "/")
            own = column.parts[2] if len(column.parts) > 2 else PageColumn(kind=PageColumn.NULLS)
            return PathRuns(Runs(ends, above), self._runs(own, pa.string()), self._runs(column.parts[1], pa.string()))

    def instants(self) -> Integers | None:
        """The instants in the paths; None if these are not of the standard shape."""
        column = self._columns["path"]
        return decode_integers(column.parts[0], self.entries) if column.kind == PageColumn.PATH else None

    def _runs(self, column: PageColumn, data_type: pa.DataType) -> Runs:
        if _is_constant(column):
            return constant(self._decode(column, data_type, 1), self.entries)
        return runs_of(self._decode(column, data_type, self.entries))

    def _decode(self, column: PageColumn, data_type: pa.DataType, size: int) -> AnyArray:
        match column.kind:
            case PageColumn.NULLS:
                return nulls(size, data_type)
            case PageColumn.ARROW:
                with pa.ipc.open_stream(column.data) as reader:
                    return reader.read_next_batch().column(0)
            case PageColumn.TEXT:
                return _text(column, size, data_type)
            case PageColumn.DICTIONARY:
                distinct = _text(column.parts[1], column.first, data_type)
                if _is_constant(column):
                    return cast(AnyArray, cast(Any, pa).repeat(distinct[0], size))
                codes = decode_integers(column.parts[0], size)
                array = distinct.take(cast(Any, pa.array(codes)))
                return array if not column.valid else _with_valid(array, column.valid)
            case PageColumn.PATH:
                return self._path(column, size)
            case PageColumn.FIXED:
                data = unplaned(unpack(column), column.width)
                return pa.Array.from_buffers(data_type, size, [_valid(column), buffer(data)])
        reference = decode_integers(self._columns[column.other], size) if column.other else None
        return _from_integers(decode_integers(column, size, reference), column, data_type)

    def _path(self, column: PageColumn, size: int) -> AnyArray:
        # A value that all entries share stays a scalar.
        instants: Any = pa.scalar(str(column.parts[0].offset))
        if column.parts[0].kind != PageColumn.CONSTANT:
            instants = pa.array(decode_integers(column.parts[0], size)).cast(pa.string())
        names: Any = column.parts[1]
        names = (
            self._decode(names, pa.string(), 1)[0] if _is_constant(names) else self._decode(names, pa.string(), size)
        )
        own = len(column.parts) > 2
        directories = self._decode(column.parts[2] if own else self._columns["file_group"], pa.string(), size)
        pieces = [instants, directories, names]
        if column.first:
            pieces.insert(1, self._decode(self._columns["partition"], pa.string(), size))
        joined: Any = cast(Any, pc).binary_join_element_wise(*pieces, "/")
        return cast(AnyArray, joined)


@contextmanager
def _corruption(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, ValueError, IndexError) as error:
        raise CorruptStore(f"column {name!r} of a page of file entries cannot be read: {error}") from error


def _is_constant(column: PageColumn) -> bool:
    """Whether all entries have the same value, so that decoding one entry decodes all."""
    if column.kind == PageColumn.DICTIONARY:
        return column.first == 1 and not column.valid
    return column.kind == PageColumn.NULLS or (column.kind == PageColumn.CONSTANT and not column.valid)


def _encode(name: str, batch: pa.RecordBatch) -> PageColumn:
    array = batch.column(name)
    if array.null_count == len(array):
        return PageColumn(kind=PageColumn.NULLS)
    kind = array.type
    valid = b"" if not array.null_count else np.packbits(_is_valid(array), bitorder="little").tobytes()
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        column = _encode_texts(array)
    elif (integers := integer_form(kind)) is not None:
        column = encode_integers(_whole(array, integers), *_reference(name, batch, array, integers))
    elif pa.types.is_floating(kind) or isinstance(kind, pa.Decimal128Type):
        width = kind.bit_width // 8
        column = PageColumn(kind=PageColumn.FIXED, width=width)
        pack(column, planes(_fixed_bytes(array, width), width))
    else:
        return _encode_arrow(array)
    column.valid = valid
    return column


def _reference(name: str, batch: pa.RecordBatch, array: AnyArray, integers: pa.DataType) -> tuple[Integers | None, str]:
    """The lower bounds, as reference for the upper bounds, which are close to them and of the same type."""
    other = f"min.{name.removeprefix(_MAX)}"
    if not name.startswith(_MAX) or other not in batch.schema.names or array.null_count:
        return None, ""
    low = batch.column(other)
    # A column with a reference of its own cannot be one; lower bounds never have a reference.
    return (None, "") if low.null_count else (_whole(low, integers), other)


def _whole(array: AnyArray, form: pa.DataType) -> Integers:
    plain: Any = array
    integers = plain.cast(form).cast(pa.int64())
    if integers.null_count:
        integers = integers.fill_null(integers.drop_null()[0].as_py())  # a value close to the others takes no space
    return np.asarray(integers.to_numpy(zero_copy_only=False), np.int64)


def _from_integers(values: Integers, column: PageColumn, data_type: pa.DataType) -> AnyArray:
    if pa.types.is_boolean(data_type):
        array: AnyArray = pa.array(values.astype(np.bool_))
        return array if not column.valid else _with_valid(array, column.valid)
    width = data_type.bit_width // 8
    data = np.ascontiguousarray(values.astype(f"<i{width}"))
    return pa.Array.from_buffers(data_type, len(values), [_valid(column), buffer(data)])


def _fixed_bytes(array: AnyArray, width: int) -> Any:
    if array.null_count:
        plain: Any = array
        array = plain.fill_null(plain.drop_null()[0])
    return bytes_within(array, 1)[array.offset * width : (array.offset + len(array)) * width]


def _encode_texts(array: AnyArray) -> PageColumn:
    if array.null_count:
        plain: Any = array
        array = plain.fill_null(b"" if pa.types.is_binary(array.type) else "")
    encoded: Any = cast(Any, array).dictionary_encode()
    distinct = encoded.dictionary
    if len(distinct) * _FEW_DISTINCT <= len(array) or len(distinct) == 1:
        codes = encode_integers(np.asarray(encoded.indices.to_numpy(), np.int64))
        return PageColumn(kind=PageColumn.DICTIONARY, first=len(distinct), parts=[codes, _plain_texts(distinct)])
    return _plain_texts(array)


def _plain_texts(array: AnyArray) -> PageColumn:
    lengths: Any = cast(Any, pc).binary_length(array)
    column = PageColumn(kind=PageColumn.TEXT, parts=[encode_integers(np.asarray(lengths.to_numpy(), np.int64))])
    if array.buffers()[2] is not None and len(array):
        offsets = bytes_within(array, 1).view(np.int32)
        start, end = int(offsets[array.offset]), int(offsets[array.offset + len(array)])
        pack(column, bytes_within(array, 2)[start:end].tobytes())
    return column


def _text(column: PageColumn, size: int, data_type: pa.DataType) -> AnyArray:
    lengths = column.parts[0]
    if lengths.kind == PageColumn.CONSTANT:
        offsets = np.arange(size + 1, dtype=np.int32) * np.int32(lengths.offset)
    else:
        offsets = np.zeros(size + 1, np.int32)
        np.cumsum(decode_integers(lengths, size), out=offsets[1:])
    buffers = [_valid(column), buffer(offsets), buffer(unpack(column))]
    return pa.Array.from_buffers(data_type, size, buffers)


def _encode_path(batch: pa.RecordBatch) -> PageColumn | None:
    """The paths taken apart; None if one has another shape. A directory need not be named like its file group."""
    partitions, groups = batch.column("partition"), batch.column("file_group")
    if groups.null_count or not batch.num_rows:
        return None
    codes, names = dictionary(partitions)
    if "" in names and len(names) > 1:
        return None
    heads, directories, files = [], [], []
    for path, code in zip(texts(batch.column("path")), codes.tolist(), strict=True):
        head, _, rest = path.partition("/")
        middle, _, name = rest.rpartition("/")
        above, _, directory = middle.rpartition("/")
        if above != names[code] or not _is_instant(head) or not directory:
            return None
        heads.append(int(head))
        directories.append(directory)
        files.append(name)
    parts = [encode_integers(np.array(heads, np.int64)), _encode_texts(pa.array(files, pa.string()))]
    own = pa.array(directories, pa.string())
    if directories != texts(groups):
        parts.append(_encode_texts(own))
    return PageColumn(kind=PageColumn.PATH, first=int(names != [""]), parts=parts)


def _is_instant(head: str) -> bool:
    return head.isascii() and head.isdigit() and len(head) <= _INSTANT_DIGITS_MAX and (head[0] != "0" or head == "0")


def _encode_arrow(array: AnyArray) -> PageColumn:
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays([array], names=["column"])
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    return PageColumn(kind=PageColumn.ARROW, data=sink.getvalue().to_pybytes())


def _is_valid(array: AnyArray) -> Any:
    return array.is_valid().to_numpy(zero_copy_only=False)


def _valid(column: PageColumn) -> pa.Buffer | None:
    return buffer(column.valid) if column.valid else None


def _with_valid(array: AnyArray, valid: bytes) -> AnyArray:
    mask = np.unpackbits(np.frombuffer(valid, np.uint8), count=len(array), bitorder="little").astype(np.bool_)
    masked: Any = cast(Any, pc).if_else(pa.array(mask), array, pa.scalar(None, array.type))
    return cast(AnyArray, masked)
