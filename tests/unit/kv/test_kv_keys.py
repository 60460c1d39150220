from __future__ import annotations

import pytest
from fdb import tuple as fdb_tuple
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.errors import CorruptStore, InvalidArgument
from lakemark_server.kv import Space, pack, range_of, unpack
from lakemark_server.kv.keys import Item


def test_a_space_packs_like_the_whole_tuple() -> None:
    space = Space.of("table", 7)
    assert space.key("head", "main") == pack("table", 7, "head", "main")
    assert space.key() == space.prefix == pack("table", 7)
    assert space.space("head").key("main") == pack("table", 7, "head", "main")
    assert unpack(space.key(None, True, 1.5, b"\0", -(2**70))) == ("table", 7, None, True, 1.5, b"\0", -(2**70))
    assert space.unpack(space.key("head", "main")) == ("head", "main")
    assert "table" in repr(space)


def test_a_range_holds_what_extends_the_tuple_and_nothing_else() -> None:
    begin, end = range_of("table", 7)
    assert begin <= pack("table", 7, None) < pack("table", 7, "z", "z") < pack("table", 7, 2**200) < end
    assert not begin <= pack("table", 7) < end
    assert not begin <= pack("table", 8) < end
    assert not begin <= pack("table", 6, "z") < end
    assert Space.of("table").range(7) == (begin, end)


def test_foreign_keys_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="does not begin with"):
        Space.of("a").unpack(pack("b", 1))
    with pytest.raises(CorruptStore):
        unpack(b"\x99nonsense")
    with pytest.raises(CorruptStore):
        unpack(b"\x15")


_EDGES = [
    sign * (1 << bits) + off
    for bits in (0, 8, 16, 31, 48, 55, 56, 63, 64, 70)
    for sign in (1, -1)
    for off in (-1, 0, 1)
]
_TEXTS = st.text() | st.sampled_from(["\0", "a\0b", "ä\0"])
_ITEMS = st.one_of(
    st.sampled_from(_EDGES), st.integers(), _TEXTS, st.binary(), st.booleans(), st.none(), st.floats(allow_nan=False)
)


@given(st.lists(_ITEMS, max_size=4))
def test_keys_are_those_of_the_binding(items: list[Item]) -> None:
    assert pack(*items) == fdb_tuple.pack(tuple(items))
    assert Space(b"prefix").key(*items) == b"prefix" + fdb_tuple.pack(tuple(items))
