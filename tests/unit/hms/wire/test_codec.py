from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import TMemoryBuffer

from lakemark_hms.wire import codec
from lakemark_thrift import services, ttypes
from tests.unit.hms.wire import samples


def test_header_as_apache_writes_it() -> None:
    for strict in (True, False):
        buffer = TMemoryBuffer()
        TBinaryProtocol(buffer, strictWrite=strict).writeMessageBegin("get_table", TMessageType.CALL, -7)
        data = buffer.getvalue()
        assert codec.read_header(data) == ("get_table", codec.CALL, -7, len(data))
        for cut in range(len(data)):
            assert codec.read_header(data[:cut]) is None


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS"),
        (b"\x82\x21\x00\x09get_table", "compact"),
        (b"\x00\x00\x00\x2c\x80\x01\x00\x01\x00\x00", "frames"),
        (b"\x01\x00\x00\x00\x05PLAIN", "SASL"),
        (b"\x80\x02\x00\x01", "starts with"),
        (b"\x80\x01\x00\x01\x7f\xff\xff\xff", "2147483647"),
        (b"\x80\x01\x00\x01\xff\xff\xff\xff", "-1"),
        (b"\x80\x01\x00\x01\x00\x00\x00\x04ge\nt", "cannot hold"),
        (b"\x00\x00\x7f\xff", "32767"),
    ],
)
def test_what_is_no_header_is_refused_with_a_guess(data: bytes, word: str) -> None:
    with pytest.raises(codec.WireError, match=word):
        codec.read_header(data)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_header_or_an_error(data: bytes) -> None:
    try:
        header = codec.read_header(data)
    except codec.WireError:
        return
    assert header is None or 0 < header.body <= len(data)


@given(samples.partitions)
def test_structs_survive_a_round_trip(partition: ttypes.Partition) -> None:
    data = codec.encode_struct(partition)
    assert codec.decode_struct(ttypes.Partition, data) == partition
    assert codec.end_of_struct(data + b"rest", 0) == len(data)
    for cut in range(len(data)):
        with pytest.raises(codec.TruncatedError) as error:
            codec.end_of_struct(data[:cut], 0)
        assert 0 < error.value.missing <= len(data) - cut


def test_lists_as_keys_of_a_map_are_decoded() -> None:
    table = samples.table()
    assert codec.decode_struct(ttypes.Table, codec.encode_struct(table)) == table


@given(st.binary(max_size=60))
def test_any_bytes_are_a_struct_or_an_error(data: bytes) -> None:
    for kind in (ttypes.Table, ttypes.SkewedInfo, ttypes.ColumnStatistics):
        try:
            codec.decode_struct(kind, data)
        except codec.WireError:
            continue


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"\x0b\x00\x01\x7f\xff\xff\xff", "the limit is 1000"),
        (b"\x0f\x00\x01\x0b\x7f\xff\xff\xff", "limit: 1000"),
        (b"\x0b\x00\x01\xff\xff\xff\xff", "negative"),
        (b"\x63\x00\x01", "TType"),
        (b"\x0c\x00\x01" * 1000, "depth"),
        (b"\x0f\x00\x01" + b"\x0f\x00\x00\x00\x01" * 1000, "depth"),
    ],
)
def test_lengths_types_and_depth_are_limited_before_anything_is_allocated(data: bytes, word: str) -> None:
    with pytest.raises(codec.WireError, match=word):
        codec.end_of_struct(data, 0, 1000)


def test_text_that_is_not_utf8_is_replaced() -> None:
    found = codec.decode_struct(ttypes.FieldSchema, b"\x0b\x00\x01\x00\x00\x00\x02a\xff\x00")
    assert found.name == "a\ufffd"


def test_positions_outside_of_the_bytes_are_refused() -> None:
    for at in (-1, 3, 100):
        with pytest.raises(codec.WireError):
            codec.end_of_struct(b"\0\0", at)
        with pytest.raises(codec.WireError):
            codec.decode_struct(ttypes.Table, b"\0\0", at)


def test_what_a_type_cannot_hold_is_an_error_of_ours() -> None:
    with pytest.raises(codec.EncodeError, match="Table cannot be encoded"):
        codec.encode_struct(ttypes.Table(createTime=2**40))


def test_replies() -> None:
    get_table = services.METHODS["get_table"]
    reply = codec.encode_reply(get_table, 3, samples.table())
    header = codec.read_header(reply)
    assert header is not None
    assert header[:3] == ("get_table", codec.REPLY, 3)
    assert codec.decode_struct(services.get_table_result, reply, header.body).success == samples.table()

    declared = codec.encode_declared(get_table, 3, ttypes.NoSuchObjectException("no such table"))
    assert declared is not None
    result = codec.decode_struct(services.get_table_result, declared, header.body)
    assert result.o2 is not None
    assert (result.success, result.o1, str(result.o2)) == (None, None, "no such table")
    assert codec.encode_declared(get_table, 3, ttypes.NoSuchLockException("x")) is None

    assert codec.encode_reply(services.METHODS["drop_table"], 3)[-1:] == b"\0"


def test_application_errors_are_read_by_apache_thrift() -> None:
    for data, number in (
        (codec.application_error("f", 9, codec.PROTOCOL_ERROR, "wéird"), TApplicationException.PROTOCOL_ERROR),
        (codec.encode_reply(services.METHODS["get_table"], 9, None), TApplicationException.MISSING_RESULT),
    ):
        protocol = TBinaryProtocol(TMemoryBuffer(data))
        assert protocol.readMessageBegin()[1:] == (TMessageType.EXCEPTION, 9)
        error = TApplicationException()
        error.read(protocol)
        assert error.type == number
        assert error.message
