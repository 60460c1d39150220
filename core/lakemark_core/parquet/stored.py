"""How a parquet file stores its columns, and whether plain Spark reads that as the table's types."""

from __future__ import annotations

import json
from typing import Final

import pyarrow.parquet as pq

from lakemark_core.types import Schema
from lakemark_core.types.readable import leaves_of, misread

_NOT_IN_SPARK: Final = frozenset({"BROTLI", "LZO", "BYTE_STREAM_SPLIT"})
"""Compressions and encodings."""


def check_stored(schema: Schema, metadata: pq.FileMetaData) -> list[str]:
    """Why plain Spark does not read a file's columns as ``schema`` has them; empty if it reads them exactly.

    The file fits by its Arrow schema (``lakemark_core.types.check_fits``), as what Lakemark's own readers cast does.
    """
    reasons = []
    for index, leaf in enumerate(leaves_of(schema, metadata.schema.to_arrow_schema())):
        stored = metadata.schema.column(index)
        reasons += [
            f"column '{leaf.name}' is stored with {one}, which Spark 3.5 cannot read: write the file without that"
            for one in _manners(metadata, index) & _NOT_IN_SPARK
        ]
        reasons += misread(leaf, stored.physical_type, json.loads(stored.logical_type.to_json()))
    return reasons


def _manners(metadata: pq.FileMetaData, index: int) -> set[str]:
    """The compressions and encodings of a column."""
    chunks = [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)]
    return {manner for chunk in chunks for manner in (chunk.compression, *chunk.encodings)}
