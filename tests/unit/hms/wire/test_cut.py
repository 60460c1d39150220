"""Structs cut and joined again: nothing that a client sent is lost, whatever its release."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_hms.wire import codec, splice
from lakemark_hms.wire.cut import LIST, STRING, STRUCT, cut, fields, find, patch
from lakemark_hms.wire.heads import PartitionHead
from lakemark_thrift import services, ttypes
from tests.unit.hms.wire import samples

UNKNOWN_FIRST = 500  # field ids that no release has


@given(samples.raw_fields())
def test_the_index_finds_every_field(raw: dict[int, tuple[int, bytes]]) -> None:
    data = samples.join(raw)
    found = {number: (field.ttype, data[field.start : field.end]) for number, field in fields(data).items()}
    assert found == raw


@given(samples.raw_structs(), st.data())
def test_a_cut_off_struct_is_an_error(data: bytes, choice: st.DataObject) -> None:
    cut_off = data[: choice.draw(st.integers(0, len(data) - 1))]
    with pytest.raises(codec.WireError):
        fields(cut_off)


@given(st.binary(max_size=60))
def test_any_bytes_have_an_index_or_an_error(data: bytes) -> None:
    try:
        found = fields(data)
    except codec.WireError:
        return
    assert all(0 < field.start <= field.end <= len(data) for field in found.values())


@given(samples.raw_fields(), samples.raw_fields(), st.sets(st.integers(1, 2**15 - 1), max_size=3))
def test_patch_is_an_update_of_the_fields(
    raw: dict[int, tuple[int, bytes]], changes: dict[int, tuple[int, bytes]], dropped: set[int]
) -> None:
    gone = dropped | set(list(raw)[:1])
    patched = patch(samples.join(raw), {**dict.fromkeys(gone), **changes})
    expected = {number: field for number, field in raw.items() if number not in gone or number in changes} | changes
    found = {number: (field.ttype, patched[field.start : field.end]) for number, field in fields(patched).items()}
    assert found == expected


@given(samples.partitions, samples.raw_fields(first=UNKNOWN_FIRST), samples.texts)
def test_unknown_fields_survive_a_patch(
    partition: ttypes.Partition, unknown: dict[int, tuple[int, bytes]], name: str
) -> None:
    data = codec.encode_struct(partition)[:-1] + samples.join(unknown)
    patched = patch(data, {2: (STRING, splice.string_value(name)), 7: None})
    partition.dbName, partition.parameters = name, None
    assert codec.decode_struct(ttypes.Partition, patched) == partition
    assert set(unknown) <= set(fields(patched))


@given(st.lists(st.tuples(samples.partitions, samples.raw_fields(first=UNKNOWN_FIRST)), max_size=4))
def test_partitions_are_cut_out_of_a_request_byte_for_byte(
    sent: list[tuple[ttypes.Partition, dict[int, tuple[int, bytes]]]],
) -> None:
    raws = [codec.encode_struct(partition)[:-1] + samples.join(unknown) for partition, unknown in sent]
    request = splice.struct(
        splice.value_field(STRING, 1, splice.string_value("db")),
        splice.value_field(STRING, 2, splice.string_value("t")),
        splice.struct_list_field(3, raws),
        splice.bool_field(4, True),
    )
    body = b"".join(splice.struct(splice.struct_field(1, request)))
    head = codec.message_head("add_partitions_req", codec.CALL, 1)
    found = cut(ttypes.Partition, head + body, len(head), (1, 3))
    assert [piece.raw for piece in found] == raws
    assert [piece.value for piece in found] == [partition for partition, _ in sent]
    args = codec.decode_struct(services.add_partitions_req_args, head + body, len(head))
    assert args.request is not None
    assert args.request.parts == [partition for partition, _ in sent]


def test_one_struct_and_none() -> None:
    raw = codec.encode_struct(samples.table())[:-1] + samples.join({999: (STRING, splice.string_value("new"))})
    body = b"".join(splice.struct(splice.struct_field(1, raw)))
    assert [(piece.value, piece.raw) for piece in cut(ttypes.Table, body, 0, (1,))] == [(samples.table(), raw)]
    assert cut(ttypes.Table, body, 0, (2,)) == []
    assert find(body, 0, (1, 999)) == (STRING, body.index(b"\0\0\0\x03new"))


def test_a_path_that_leads_elsewhere_is_an_error() -> None:
    body = codec.encode_struct(samples.table())
    with pytest.raises(codec.WireError, match="should hold structs"):
        cut(ttypes.Table, body, 0, (1,))
    with pytest.raises(codec.WireError, match="no struct"):
        cut(ttypes.Table, body, 0, (1, 2))


def test_a_container_that_claims_more_than_there_is_is_an_error() -> None:
    for body in (b"\x0f\0\1\x0c\x7f\xff\xff\xff", b"\x0f\0\1\x02\0\0\0\x09\1", b"\x0d\0\1\x0b\x0b\x7f\xff\xff\xff"):
        with pytest.raises(codec.WireError):
            fields(body)
    with pytest.raises(codec.WireError):
        cut(ttypes.Partition, b"\x0f\0\1\x0c\0\0\0\x05\0\0", 0, (1,))


def test_heads_are_parts_of_the_whole() -> None:
    partition = samples.partition()
    head = codec.decode_struct(PartitionHead, codec.encode_struct(partition))
    assert partition.sd is not None
    assert head.sd is not None
    assert (head.values, head.dbName, head.tableName) == (partition.values, "default", "flights")
    assert (head.parameters, head.sd.location) == (partition.parameters, partition.sd.location)


STORED = [codec.encode_struct(samples.partition(day)) for day in range(1, 4)]
PARTITIONS = [samples.partition(day) for day in range(1, 4)]


@pytest.mark.parametrize(
    ("name", "reply", "expected"),
    [
        ("get_partitions", splice.reply_struct_list("get_partitions", 5, STORED), PARTITIONS),
        ("get_partitions", splice.reply_struct_list("get_partitions", 5, []), []),
        ("get_partition", splice.reply_struct("get_partition", 5, STORED[0]), PARTITIONS[0]),
        (
            "get_partitions_by_expr",
            splice.reply_struct(
                "get_partitions_by_expr",
                5,
                splice.struct(splice.struct_list_field(1, STORED), splice.bool_field(2, True)),
            ),
            ttypes.PartitionsByExprResult(PARTITIONS, True),
        ),
        (
            "get_table_req",
            splice.reply_struct(
                "get_table_req", 5, splice.struct(splice.struct_field(1, codec.encode_struct(samples.table())))
            ),
            ttypes.GetTableResult(samples.table()),
        ),
        (
            "get_partitions_statistics_req",
            splice.reply_struct(
                "get_partitions_statistics_req",
                5,
                splice.struct(
                    splice.struct_list_map_field(
                        1, {"p=1": [codec.encode_struct(ttypes.ColumnStatisticsObj("c", "int"))], "p=2": []}
                    )
                ),
            ),
            ttypes.PartitionsStatsResult({"p=1": [ttypes.ColumnStatisticsObj("c", "int")], "p=2": []}),
        ),
        (
            "get_all_tables",
            splice.reply_value("get_all_tables", 5, LIST, [splice.string_list_value(["a", "ü"])]),
            ["a", "ü"],
        ),
    ],
)
def test_spliced_replies_are_what_encoding_gives(name: str, reply: bytes, expected: object) -> None:
    assert reply == codec.encode_reply(services.METHODS[name], 5, expected)


def test_values() -> None:
    column = ttypes.SerDeInfo(name="n", parameters={"a": "b", "ü": ""})
    built = splice.struct(
        splice.value_field(STRING, 1, splice.string_value("n")),
        splice.value_field(13, 3, splice.string_map_value({"a": "b", "ü": ""})),
    )
    assert b"".join(built) == codec.encode_struct(column)
    numbers = ttypes.Partition(createTime=-5, writeId=2**40)
    built = splice.struct(
        splice.value_field(8, 4, splice.i32_value(-5)), splice.value_field(10, 10, splice.i64_value(2**40))
    )
    assert b"".join(built) == codec.encode_struct(numbers)
    assert STRUCT == 12
