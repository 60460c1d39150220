"""Entries as blocks: decoding returns what was encoded, and no block exceeds the store's limit."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark_core.errors import CorruptStore, InvalidFile
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.file_index.entries.columns import from_messages
from lakemark_server.file_index.entries.validation import validate
from lakemark_server.file_index.pages.blocks import (
    BLOCK_BYTES_MAX,
    LIST_FILES_MAX,
    decode,
    decode_fixed,
    encode,
    encode_list,
)
from lakemark_server.kv.api import VALUE_BYTES_MAX
from tests.lakes import ID, NAME, SCHEMA, file, stat

INSTANT = 1_800_000_000_000


def test_a_small_commit_stays_a_list() -> None:
    given_files = [file(INSTANT, f"g{number}", number, stats=[stat(ID, 1, number, 0)]) for number in range(1, 9)]
    for one in given_files:
        one.file_group = "g"
    block = encode_list(p.DataFileList(files=given_files))
    assert block is not None
    assert block[:1] == b"P"
    assert decode(block, SCHEMA).equals(from_messages(given_files, SCHEMA))


def test_lists_are_bounded() -> None:
    many = [file(INSTANT, f"g{number}", 1) for number in range(LIST_FILES_MAX + 1)]
    assert encode_list(p.DataFileList(files=many)) is None
    large = file(INSTANT, "g", 1)
    large.path += "x" * BLOCK_BYTES_MAX
    assert encode_list(p.DataFileList(files=[large])) is None


@settings(max_examples=25)
@given(st.integers(0, 30_000), st.sampled_from([0, 40, 400]), st.randoms(use_true_random=False))
def test_blocks_hold_everything_in_order(count: int, noise: int, chance: object) -> None:
    count = count // (1 + noise // 10)
    rows = [
        file(INSTANT, f"{chance.getrandbits(4 * noise + 1):x}-{number}", number % 7, rows=number)  # type: ignore[attr-defined]
        for number in range(count)
    ]
    batch = from_messages(rows, SCHEMA)
    encoded = encode(batch)
    assert all(block[:1] in (b"B", b"C") and len(block) <= BLOCK_BYTES_MAX < VALUE_BYTES_MAX for block in encoded)
    if count:
        assert pa.Table.from_batches([decode(block, SCHEMA) for block in encoded]).equals(
            pa.Table.from_batches([batch])
        )
        assert len(encoded) <= 2 + batch.nbytes // (BLOCK_BYTES_MAX // 4), "blocks are not needlessly small"
    else:
        assert encoded == []


def test_one_entry_that_is_too_large_is_refused() -> None:
    bound = "".join(chr(0x4E00 + (number * number * 7919 + number // 7) % 20_000) for number in range(200_000))
    statistics = p.ColumnStatistics(column_id=NAME, min=p.Value(text=bound), max=p.Value(text=bound))
    batch = from_messages([file(INSTANT, "a", 1), file(INSTANT, "big", 1, stats=[statistics])], SCHEMA)
    with pytest.raises(InvalidFile, match=r"big/a.parquet.*shorter bounds") as refused:
        encode(batch)
    assert "big" in refused.value.details["path"]


def test_a_block_is_read_with_the_schema_that_it_was_written_with() -> None:
    batch = from_messages([file(INSTANT, "a", 1, stats=[stat(ID, 1, 2)])], SCHEMA)
    (block,) = encode(validate(batch, SCHEMA, INSTANT, "file:/w")[0])
    without = type(SCHEMA)(SCHEMA.columns[1:], SCHEMA.partition_columns, 2)
    assert "min.1" in decode(block, SCHEMA).schema.names
    with pytest.raises(CorruptStore, match="another schema"):
        decode(block, without)


@pytest.mark.parametrize("count", [1, LIST_FILES_MAX, LIST_FILES_MAX + 1, 500])
def test_removed_files(count: int) -> None:
    batch = from_messages([file(INSTANT, f"g{n}", n % 3) for n in range(count)], SCHEMA)
    (block,) = encode(batch)
    assert decode_fixed(block).equals(batch)
    assert decode(block, SCHEMA).equals(batch)


def test_a_block_of_a_newer_release() -> None:
    with pytest.raises(CorruptStore, match="newer release"):
        decode(b"Zdata", SCHEMA)
