"""Filters over tables: owners, times of last access, and parameters, in the grammar of partition filters.

``hive_filter_field_owner__ = "ann" and (hive_filter_field_params__table_type = "ICEBERG" or not …)``. A table without a
parameter satisfies no comparison of it, as in Hive.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from lakemark_core.errors import InvalidPredicate, LakemarkError
from lakemark_core.expressions import And, Compare, Expr, In, Literal, Not, Or, columns_of
from lakemark_core.types import BIGINT, STRING, Field
from lakemark_hms.filters import PartitionColumns, evaluate, parse_filter
from lakemark_server.file_index.arrow import AnyArray
from lakemark_thrift.ttypes import Table

OWNER: Final = "hive_filter_field_owner__"
LAST_ACCESS: Final = "hive_filter_field_last_access__"
PARAMETER: Final = "hive_filter_field_params__"
# Names of parameters may have dots and hyphens. What is quoted is left as it is.
_PARAMETER_NAME: Final = re.compile(
    rf"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`)|({PARAMETER}[\w.\-]+)""", re.IGNORECASE | re.DOTALL
)


class TableFilter:
    """Raises InvalidPredicate for a filter that is not understood: nobody filters again."""

    def __init__(self, text: str) -> None:
        self._condition = _with_texts(parse_filter(_PARAMETER_NAME.sub(lambda part: part[1] or f"`{part[2]}`", text)))
        self._names = list(dict.fromkeys(column.name for column in columns_of(self._condition)))
        for name in self._names:
            if name.lower() not in (OWNER, LAST_ACCESS) and not name.lower().startswith(PARAMETER):
                raise InvalidPredicate(
                    f"the table filter names {name!r}; there are {OWNER}, {LAST_ACCESS} and {PARAMETER}<parameter>"
                )
        if len({name.lower() for name in self._names}) < len(self._names):
            raise InvalidPredicate("the table filter names parameters that differ in upper and lower case only")

    def chosen(self, tables: Sequence[Table]) -> list[int]:
        """Where the tables that it selects stand. Raises InvalidPredicate for what cannot be compared."""
        fields = [Field(0, name, BIGINT if name.lower() == LAST_ACCESS else STRING) for name in self._names]
        columns = PartitionColumns(fields, [_column(name, tables) for name in self._names])
        try:
            return np.flatnonzero(evaluate(self._condition, columns, len(tables))).tolist()
        except InvalidPredicate:
            raise
        except LakemarkError as error:
            raise InvalidPredicate(f"the table filter is not understood: {error.message}") from error


def _with_texts(condition: Expr) -> Expr:
    """The condition with all that is compared with owners and parameters as text, which they are; so does Hive."""
    match condition:
        case And(terms):
            return And(tuple(map(_with_texts, terms)))
        case Or(terms):
            return Or(tuple(map(_with_texts, terms)))
        case Not(term):
            return Not(_with_texts(term))
        case Compare(column=column, literal=literal) if column.name.lower() != LAST_ACCESS:
            return replace(condition, literal=_text(literal))
        case In(column=column, literals=literals) if column.name.lower() != LAST_ACCESS:
            return replace(condition, literals=tuple(map(_text, literals)))
        case _:
            return condition


def _text(literal: Literal) -> Literal:
    return Literal(str(literal.value), STRING)


def _column(name: str, tables: Sequence[Table]) -> AnyArray:
    if name.lower() == OWNER:
        return pa.array([table.owner or "" for table in tables], pa.string())
    if name.lower() == LAST_ACCESS:
        return pa.array([table.lastAccessTime or 0 for table in tables], pa.int64())
    key = name[len(PARAMETER) :]
    return pa.array([(table.parameters or {}).get(key) for table in tables], pa.string())
