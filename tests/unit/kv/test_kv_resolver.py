"""The resolver against its plain definition: a list of everything that was ever written."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from lakemark_server.kv.resolver import Resolution, Resolver

keys = st.sampled_from([b"", b"a", b"a\0", b"b", b"c", b"cc", b"d"])
ranges = st.tuples(keys, keys).map(lambda pair: (min(pair), max(pair))).filter(lambda pair: pair[0] < pair[1])
transactions = st.tuples(
    st.integers(0, 6),  # how many versions ago it read
    st.lists(keys, max_size=3),
    st.lists(ranges, max_size=2),
    st.lists(keys, max_size=3),
    st.lists(ranges, max_size=2),
)
batches = st.tuples(st.lists(transactions, min_size=1, max_size=4), st.booleans())


def touches(read_keys, read_ranges, write_keys, write_ranges) -> bool:  # type: ignore[no-untyped-def]
    reads = [(key, key + b"\0") for key in read_keys] + read_ranges
    writes = [(key, key + b"\0") for key in write_keys] + write_ranges
    return any(max(a, c) < min(b, d) for a, b in reads for c, d in writes)


@settings(max_examples=300)
@given(history=st.lists(batches, max_size=12), block_entries=st.integers(1, 6))
def test_verdicts_are_those_of_the_definition(history, block_entries) -> None:  # type: ignore[no-untyped-def]
    resolver = Resolver(10, block_entries=block_entries)
    version, log = 10, []
    for batch, applied in history:
        pending = []
        for age, read_keys, read_ranges, write_keys, write_ranges in batch:
            read_version = max(10, version - age)
            newer = [written for at, *written in log + pending if at > read_version]
            conflict = any(touches(read_keys, read_ranges, *written) for written in newer)
            resolution = resolver.check(read_version, read_keys, read_ranges)
            assert resolution is (Resolution.CONFLICT if conflict else Resolution.ADMITTED)
            if not conflict:
                resolver.record(write_keys, write_ranges)
                pending.append((version + 1, write_keys, write_ranges))
        if applied:
            version += 1
            resolver.seal(version)
            log += pending
        else:
            resolver.discard()


def filled(versions: int, **bounds: int) -> Resolver:
    resolver = Resolver(0, **bounds)
    for version in range(1, versions + 1):
        resolver.record([b"%d" % version], [])
        resolver.seal(version)
    return resolver


def test_reads_older_than_the_window_are_refused() -> None:
    resolver = filled(100, block_entries=1)
    resolver.forget(40)
    assert resolver.horizon == 40
    assert len(resolver) == 60
    assert resolver.check(39, [], []) is Resolution.TOO_OLD
    assert resolver.check(40, [b"40"], [(b"4", b"5")]) is Resolution.CONFLICT, "41 to 49 lie in that range"
    assert resolver.check(40, [b"40"], [(b"400", b"41")]) is Resolution.ADMITTED
    assert resolver.check(40, [b"41"], []) is Resolution.CONFLICT


def test_the_window_is_bounded_whatever_is_written() -> None:
    resolver = filled(100, block_entries=2, blocks_max=5)
    assert len(resolver) <= 10
    assert resolver.horizon == 90
    assert resolver.check(89, [], []) is Resolution.TOO_OLD
    assert resolver.check(90, [b"90"], []) is Resolution.ADMITTED


def test_after_a_restart_only_new_snapshots_are_admitted() -> None:
    resolver = filled(3)
    resolver.record([b"x"], [])
    resolver.restart(7)
    assert resolver.check(6, [], []) is Resolution.TOO_OLD
    assert resolver.check(7, [b"x", b"3"], []) is Resolution.ADMITTED
    with pytest.raises(ValueError, match="not newer"):
        resolver.seal(7)
