"""How file descriptors are divided."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakemark_server.host.descriptors import raised_limit, shares


def test_connections_have_what_they_want_if_there_is_enough() -> None:
    wanted = {"grpc": 4_096, "hms": 4_096}
    assert shares(20_000, wanted) == wanted
    assert shares(-1, wanted) == wanted


def test_else_they_share_what_is_left_of_the_reserve() -> None:
    assert shares(1_024, {"grpc": 4_096, "hms": 4_096}) == {"grpc": 256, "hms": 256}
    assert shares(100, {"grpc": 4_096, "hms": 4_096}) == {"grpc": 1, "hms": 1}


@given(st.integers(0, 100_000), st.integers(1, 100_000), st.integers(1, 100_000), st.integers(0, 1_000))
def test_the_reserve_is_left(limit: int, first: int, second: int, reserve: int) -> None:
    given = shares(limit, {"a": first, "b": second}, reserve)
    assert 1 <= given["a"] <= first
    assert 1 <= given["b"] <= second
    assert sum(given.values()) <= max(limit - reserve, 2)


def test_the_limit_of_this_process_is_known() -> None:
    assert raised_limit() != 0
