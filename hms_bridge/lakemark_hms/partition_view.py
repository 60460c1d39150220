"""The partitions of a table as the read methods need them: values, names, structs, typed columns, filters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from lakemark_core.errors import InvalidArgument, LakemarkError
from lakemark_core.types import (
    DEFAULT_PARTITION,
    ColumnValue,
    Type,
    escape_path_name,
    is_textual,
    parse_type,
    partition_value_from_string,
    to_arrow,
)
from lakemark_hms.filters import evaluate, parse_filter
from lakemark_hms.wire.cut import STRUCT
from lakemark_hms.wire.splice import Pieces, i32_value

log = logging.getLogger(__name__)

Values = tuple[str, ...]


class PartitionView:
    """Immutable. ``structs`` are serialized Thrift partitions without what ``ending`` adds to each of them."""

    def __init__(
        self,
        columns: Sequence[str],
        types: Sequence[str],
        values: Sequence[Values],
        structs: Sequence[bytes],
        ending: bytes = b"",
    ) -> None:
        self.columns = tuple(columns)
        self.types = tuple(types)
        self.values = values
        self.structs = structs
        self.ending = ending

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def names(self) -> Sequence[str]:
        """``month=1/origin=JFK`` of each."""
        heads = [escape_path_name(column) + "=" for column in self.columns]
        escape = lru_cache(maxsize=None)(escape_path_name)
        return ["/".join([head + escape(value) for head, value in zip(heads, row, strict=True)]) for row in self.values]

    @cached_property
    def _index(self) -> dict[Values, list[int]]:
        found: dict[Values, list[int]] = {}
        for at, row in enumerate(self.values):
            found.setdefault(row, []).append(at)
        return found

    def at(self, values: Values) -> list[int]:
        """Where the partitions with these values stand; a lake snapshot has one for each file slice."""
        return self._index.get(values, [])

    def with_leading(self, wanted: Sequence[str]) -> Sequence[int]:
        """Those that have the wanted values, "" standing for any. Raises InvalidArgument for more than columns."""
        if len(wanted) > len(self.columns):
            raise InvalidArgument(f"{len(wanted)} partition values for the {len(self.columns)} partition columns")
        fixed = [(at, value) for at, value in enumerate(wanted) if value]
        if not fixed:
            return range(len(self.values))
        return [at for at, row in enumerate(self.values) if all(row[i] == value for i, value in fixed)]

    def matching(self, filter_text: str) -> Sequence[int]:
        """Those that a filter selects. One that is not understood selects all: the client filters again."""
        if not filter_text.strip():
            return range(len(self.values))
        try:
            mask = evaluate(parse_filter(filter_text), self._typed, len(self.values))
        except LakemarkError as error:
            log.info("the partition filter %r selects all: %s", filter_text[:500], error)
            return range(len(self.values))
        return np.flatnonzero(mask).tolist()

    @cached_property
    def _typed(self) -> dict[str, pa.Array[Any]]:
        """The values of each column. Raises InvalidArgument for a value that is not of the column's type."""
        return {
            name: _typed_column([row[at] for row in self.values], parse_type(self.types[at]))
            for at, name in enumerate(self.columns)
        }

    def list_value(self, chosen: Sequence[int] | None = None) -> Pieces:
        """The encoded Thrift list of all or some of the partitions, in that order."""
        structs = self.structs if chosen is None else [self.structs[at] for at in chosen]
        head = bytes((STRUCT,)) + i32_value(len(structs))
        return (head, self.ending.join(structs), self.ending) if structs else (head,)

    def struct(self, at: int) -> bytes:
        return self.structs[at] + self.ending


def _typed_column(texts: Sequence[str], column_type: Type) -> pa.Array[Any]:
    if is_textual(column_type):
        return pa.array([None if text == DEFAULT_PARTITION else text for text in texts], pa.string())
    parse: Callable[[str, Type], ColumnValue] = _parsed
    return pa.array([parse(text, column_type) for text in texts], to_arrow(column_type))


@lru_cache(maxsize=100_000)
def _parsed(text: str, column_type: Type) -> ColumnValue:
    return partition_value_from_string(text, column_type)


def limited(chosen: Sequence[int], max_parts: int | None) -> Sequence[int]:
    """The first ``max_parts`` of them; a negative number or None means all."""
    return chosen if max_parts is None or max_parts < 0 else chosen[:max_parts]
