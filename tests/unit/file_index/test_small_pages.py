"""The stream of few entries, whose schema is encoded once, equals what a stream writer writes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakemark_server.file_index.entries.columns import from_messages
from lakemark_server.file_index.pages.blocks import to_ipc, to_small_ipc
from tests.lakes import SCHEMA, file, stat


@pytest.mark.parametrize(("first", "count"), [(0, 9), (3, 4), (8, 1), (5, 0)])
def test_it_reads_like_any_other(first: int, count: int) -> None:
    given = [file(7, f"g{n}", n % 3 or None, stats=[stat(1, n, n + 1, 0), stat(3, nulls=n)]) for n in range(1, 10)]
    batch = from_messages([one for one in given if one.partition], SCHEMA)
    batch = pa.concat_batches([batch] * 2).slice(first, count)  # type: ignore[attr-defined]
    for encoded in (to_small_ipc(batch), to_small_ipc(batch)):
        with pa.ipc.open_stream(encoded) as small, pa.ipc.open_stream(to_ipc(batch)) as usual:
            found = small.read_all()
            assert found.schema.equals(usual.schema, check_metadata=True)
            assert found.equals(usual.read_all())
    other = batch.drop_columns(["bucket"])
    assert pa.ipc.open_stream(to_small_ipc(other)).read_all().schema == other.schema
