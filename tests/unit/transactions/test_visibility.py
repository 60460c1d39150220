"""What readers see: compared with a plain model, and in the forms that Hive's clients read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.errors import InvalidArgument
from lakemark_server.transactions.visibility import (
    ValidTransactions,
    bits,
    parse_valid_transactions,
    seen_by,
    valid_write_ids,
)


def test_the_text_of_hives_lists() -> None:
    assert parse_valid_transactions("7:3:3,5:4") == ValidTransactions(7, frozenset({3, 5}), frozenset({4}))
    assert parse_valid_transactions("7:9223372036854775807::") == ValidTransactions(7, frozenset(), frozenset())
    assert parse_valid_transactions("7:3::4").aborted == {4}
    assert parse_valid_transactions("7").high_water_mark == 7
    for wrong in ("", "x", "7:3:a:", "7:3:3,,4:"):
        with pytest.raises(InvalidArgument, match="no list of valid transactions"):
            parse_valid_transactions(wrong)


def test_bits_are_those_of_java() -> None:
    assert bits([]) == bits([False] * 20) == b""
    assert bits([True, False, True]) == b"\x05"
    assert bits([False] * 8 + [True]) == b"\x00\x01"


def test_a_reader_sees_what_it_has_written_itself_and_nothing_later() -> None:
    seen = seen_by([3, 5, 8], [4], 9, 5)
    assert (seen.high_water_mark, set(seen.open), set(seen.aborted)) == (5, {3}, {4})
    assert [one for one in range(1, 10) if seen.is_valid(one)] == [1, 2, 5]


@given(
    states=st.lists(st.sampled_from("coa"), max_size=12),
    writers=st.lists(st.integers(1, 12), max_size=12, unique=True),
    forgotten=st.sets(st.integers(1, 12)),
    mark=st.integers(0, 12),
)
def test_a_write_is_valid_if_its_transaction_is(
    states: list[str], writers: list[int], forgotten: set[int], mark: int
) -> None:
    """Transactions 1, 2, … are committed, open or aborted; the reader does not know of those above its mark. Writes of
    committed ones that everybody knows of may be forgotten."""
    writers = [one for one in writers if one <= len(states)]
    mark = min(mark, len(states))
    state = dict(enumerate(states, 1))
    reader = ValidTransactions(
        mark, {i for i in state if state[i] == "o" and i <= mark}, {i for i in state if state[i] == "a" and i <= mark}
    )
    kept = [
        (write_id, by)
        for write_id, by in enumerate(writers, 1)
        if not (by in forgotten and by <= mark and state[by] == "c")
    ]
    valid = valid_write_ids(reader, len(writers), kept)
    visible = {one for one in range(1, valid.high_water_mark + 1) if one not in valid.invalid}
    assert visible == {write_id for write_id, by in enumerate(writers, 1) if by <= mark and state[by] == "c"}
    assert list(valid.invalid) == sorted(valid.invalid)
    for write_id, aborted in zip(valid.invalid, valid.aborted, strict=True):
        assert aborted == (writers[write_id - 1] <= mark and state[writers[write_id - 1]] == "a")
    still_open = [one for one, aborted in zip(valid.invalid, valid.aborted, strict=True) if not aborted]
    assert valid.first_open == (min(still_open) if still_open else None)
