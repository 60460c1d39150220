"""Structs as text of Thrift's JSON protocol: the same as Apache Thrift's own writer makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hmsclient.genthrift.hive_metastore import ttypes as h
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TJSONProtocol import TJSONProtocol
from thrift.transport.TTransport import TMemoryBuffer

from lakemark_hms.notifications.thrift_json import struct_json
from lakemark_hms.wire.codec import WireError, encode_struct
from lakemark_thrift import ttypes
from tests.integration.hms_notifications import function, statistics
from tests.integration.hms_objects import database, partition, table

STRUCTS = {
    "database": database("d", description='says "hé"\n\\', parameters={"k": "v", "empty": ""}),
    "table": table("t", keys="p string, q int", parameters={"a": "1", "ü": "日本"}),
    "no columns": table("t", cols="", keys=""),
    "partition": partition(["1", ""], of="t", location="file:/x"),
    "function": function(),
    "statistics": statistics("t", "p=1"),
    "skewed": h.SkewedInfo(["a"], [["1"], ["2", "3"]], {}),
}


def written(struct: Any, protocol: type) -> bytes:
    buffer = TMemoryBuffer()
    struct.write(protocol(buffer))
    whole: bytes = buffer.getvalue()
    return whole


@pytest.mark.parametrize("name", STRUCTS)
def test_a_struct_is_written_as_thrift_writes_it(name: str) -> None:
    struct = STRUCTS[name]
    text = struct_json(written(struct, TBinaryProtocol), getattr(ttypes, type(struct).__name__).thrift_spec)
    expected = written(struct, TJSONProtocol).decode()
    assert json.loads(text) == json.loads(expected)
    assert " " not in text.replace("says ", "")


def test_bytes_are_base64_without_padding() -> None:
    """As Java's writer has it. Without a specification, what is no text is taken for bytes."""
    longs = ttypes.LongColumnStatsData(numNulls=1, numDVs=2, bitVectors=b"HL\x03\x01\xff")
    raw = encode_struct(longs)
    expected = {"3": {"i64": 1}, "4": {"i64": 2}, "5": {"str": "SEwDAf8"}}
    assert json.loads(struct_json(raw, ttypes.LongColumnStatsData.thrift_spec)) == expected
    assert json.loads(struct_json(raw)) == expected
    plain = encode_struct(ttypes.LongColumnStatsData(numNulls=1, numDVs=2, bitVectors=b"abc"))
    assert json.loads(struct_json(plain, ttypes.LongColumnStatsData.thrift_spec))["5"] == {"str": "YWJj"}
    assert json.loads(struct_json(plain))["5"] == {"str": "abc"}


def test_control_characters_are_escaped() -> None:
    """Python's Thrift would write them as they are, which is no JSON."""
    assert struct_json(encode_struct(ttypes.Order(col="a\x01\x1f"))) == r'{"1":{"str":"a\u0001\u001f"}}'


def test_numbers_that_json_lacks_are_texts() -> None:
    for number, text in ((float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity")):
        raw = encode_struct(ttypes.DoubleColumnStatsData(lowValue=number, numNulls=0, numDVs=0))
        assert json.loads(struct_json(raw))["1"] == {"dbl": text}


def test_keys_that_are_no_texts_are_quoted() -> None:
    """A map from i32 to i64, in field 1."""
    raw = b"\x0d\0\x01\x08\x0a\0\0\0\x01" + (7).to_bytes(4, "big") + (8).to_bytes(8, "big") + b"\0"
    assert struct_json(raw) == '{"1":{"map":["i32","i64",1,{"7":8}]}}'


def test_fields_of_later_releases_survive() -> None:
    raw = encode_struct(ttypes.Order(col="a", order=1))
    later = raw[:-1] + b"\x0b\x00\x63\0\0\0\x02hi" + b"\x02\x7f\xff\x01" + b"\0"
    text = struct_json(later, ttypes.Order.thrift_spec)
    assert json.loads(text) == {
        "1": {"str": "a"},
        "2": {"i32": 1},
        "99": {"str": "hi"},
        "32767": {"tf": 1},
    }


@pytest.mark.parametrize("cut", range(1, 30))
def test_half_a_struct_is_refused(cut: int) -> None:
    raw = encode_struct(ttypes.FieldSchema(name="name", type="string", comment="words"))
    assert cut < len(raw)
    with pytest.raises(WireError, match="malformed"):
        struct_json(raw[: len(raw) - cut])
