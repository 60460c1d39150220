"""The table of primitive types against bounds and pages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakemark_core.expressions import ColumnRef, Compare, Expr, Literal, Operator
from lakemark_core.types import CODECS, Primitive, ValueKind, to_arrow
from lakemark_proto.store.v1.store_pb2 import Page as PageMessage
from lakemark_proto.store.v1.store_pb2 import PageColumn
from lakemark_server.file_index.arrow import integer_form
from lakemark_server.file_index.entries.file_stats import ColumnStats, FileStats
from lakemark_server.file_index.pages.page import Page, encode_page
from lakemark_server.file_index.pruning.rules import prune
from tests.unit.core.types.samples import VALUES, every_primitive


@every_primitive
def test_bounds_prune(column_type: Primitive) -> None:
    low, high = VALUES[column_type.kind]
    bounds = pa.array([low, high], to_arrow(column_type))
    counts = pa.array([0, 0])
    stats = FileStats(np.array([5, 5]), {1: ColumnStats(bounds, bounds, counts, counts)})

    def matching(op: Operator, value: object) -> list[bool]:
        predicate: Expr = Compare(op, ColumnRef(("x",), 1, column_type), Literal(value, column_type))  # type: ignore[arg-type]
        return prune(predicate, stats).may_match.tolist()

    assert matching("=", low) == [True, False]
    assert matching(">", low) == [False, True]
    assert matching("<", high) == [True, False]


@every_primitive
@pytest.mark.parametrize("null", [False, True])
def test_pages_keep_values(column_type: Primitive, null: bool) -> None:
    values = [*VALUES[column_type.kind], *([None] if null else [])]
    batch = pa.RecordBatch.from_pydict({"min.1": pa.array(values, to_arrow(column_type))})
    stored = encode_page(batch)
    column = Page(stored).column("min.1", to_arrow(column_type))
    assert column is not None
    assert column.to_pylist() == values
    assert PageMessage.FromString(stored).columns[0].kind != PageColumn.ARROW, "a type of its own costs no more"


def test_integers_of_dates_and_times_are_those_of_messages() -> None:
    for kind, data_type in (
        (ValueKind.DATE, pa.date32()),
        (ValueKind.TIMESTAMP, pa.timestamp("us", "UTC")),
        (ValueKind.TIMESTAMP_NTZ, pa.timestamp("us")),
    ):
        array = pa.array(VALUES[kind], data_type)
        assert array.cast(integer_form(data_type)).to_pylist() == [CODECS[kind].to_plain(one) for one in VALUES[kind]]  # type: ignore[arg-type]
