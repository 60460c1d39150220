"""Files that writers stage over gRPC: refused ones change nothing, and a hundred thousand fit into one commit."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.process import Service
from lakemark_server.verify import verify
from tests.lakes import file, whole
from tests.wire import Wire, refused


@pytest.fixture(autouse=True)
def healthy(service: Service) -> object:
    """Whatever a test did, the store's invariants hold."""
    yield
    assert verify(service.store) == []


# -- files that are refused --------------------------------------------------------------------------------------------


def test_bad_files_change_nothing(wire: Wire) -> None:
    wire.create()
    instant = wire.open().instant
    outside = file(instant + 1, "a", 1)
    for attempt in (lambda: wire.stage(instant, 1, outside), lambda: wire.commit(instant, outside)):
        with refused("invalid_file", "outside the place of instant", f"{instant + 1}/m=1/a") as found:
            attempt()
        assert found().detail.details["path"] == outside.path
    with refused("invalid_file", "given twice"):
        wire.stage(instant, 1, file(instant, "a", 1), file(instant, "a", 1))
    negative = file(instant, "a", 1, size=-1)
    with refused("invalid_file", "size_bytes is negative"):
        wire.commit(instant, negative)
    missing = file(instant, "a", 1)
    del missing.partition[:]
    with refused("invalid_file", "0 partition values"):
        wire.stage(instant, 1, missing)
    assert wire.get(instant).staged_files == 0
    assert wire.stage(instant, 1, file(instant, "a", 1)) == 1


@pytest.mark.parametrize(("first", "second"), [("m=1/g", "m=1/g/h"), ("m=1/g/h/i", "m=1/g")])
def test_a_directory_within_another_ones_in_two_requests(wire: Wire, first: str, second: str) -> None:
    wire.create()
    instant = wire.open().instant
    one, two = file(instant, "a", 1), file(instant, "a", 1)
    one.path, two.path = f"{instant}/{first}/f.parquet", f"{instant}/{second}/f.parquet"
    wire.stage(instant, 1, one)
    for attempt in (lambda: wire.stage(instant, 2, two), lambda: wire.commit(instant, two)):
        with refused("invalid_file", "or above or below that, was staged before"):
            attempt()
    beside = file(instant, "b", 1)
    beside.path = f"{instant}/m=1/beside/f.parquet"
    wire.commit(instant, beside)
    assert len(wire.paths()) == 2


def test_the_same_file_in_two_requests(wire: Wire) -> None:
    wire.create()
    instant = wire.open().instant
    wire.stage(instant, 1, file(instant, "a", 1))
    twin = file(instant, "a", 1)
    twin.path = twin.path.replace("a.parquet", "b.parquet")
    for given in (file(instant, "a", 1), twin):
        with refused("invalid_file", "staged before"):
            wire.stage(instant, 2, given)
        with refused("invalid_file", "staged before"):
            wire.commit(instant, given)
    wire.commit(instant, file(instant, "b", 1))
    assert len(wire.paths()) == 2


def arrow_schema(*fields: tuple[str, pa.DataType]) -> bytes:
    return pa.schema(list(fields)).serialize().to_pybytes()


FITS = arrow_schema(("id", pa.int64()), ("x", pa.float64()), ("name", pa.string()))


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        (arrow_schema(("id", pa.string()), ("x", pa.float64()), ("name", pa.string())), "id"),
        (arrow_schema(("id", pa.int64()), ("x", pa.float64()), ("name", pa.string()), ("y", pa.int64())), "y"),
        (arrow_schema(("id", pa.int32()), ("x", pa.float64())), "Spark 3.5 cannot read as bigint: write it as int64"),
        (b"rubbish", "not an Arrow schema"),
        (FITS[:20], "not an Arrow schema"),
    ],
)
def test_a_schema_that_does_not_fit(wire: Wire, schema: bytes, word: str) -> None:
    wire.create()
    instant = wire.open().instant
    with refused("invalid_schema", word):
        wire.stage(instant, 1, file(instant, "a", 1), file_schema=schema)
    with refused("invalid_schema", word):
        wire.commit(instant, file(instant, "a", 1), file_schema=schema)
    with refused("invalid_schema", word):
        wire.commit(instant, file_schema=schema)
    with refused("invalid_schema", "has no schema 7", "1 to 1"):
        wire.commit(instant, file(instant, "a", 1), schema_id=7)
    wire.stage(instant, 1, file(instant, "b", 1), file_schema=FITS)
    assert wire.commit(instant, file(instant, "a", 1), file_schema=FITS, schema_id=1).version == 1


@pytest.mark.parametrize(
    ("more", "code", "word"),
    [
        ({"owner": "o" * 201}, "invalid_argument", "owner"),
        ({"metadata": {"k": "v" * 30_000}}, "limit_exceeded", "metadata"),
    ],
)
def test_what_a_record_holds_is_bounded(wire: Wire, more: dict[str, str], code: str, word: str) -> None:
    wire.create()
    with refused(code, word):
        wire.open(**more)


# -- large commits -----------------------------------------------------------------------------------------------------


def arrow_files(instant: int, first: int, count: int) -> p.DataFiles:
    """``count`` files with bounds on column 1, as Arrow."""
    numbers = range(first, first + count)
    table = pa.table(
        {
            "path": [f"{instant}/m={n % 12}/{n:08x}-7c1d/part-{n}.parquet" for n in numbers],
            "size_bytes": pa.array(numbers, pa.int64()),
            "row_count": pa.array([1] * count, pa.int64()),
            "partition": [f"m={n % 12}" for n in numbers],
            "min.1": pa.array(numbers, pa.int64()),
            "max.1": pa.array(numbers, pa.int64()),
            "null_count.1": pa.array([0] * count, pa.int64()),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return p.DataFiles(arrow=sink.getvalue().to_pybytes())


def test_a_hundred_thousand_files_in_one_commit(wire: Wire) -> None:
    wire.create()
    instant, count = wire.open().instant, 100_000
    for sequence, first in enumerate(range(0, count, 30_000), 1):
        given = arrow_files(instant, first, min(30_000, count - first))
        request = t.StageFilesRequest(table=wire.table, instant=instant, added=given, sequence=sequence)
        staged = wire.timeline.StageFiles(request).staged_files
        assert wire.timeline.StageFiles(request).staged_files == staged, "sent again"
    assert staged == count
    assert wire.commit(instant).version == 1
    found = wire.snapshot()
    assert (found.files, found.rows, found.bytes) == (count, count, count * (count - 1) // 2)
    assert len(set(wire.paths())) == count
    assert wire.plan("id = 77777").summary.files_planned == 1
    assert wire.plan("id between 100 and 199 and m = 4").summary.files_planned == 9


def test_a_large_commit_in_one_request(wire: Wire) -> None:
    wire.create()
    instant = wire.open().instant
    request = t.CommitRequest(table=wire.table, instant=instant, added=arrow_files(instant, 0, 5_000))
    first = wire.timeline.Commit(request)
    assert wire.timeline.Commit(request) == first
    assert wire.snapshot().files == 5_000


def test_partition_values_name_the_partition(wire: Wire) -> None:
    wire.create()
    instant = wire.open().instant
    nothing = file(instant, "a", 1)
    nothing.partition[0].CopyFrom(p.Value(null=True))
    wire.commit(instant, nothing, file(instant, "b", 2))
    (one, two) = wire.plan(encoding=2).files.list.files
    assert (one.partition[0].null, two.partition[0]) == (True, whole(2))
