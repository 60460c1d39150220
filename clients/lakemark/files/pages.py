"""The files of a response, which has them as messages or as Arrow columns."""

from __future__ import annotations

import pyarrow as pa

from lakemark.files.columns import ENTRY_FIELDS, files_from_arrow, files_to_arrow
from lakemark.files.compact import expanded
from lakemark.files.messages import file_from_message
from lakemark.files.model import DataFile
from lakemark_core.types import Schema
from lakemark_proto.v1 import types_pb2


def files_of_page(page: types_pb2.DataFiles, schema: Schema) -> list[DataFile]:
    if page.WhichOneof("form") == "arrow":
        return files_from_arrow(_read_stream(page.arrow), schema)
    return [file_from_message(message, schema) for message in page.list.files]


def table_of_page(page: types_pb2.DataFiles, schema: Schema) -> pa.Table:
    """The files of a response as Arrow columns (docs/files.md)."""
    if page.WhichOneof("form") == "arrow":
        return _read_stream(page.arrow)
    return files_to_arrow(files_of_page(page, schema), schema)


def _read_stream(data: bytes) -> pa.Table:
    if not data:
        return ENTRY_FIELDS.empty_table()
    with pa.ipc.open_stream(data) as reader:
        return expanded(reader.read_all())
