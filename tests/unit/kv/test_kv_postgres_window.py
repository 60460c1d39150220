"""The log of recent commits: its encoding, and how a process uses it that knows only a part."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lakemark_server.kv.postgres.binary import bytea_array, from_int8, int8
from lakemark_server.kv.postgres.window import LOG_SECONDS, Window
from lakemark_server.kv.resolver import Resolution
from lakemark_server.kv.write_sets import decode_writes, encode_writes

keys = st.binary(max_size=20) | st.just(b"k" * 10_001)
Log = list[tuple[int, bytes]]


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def wrote(version: int, *some: bytes) -> tuple[int, bytes]:
    return version, encode_writes(some, [])


def resolution(window: Window, version: int, key: bytes) -> Resolution:
    return window.check(version, [key], [])


@given(st.lists(keys, max_size=5), st.lists(st.tuples(keys, keys), max_size=5))
def test_what_is_encoded_is_decoded(some: list[bytes], ranges: list[tuple[bytes, bytes]]) -> None:
    assert decode_writes(encode_writes(some, ranges)) == (some, ranges)


def test_the_first_entry_of_a_log_wrote_nothing() -> None:
    assert decode_writes(b"") == ([], [])


def test_what_others_committed_is_followed() -> None:
    window = Window(10, Clock())
    window.follow([(10, b""), wrote(13, b"a"), (17, encode_writes([], [(b"b", b"d")]))])
    assert window.newest == 17
    assert resolution(window, 10, b"a") is Resolution.CONFLICT
    assert resolution(window, 13, b"a") is Resolution.ADMITTED
    assert resolution(window, 13, b"c") is Resolution.CONFLICT
    assert resolution(window, 10, b"e") is Resolution.ADMITTED


def test_a_version_that_no_commit_had_is_too_old() -> None:
    """It was read before a failover that lost it."""
    window = Window(10, Clock())
    window.follow([(10, b""), wrote(20, b"a")])
    assert resolution(window, 15, b"z") is Resolution.TOO_OLD


@pytest.mark.parametrize("log", [[wrote(30, b"a"), wrote(31, b"b")], [wrote(5, b"a"), wrote(31, b"b")]])
def test_after_a_gap_only_what_follows_it_is_known(log: Log) -> None:
    window = Window(10, Clock())
    window.follow([(10, b""), wrote(12, b"c")])
    window.follow(log)
    assert resolution(window, 10, b"z") is Resolution.TOO_OLD
    assert resolution(window, 12, b"z") is Resolution.TOO_OLD
    assert resolution(window, log[0][0], b"z") is Resolution.ADMITTED
    assert resolution(window, log[0][0], b"b") is Resolution.CONFLICT
    assert resolution(window, 31, b"b") is Resolution.ADMITTED


def test_the_log_is_cut_behind_the_oldest_transaction_that_may_live() -> None:
    clock = Clock()
    window = Window(10, clock)
    assert window.due() is None
    window.follow([(10, b""), wrote(20, b"a")])
    clock.seconds = LOG_SECONDS
    assert window.due() is None
    assert resolution(window, 10, b"z") is Resolution.ADMITTED
    clock.seconds += 0.5
    assert window.due() is None, "not that often"
    clock.seconds += 0.5
    assert window.due() == 10
    window.follow([(20, b""), wrote(30, b"b")])
    clock.seconds += LOG_SECONDS
    assert window.due() == 20
    assert resolution(window, 10, b"z") is Resolution.TOO_OLD
    assert resolution(window, 20, b"z") is Resolution.ADMITTED


def test_binary_formats() -> None:
    assert [from_int8(int8(number)) for number in (0, -1, 1 << 62)] == [0, -1, 1 << 62]
    assert bytea_array([]) == bytes(8) + b"\0\0\0\x11"
    assert bytea_array([b"ab", b""]).endswith(b"\0\0\0\x02\0\0\0\x01\0\0\0\x02ab\0\0\0\0")
