"""File entries as clients send them: messages and Arrow, and every reason to refuse them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lakemark_core.errors import InvalidFile
from lakemark_core.types import INT, Field, Schema
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.file_index.entries.columns import FIXED, entry_schema, from_messages, statistics_ids
from lakemark_server.file_index.entries.received import from_arrow
from lakemark_server.file_index.pages.blocks import to_ipc
from tests.lakes import FLAT, ID, MONTH, NAME, PLACE, SCHEMA, X, file, stat, whole

INSTANT = 1_800_000_000_000


def test_messages_become_columns() -> None:
    given = [
        file(INSTANT, "a", 1, rows=5, size=10, stats=[stat(ID, 1, 9, 0)]),
        file(INSTANT, "b", None, stats=[p.ColumnStatistics(column_id=X, min=p.Value(floating=0.5), nan_count=2)]),
    ]
    given[1].partition.append(p.Value(null=True))
    given[1].bucket = 3
    batch = from_messages(given, SCHEMA)
    assert batch.schema == entry_schema(SCHEMA, {ID, X})
    rows = batch.to_pylist()
    assert rows[0] | {"path": ""} == {
        "path": "", "size_bytes": 10, "row_count": 5, "file_group": None, "kind": 1, "format": "parquet",
        "partition": "m=1", "base_instant": 0, "bucket": None, "min.1": 1, "max.1": 9, "null_count.1": 0,
        "min.2": None, "max.2": None, "null_count.2": None, "nan_count.2": None,
    }  # fmt: skip
    assert rows[1]["partition"] == "m=__HIVE_DEFAULT_PARTITION__"
    assert (rows[1]["bucket"], rows[1]["min.2"], rows[1]["nan_count.2"], rows[1]["min.1"]) == (3, 0.5, 2, None)


def test_no_files() -> None:
    assert from_messages([], SCHEMA).num_rows == 0
    assert from_messages([], SCHEMA).schema == FIXED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one.statistics.append(stat(99, 1, 2)), "column id 99, which the table does not have"),
        (lambda one: one.statistics.append(stat(-1, 1, 2)), "column id -1"),
        (lambda one: one.statistics.extend([stat(ID, 1), stat(ID, 2)]), "'id' twice"),
        (lambda one: one.statistics.append(stat(PLACE, 1, 2)), "nested column 'place' cannot have bounds"),
        (lambda one: one.statistics.append(stat(NAME, 1, 2)), "min of column 'name'"),
        (lambda one: one.statistics.append(stat(MONTH, 1, 1 << 40)), "max.5: not a value of type int32"),
        (lambda one: one.partition.pop(), "partition"),
        (lambda one: one.partition.append(whole(1)), "partition"),
        (lambda one: one.partition[0].CopyFrom(p.Value(text="x")), "kind text is given where the type is int"),
        (lambda one: one.partition[0].CopyFrom(whole(1 << 40)), "out of the range of int"),
        (lambda one: setattr(one, "kind", 300), "kind 300 is not known"),
        (lambda one: setattr(one, "kind", -1), "kind -1 is not known"),
    ],
)
def test_a_bad_message_is_refused_by_name(change: Callable[[p.DataFile], object], message: str) -> None:
    bad = file(INSTANT, "bad", 1)
    change(bad)
    with pytest.raises(InvalidFile, match=message) as refused:
        from_messages([file(INSTANT, "good", 1), bad], SCHEMA)
    assert "bad/a.parquet" in refused.value.message
    assert "bad/a.parquet" in refused.value.details["path"]


def test_a_table_without_partitions_takes_no_partition_values() -> None:
    with pytest.raises(InvalidFile):
        from_messages([file(INSTANT, "a", 1)], FLAT)


def arrow(**columns: Any) -> pa.Table:
    base: dict[str, Any] = {
        "path": [f"{INSTANT}/m=1/a/f.parquet", f"{INSTANT}/m=2/b/f.parquet"],
        "size_bytes": [1, 2],
        "row_count": [3, 4],
        "partition": ["m=1", "m=2"],
    }
    return pa.table({name: value for name, value in (base | columns).items() if value is not None})


def ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_arrow_with_defaults_and_widening() -> None:
    given = arrow(
        **{
            "size_bytes": pa.array([1, 2], pa.int32()),
            "partition": pa.array(["m=1", "m=2"]).dictionary_encode(),
            "min.1": pa.array([1, None], pa.int16()),
        }
    )
    batch = from_arrow(ipc(given), SCHEMA)
    assert batch.schema == entry_schema(SCHEMA, {ID})
    assert batch.column("kind").to_pylist() == [1, 1]
    assert batch.column("format").to_pylist() == ["parquet", "parquet"]
    assert batch.column("min.1").to_pylist() == [1, None]
    assert batch.column("null_count.1").to_pylist() == [None, None]


@pytest.mark.parametrize("rows", [0, 1])
def test_arrow_without_rows(rows: int) -> None:
    batches = arrow().slice(0, 0).to_batches()[:rows]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow().schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    assert from_arrow(sink.getvalue().to_pybytes(), SCHEMA).num_rows == 0


def test_arrow_of_a_table_without_partitions_needs_no_partition_column() -> None:
    batch = from_arrow(ipc(arrow(partition=None)), FLAT)
    assert batch.column("partition").to_pylist() == ["", ""]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"path": None}, "lack the columns path"),
        ({"size_bytes": None, "row_count": None}, "lack the columns row_count, size_bytes"),
        ({"partition": None}, "lack the columns partition"),
        ({"colour": ["red", "blue"]}, "not known: colour"),
        ({"min.99": [1, 2]}, "not known: min.99"),
        ({"min.³": [1, 2]}, "not known"),
        ({"min.01": [1, 2]}, "not known"),
        ({"min." + "9" * 5_000: [1, 2]}, "not known"),
        ({"nan_count.1": [1, 2]}, "not known: nan_count.1"),
        ({"size_bytes": ["x", "y"]}, "'size_bytes' of the files is string"),
        ({"size_bytes": [0.5, 1.0]}, "'size_bytes'"),
        ({"min.1": ["a", "b"]}, "'min.1'"),
        ({"min.5": pa.array([1 << 40, 1])}, "'min.5'"),
        ({"path": pa.array([[1], [2]])}, "'path'"),
        ({"path": ["x", None]}, "'path' of the files has nulls"),
        ({"row_count": pa.array([1, None])}, "'row_count' of the files has nulls"),
        ({"partition": ["m=1", None]}, "'partition' of the files has nulls"),
        ({"min.4": pa.array([{"lat": 1.0}, None])}, "nested column 'place' cannot have bounds"),
        ({"kind": [1, 256]}, "'kind'"),
    ],
)
def test_bad_columns(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidFile, match=message):
        from_arrow(ipc(arrow(**columns)), SCHEMA)


def test_several_batches_and_any_number_of_rows() -> None:
    """Defaults are the same for few and many rows, in one message or in several."""
    for rows in (1, 64, 65, 200):
        given = pa.concat_tables([arrow()] * ((rows + 1) // 2)).slice(0, rows)
        together = from_arrow(ipc(given.combine_chunks()), SCHEMA)
        assert together.num_rows == rows
        assert together.equals(from_arrow(ipc(given), SCHEMA))
        assert together.column("kind").to_pylist() == [1] * rows
        assert together.column("bucket").null_count == rows


def test_the_same_columns_mean_what_the_table_says() -> None:
    """The cached mapping of one table's schema is not used for another's."""
    given = ipc(arrow(**{"min.1": pa.array([1, 2], pa.int32())}))
    assert from_arrow(given, SCHEMA).column("min.1").type == pa.int64()
    narrow = Schema.build([Field(ID, "id", INT), *SCHEMA.columns[1:]], ["m"], 1)
    assert from_arrow(given, narrow).column("min.1").type == pa.int32()


def test_a_column_that_comes_twice() -> None:
    given = arrow()
    given = given.append_column("path", given.column("path"))
    with pytest.raises(InvalidFile, match="columns twice: path"):
        from_arrow(ipc(given), SCHEMA)


@pytest.mark.parametrize("data", [b"", b"x", b"\xff" * 64, b"A" * 1_000])
def test_no_arrow_at_all(data: bytes) -> None:
    with pytest.raises(InvalidFile, match="not an Arrow IPC stream"):
        from_arrow(data, SCHEMA)


def test_offsets_that_point_outside_are_refused() -> None:
    """If they were trusted, a client could read the memory of the service, or crash it."""
    data = ipc(arrow(path=pa.array(["x" * 20, "y" * 21])))
    good = b"".join(number.to_bytes(4, "little") for number in (0, 20, 41))
    evil = b"".join(number.to_bytes(4, "little") for number in (0, 20, 1 << 30))
    assert data.count(good) == 1
    from_arrow(data, SCHEMA)
    with pytest.raises(InvalidFile, match="not an Arrow IPC stream"):
        from_arrow(data.replace(good, evil), SCHEMA)


def test_damaged_streams_are_refused_or_read_but_never_crash() -> None:
    whole_stream = bytearray(to_ipc(from_arrow(ipc(arrow(**{"min.1": [1, 2]})), SCHEMA)))
    chance = random.Random(5)
    refused = 0
    for _ in range(300):
        data = bytearray(whole_stream)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.3:
            data = data[: chance.randrange(len(data))]
        try:
            from_arrow(bytes(data), SCHEMA)
        except InvalidFile:
            refused += 1
    assert refused > 50


def test_statistics_ids() -> None:
    assert statistics_ids(["path", "min.3", "nan_count.12", "minimum.4", "min.", "min.x", "min.0"]) == {3, 12}
