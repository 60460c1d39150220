from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from lakemark_server.kv.rangemap import RangeMap

ALL = [bytes([letter]) for letter in b"abcdefgh"]
bounds = st.sampled_from([b"", *ALL])


@given(assignments=st.lists(st.tuples(bounds, bounds, st.integers(0, 3)), max_size=20), begin=bounds, end=bounds)
def test_a_range_map_is_a_dict_of_every_key(
    assignments: list[tuple[bytes, bytes, int]], begin: bytes, end: bytes
) -> None:
    steps, model = RangeMap(), dict.fromkeys([b"", *ALL], 0)
    for first, last, number in assignments:
        steps.assign(first, last, number)
        model |= {key: number for key in model if first <= key < last}
    assert {key: steps.at(key) for key in model} == model
    inside = [key for key in model if begin <= key < end]
    if inside:
        assert steps.max_in(begin, end) == max(model[key] for key in inside)
    found = list(steps.stretches(begin, end))
    assert {key: number for first, last, number in found for key in model if first <= key < last} == {
        key: model[key] for key in inside
    }
    assert all(one[1] == following[0] for one, following in pairwise(found))
    assert {key for first, last, _ in steps.items() for key in model if first <= key < last} == {
        key for key, number in model.items() if number
    }
    assert len(steps) <= 2 * len(assignments)
