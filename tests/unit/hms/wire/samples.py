"""Objects and Hypothesis strategies that the tests of the wire share."""

from __future__ import annotations

from hypothesis import strategies as st

from lakemark_hms.wire.cut import BOOL, BYTE, DOUBLE, I16, I32, I64, LIST, MAP, SET, STRING, STRUCT
from lakemark_thrift import ttypes


def table(name: str = "flights") -> ttypes.Table:
    storage = ttypes.StorageDescriptor(
        cols=[ttypes.FieldSchema("tail", "string", "Überführung"), ttypes.FieldSchema("delay", "int", None)],
        location="file:/warehouse/flights",
        compressed=False,
        numBuckets=-1,
        serdeInfo=ttypes.SerDeInfo(parameters={"serialization.format": "1"}),
        skewedInfo=ttypes.SkewedInfo([], [["a", "b"]], {("a", "b"): "file:/x"}),
    )
    return ttypes.Table(name, "default", sd=storage, parameters={"k": "v"}, tableType="MANAGED_TABLE")


def partition(day: int = 1) -> ttypes.Partition:
    return ttypes.Partition([f"2013-01-{day:02}"], "default", "flights", sd=table().sd, parameters={"numRows": "7"})


texts = st.text(max_size=8)
names = st.none() | texts
maps = st.none() | st.dictionaries(texts, texts, max_size=3)
columns = st.builds(ttypes.FieldSchema, names, names, names)
storages = st.builds(
    ttypes.StorageDescriptor,
    cols=st.none() | st.lists(columns, max_size=3),
    location=names,
    compressed=st.none() | st.booleans(),
    numBuckets=st.none() | st.integers(-(2**31), 2**31 - 1),
    parameters=maps,
)
partitions = st.builds(
    ttypes.Partition,
    values=st.none() | st.lists(texts, max_size=3),
    dbName=names,
    sd=st.none() | storages,
    parameters=maps,
    writeId=st.none() | st.integers(-(2**63), 2**63 - 1),
)

_fixed = {BOOL: 1, BYTE: 1, DOUBLE: 8, I16: 2, I32: 4, I64: 8}


def _length(number: int) -> bytes:
    return number.to_bytes(4, "big")


def values(ttype: int, levels: int = 2) -> st.SearchStrategy[bytes]:
    """Any encoded value of a wire type."""
    if ttype in _fixed:
        return st.binary(min_size=_fixed[ttype], max_size=_fixed[ttype])
    if ttype == STRING:
        return st.binary(max_size=9).map(lambda data: _length(len(data)) + data)
    if ttype == STRUCT:
        return raw_structs(levels - 1)
    if ttype in (LIST, SET):
        return _types(levels).flatmap(
            lambda element: st.lists(values(element, levels - 1), max_size=3).map(
                lambda found: bytes((element,)) + _length(len(found)) + b"".join(found)
            )
        )
    assert ttype == MAP
    return st.tuples(_types(levels), _types(levels)).flatmap(
        lambda kinds: st.lists(
            st.tuples(values(kinds[0], levels - 1), values(kinds[1], levels - 1)).map(b"".join), max_size=3
        ).map(lambda found: bytes(kinds) + _length(len(found)) + b"".join(found))
    )


def _types(levels: int) -> st.SearchStrategy[int]:
    deep = [STRUCT, MAP, SET, LIST] if levels > 0 else []
    return st.sampled_from([*_fixed, STRING, *deep])


def raw_fields(levels: int = 2, first: int = 1) -> st.SearchStrategy[dict[int, tuple[int, bytes]]]:
    """Field id -> (wire type, encoded value), as any release might send them."""
    field = _types(levels).flatmap(lambda ttype: st.tuples(st.just(ttype), values(ttype, levels)))
    return st.dictionaries(st.integers(first, 2**15 - 1), field, max_size=5)


def join(fields: dict[int, tuple[int, bytes]]) -> bytes:
    return b"".join(bytes((t,)) + i.to_bytes(2, "big") + v for i, (t, v) in fields.items()) + b"\0"


def raw_structs(levels: int = 2) -> st.SearchStrategy[bytes]:
    return raw_fields(levels).map(join)
