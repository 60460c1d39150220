"""What properties say of a table's files: legal values, and every refusal with what to do."""

from __future__ import annotations

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_core.file_layout import FILE_BYTES, FileLayout, layout_of
from lakemark_core.types import Field, Schema, parse_type

SIZE, BY, ORDER = (
    "lakemark.write.target-file-size-bytes",
    "lakemark.clustering.columns",
    "lakemark.clustering.order",
)
COLUMNS = {"x": "double", "y": "string", "tags": "array<int>", "day": "date"}
SCHEMA = Schema.build([Field(0, name, parse_type(text)) for name, text in COLUMNS.items()], ["day"])


def test_what_a_table_says_of_its_files() -> None:
    assert layout_of({}) == FileLayout()
    assert layout_of({}).target_bytes == FILE_BYTES
    layout = layout_of({SIZE: " 1000000 ", BY: " X , y", ORDER: "Z-Order"})
    assert layout == FileLayout(1_000_000, ("X", "y"), "z-order")
    assert layout.target_bytes == 1_000_000
    assert [field.name for field in layout.fields(SCHEMA)] == ["x", "y"]


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({SIZE: "9999"}, "not a number from 10000 on"),
        ({SIZE: "128MB"}, "not a number from 10000 on"),
        ({BY: "x,"}, "not a list of columns"),
        ({BY: "z"}, "lakemark.clustering.columns: there is no column 'z'"),
        ({BY: "x,X"}, "names a column twice"),
        ({BY: "tags"}, r"'tags' is array<int>"),
        ({BY: "day"}, "'day' partitions the table"),
        ({BY: ",".join(f"c{at}" for at in range(9))}, "9 columns to cluster by are more than 8"),
        ({BY: "x", ORDER: "hilbert"}, "'hilbert' is not known; use sort or z-order"),
        ({ORDER: "sort"}, "set lakemark.clustering.columns, too"),
    ],
)
def test_what_is_refused(properties: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        layout_of(properties).fields(SCHEMA)
