"""The partitions of a table as the read methods need them: values, names, structs, typed columns, filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from lakemark_core.errors import InvalidPartition
from lakemark_core.types import (
    DEFAULT_PARTITION,
    ColumnValue,
    Field,
    Type,
    escape_path_name,
    is_textual,
    parse_type,
    partition_value_from_string,
    to_arrow,
)
from lakemark_hms.filters import PartitionColumns, PartitionFilter
from lakemark_hms.wire.cut import STRUCT
from lakemark_hms.wire.splice import Pieces, i32_value

Values = tuple[str, ...]


def names_of(columns: Sequence[str], values: Sequence[Values]) -> list[str]:
    """The names of partitions."""
    heads = [escape_path_name(column) + "=" for column in columns]
    escape = lru_cache(maxsize=None)(escape_path_name)
    return ["/".join([head + escape(value) for head, value in zip(heads, row, strict=True)]) for row in values]


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
        return names_of(self.columns, self.values)

    @cached_property
    def _index(self) -> dict[Values, list[int]]:
        places: dict[Values, list[int]] = {}
        for at, row in enumerate(self.values):
            places.setdefault(row, []).append(at)
        return places

    def at(self, values: Values) -> list[int]:
        """Where the partitions with these values stand; a lake snapshot has one for each file slice."""
        return self._index.get(values, [])

    def with_leading(self, wanted: Sequence[str]) -> Sequence[int]:
        """Where the partitions that begin with the wanted values stand; "" stands for any value.

        Raises InvalidPartition if more values are wanted than there are columns.
        """
        if len(wanted) > len(self.columns):
            raise InvalidPartition(f"{len(wanted)} partition values for the {len(self.columns)} partition columns")
        fixed = [(at, value) for at, value in enumerate(wanted) if value]
        if not fixed:
            return range(len(self.values))
        return [at for at, row in enumerate(self.values) if all(row[i] == value for i, value in fixed)]

    def matching(self, selection: PartitionFilter) -> Sequence[int]:
        """Where the partitions that a filter selects stand. Raises InvalidPredicate if it names another column."""
        selection.require_columns(self.columns)
        if selection.selects_all:
            return range(len(self.values))
        return np.flatnonzero(selection.mask(lambda: self._typed, len(self.values))).tolist()

    def only(self, chosen: Sequence[int]) -> PartitionView:
        """The view of these partitions."""
        values, structs = [self.values[at] for at in chosen], [self.structs[at] for at in chosen]
        return PartitionView(self.columns, self.types, values, structs, self.ending)

    def followed_by(self, more: PartitionView) -> PartitionView:
        """These partitions and, behind them, those of another view of the same table."""
        ends = more.structs if more.ending == self.ending else [one + more.ending for one in more.structs]
        mine = self.structs if more.ending == self.ending else [one + self.ending for one in self.structs]
        ending = self.ending if more.ending == self.ending else b""
        return PartitionView(self.columns, self.types, [*self.values, *more.values], [*mine, *ends], ending)

    @cached_property
    def _typed(self) -> PartitionColumns:
        """Raises InvalidArgument for a value that is not of its column's type."""
        fields = [Field(0, name, parse_type(text)) for name, text in zip(self.columns, self.types, strict=True)]
        return typed_columns(fields, self.values)

    def extended(self, fields: bytes) -> PartitionView:
        """The same partitions, each with these encoded fields, too."""
        return PartitionView(self.columns, self.types, self.values, self.structs, fields + self.ending)

    def list_value(self, chosen: Sequence[int] | None = None) -> Pieces:
        """The encoded Thrift list of all or some of the partitions, in that order."""
        structs = self.structs if chosen is None else [self.structs[at] for at in chosen]
        # Joined once, with the rest of the reply: each copy of some megabytes costs more than to make the reply.
        pieces = [self.ending] * (2 * len(structs))
        pieces[::2] = structs
        return [bytes((STRUCT,)) + i32_value(len(structs)), *pieces]

    def struct(self, at: int) -> bytes:
        return self.structs[at] + self.ending


def typed_columns(fields: Sequence[Field], rows: Sequence[Values]) -> PartitionColumns:
    """The texts of partitions as values of the columns' types. Raises InvalidArgument for what is not one."""
    return PartitionColumns(
        fields, [_typed_column([row[at] for row in rows], field.type) for at, field in enumerate(fields)]
    )


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
