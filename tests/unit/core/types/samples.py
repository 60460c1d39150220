"""Values of every primitive type, for tests that hold code against the table of types."""

from __future__ import annotations

import datetime as dt
from typing import Final

import pytest

from lakemark_core.types import PRIMITIVES, ColumnValue, Primitive, ValueKind

VALUES: Final[dict[ValueKind, tuple[ColumnValue, ColumnValue]]] = {
    ValueKind.BOOLEAN: (False, True),
    ValueKind.INTEGER: (-7, 100),
    ValueKind.FLOATING: (-0.5, 1.25),
    ValueKind.TEXT: ("a", "b c"),
    ValueKind.BINARY: (b"a", b"b\x00"),
    ValueKind.DATE: (dt.date(1969, 12, 31), dt.date(2024, 2, 29)),
    ValueKind.TIMESTAMP: (
        dt.datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=dt.UTC),
        dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
    ),
    ValueKind.TIMESTAMP_NTZ: (dt.datetime(1969, 12, 31, 23, 59, 59, 1), dt.datetime(2024, 2, 29, 12)),
}
"""Two values of each kind, the lower one first."""

every_primitive = pytest.mark.parametrize("column_type", [Primitive(name) for name in PRIMITIVES], ids=list(PRIMITIVES))
