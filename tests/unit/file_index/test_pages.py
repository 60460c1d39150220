"""Pages: decoding returns what was encoded, column by column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark_core.types import to_arrow
from lakemark_server.file_index.pages.numbers import decode_integers, encode_integers
from lakemark_server.file_index.pages.page import Page, encode_page
from tests.lengths import examples
from tests.unit.predicates import POOLS, SCHEMA

_INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(st.one_of(_INT64, st.integers(-3, 3), st.integers(0, 1 << 20)), max_size=200), st.data())
def test_integers(values: list[int], data: st.DataObject) -> None:
    array = np.array(values, np.int64)
    other = np.array(data.draw(st.lists(_INT64, min_size=len(values), max_size=len(values))), np.int64)
    near = array + np.array(
        data.draw(st.lists(st.integers(0, 9), min_size=len(values), max_size=len(values))), np.int64
    )
    for reference in (None, other, near):
        column = encode_integers(array, reference, "x")
        assert decode_integers(column, len(array), reference).tolist() == values


def _batch(draw: st.DrawFn, size: int) -> pa.RecordBatch:
    def some(pool: list, *, null: bool = True) -> list:  # type: ignore[type-arg]
        lost = draw(st.booleans()) if null else False
        one = st.sampled_from(pool)
        return draw(st.lists(one | st.none() if lost else one, min_size=size, max_size=size))

    groups = draw(st.lists(st.sampled_from(["g", "h" * 40, "ä/".strip("/")]), min_size=size, max_size=size))
    partitions = draw(st.sampled_from([["m=1"], [""], ["m=1/n=a", "m=2/n=b"], ["", "m=1"]]))
    names = some(partitions, null=False)
    shape = draw(st.sampled_from(["standard", "directory", "other"]))
    paths = []
    for at, (group, partition) in enumerate(zip(groups, names, strict=True)):
        directory = group if shape == "standard" else f"d{at}"
        middle = f"{partition}/" if partition and shape != "other" else "x/" if shape == "other" else ""
        paths.append(f"{draw(st.sampled_from([1, 1_800_000_000_000]))}/{middle}{directory}/part-{at % 2}.parquet")
    columns: dict[str, pa.Array] = {
        "path": pa.array(paths, pa.string()),
        "size_bytes": pa.array(some([0, 5, 1 << 40], null=False), pa.int64()),
        "file_group": pa.array(groups, pa.string()),
        "kind": pa.array(some([1, 2], null=False), pa.uint8()),
        "partition": pa.array(names, pa.string()),
        "bucket": pa.array(some([0, 7]), pa.int32()),
        "nested": pa.array([{"a": 1}] * size, pa.struct([("a", pa.int32())])),
    }
    for field in SCHEMA.data_columns:
        kind = to_arrow(field.type)
        low = some(POOLS[field.name])
        columns[f"min.{field.id}"] = pa.array(low, kind)
        columns[f"max.{field.id}"] = pa.array(low if draw(st.booleans()) else some(POOLS[field.name]), kind)
    return pa.RecordBatch.from_pydict(columns)


BATCHES = st.composite(_batch)


@settings(max_examples=examples(60))
@given(st.integers(0, 40).flatmap(BATCHES), st.integers(0, 40), st.integers(0, 40))
def test_what_goes_in_comes_out(batch: pa.RecordBatch, start: int, length: int) -> None:
    """Also for slices, whose buffers begin elsewhere."""
    batch = batch.slice(start, length)
    page = Page(encode_page(batch))
    assert page.entries == batch.num_rows
    assert page.names == batch.schema.names
    for name in batch.schema.names:
        found = page.column(name, batch.schema.field(name).type)
        assert found is not None
        found.validate(full=True)
        assert repr(found.to_pylist()) == repr(batch.column(name).to_pylist()), name  # NaN is not equal to itself
        if page.entries:
            runs = page.runs(name, batch.schema.field(name).type)
            again = runs.values.take(pa.array(np.repeat(np.arange(len(runs.ends)), np.diff(runs.ends, prepend=0))))
            assert repr(again.to_pylist()) == repr(batch.column(name).to_pylist()), name
    codes, names = page.partition_codes()
    assert names.take(pa.array(codes)).equals(batch.column("partition"))
    instants = page.instants()
    if instants is not None:
        assert instants.tolist() == [int(path.split("/")[0]) for path in batch.column("path").to_pylist()]
    assert page.column("none", pa.int64()) is None


def test_paths_of_the_standard_shape_cost_next_to_nothing() -> None:
    groups = [f"{n:032x}" for n in np.random.default_rng(0).integers(0, 1 << 62, 1_000).tolist()]
    batch = pa.RecordBatch.from_pydict(
        {
            "path": [f"1800000000000/p=1/{group}/part-0.parquet" for group in groups],
            "file_group": groups,
            "partition": ["p=1"] * 1_000,
        }
    )
    without = batch.select(["file_group", "partition"])
    assert len(encode_page(batch)) < len(encode_page(without.append_column("path", without.column("partition")))) + 100
