"""Entries of many files in a compact form for transport.

The columns are those of ``plan_schema``, with two exceptions. Columns that rarely change from one file to the next are
run-end encoded. ``path`` is replaced by its pieces ``above``, ``directory`` (null: the file group's name) and
``file_name``, to be joined by "/" (docs/files.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lakemark_core.types import Schema
from lakemark_server.file_index.arrow import AnyArray, nulls, take
from lakemark_server.file_index.entries.bounds import Mask
from lakemark_server.file_index.entries.columns import entry_schema
from lakemark_server.file_index.pages.contents import ADDED_VERSION, SCHEMA_ID, Integers
from lakemark_server.file_index.pages.runs import Runs, constant, runs_of
from lakemark_server.file_index.parts.evolution import statistic
from lakemark_server.file_index.parts.part import Part

MATCHES: Final = pa.field("matches_entirely", pa.bool_())
_PATH: Final = ("above", "directory", "file_name")
_DENSE: Final = frozenset({"size_bytes", "row_count", "file_group", "min", "max"})


def plan_schema(schema: Schema, statistics: Sequence[int]) -> pa.Schema:
    """The columns of a plan's files with the statistics of these column ids."""
    return entry_schema(schema, statistics).append(ADDED_VERSION).append(SCHEMA_ID).append(MATCHES)


def compact(
    part: Part, places: Integers | None, matches: Mask, schema: Schema, statistics: Sequence[int]
) -> pa.RecordBatch:
    """The entries at these places.

    None means all entries of the part; the cache then keeps no decoded columns.
    """
    runs: dict[str, Runs] = part.entries.path_runs()._asdict()
    size = part.size if places is None else len(places)
    names: list[str] = []
    arrays: list[AnyArray] = []
    for field in plan_schema(schema, statistics):
        for name in _PATH if field.name == "path" else (field.name,):
            names.append(name)
            if field == MATCHES:
                arrays.append(_matches(matches, size).array)
                continue
            column = runs.get(name) or _column(part, field, schema, keep=places is not None)
            if isinstance(column, Runs):
                arrays.append((column if places is None else column.at(places)).array)
            else:
                arrays.append(column if places is None else take(column, places))
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _matches(matches: Mask, size: int) -> Runs:
    return runs_of(pa.array(matches)) if isinstance(matches, np.ndarray) else constant(pa.array([bool(matches)]), size)


def _column(part: Part, field: pa.Field[Any], schema: Schema, *, keep: bool) -> Runs | AnyArray:
    """A column of all entries of the part."""
    kind, _, number = field.name.partition(".")
    if field == SCHEMA_ID:
        return constant(pa.array([part.schema.schema_id], pa.int32()), part.size)
    if number:
        column = schema.find_id(int(number))
        values = None if column is None else statistic(part, kind, column, keep=keep)
        values = nulls(part.size, field.type) if values is None else values
        return values if kind in _DENSE else runs_of(values)
    return part.entries.column(field.name, keep=keep) if field.name in _DENSE else part.entries.runs(field.name)
