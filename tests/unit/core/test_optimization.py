"""Policies of tables that look after themselves, and which files are merged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core import optimization
from lakemark_core.errors import InvalidArgument
from lakemark_core.optimization import OptimizationPolicy, files_to_merge, policy_of

MB = 1 << 20


def test_a_table_that_says_nothing_is_looked_after() -> None:
    policy = policy_of({})
    assert policy == OptimizationPolicy(
        enabled=True,
        group="default",
        priority=5,
        quota_percent=100,
        run_bytes_max=500 * MB,
        interval_min_ms=60_000,
        fragments=16,
        delta_commits=8,
        delta_bytes=64 * MB,
        minor_interval_ms=3_600_000,
        segments=8,
        delete_percent=10,
        full_interval_ms=0,
        attempts_max=5,
        target_bytes=128 * MB,
        buckets=0,
    )
    assert (policy.fragment_bytes, policy.segment_bytes) == (16 * MB, 64 * MB)


@pytest.mark.parametrize("name", optimization.PROPERTIES)
def test_illegal_values_are_refused_by_the_name_of_the_property(name: str) -> None:
    with pytest.raises(InvalidArgument, match=name if name != optimization.GROUP_PROPERTY else "optimizer group"):
        policy_of({name: "no such value!"})


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"lakemark.optimize.run-bytes-max": str(MB)}, "no run could make a single file"),
        ({"lakemark.optimize.minor.interval-ms": "10"}, "more often than"),
        ({"lakemark.optimize.full.interval-ms": "86400000"}, "set lakemark.clustering.columns"),
        (
            {"lakemark.optimize.full.interval-ms": "10", "lakemark.clustering.columns": "x"},
            "more often than",
        ),
        (
            {
                "lakemark.optimize.full.interval-ms": "86400000",
                "lakemark.primary-key": "id",
                "lakemark.bucket.count": "4",
            },
            "no other order is possible",
        ),
        ({"lakemark.optimize.priority": "10"}, "from 0 to 9"),
        ({"lakemark.optimize.quota-percent": "0"}, "from 1 on"),
    ],
)
def test_policies_that_contradict_themselves_are_refused_in_words(properties: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        policy_of(properties)


def test_a_small_target_needs_no_other_bound_of_a_run() -> None:
    assert policy_of({"lakemark.write.target-file-size-bytes": str(1 << 30)}).run_bytes_max == 500 * MB


@pytest.mark.parametrize(
    ("sizes", "taken"),
    [
        ([], 0),
        ([5], 0),
        ([5, 5], 2),
        ([5, 50], 0),
        ([1, 3, 3, 3], 4),  # a tiny one does not keep the others apart
        ([10] * 16, 16),
        ([10] * 16 + [1_000], 16),  # what was merged is left alone
        ([10] * 16 + [160], 17),  # until there is as much again
        ([40, 40, 40], 2),  # within the bound
    ],
)
def test_files_are_merged_with_as_much_as_themselves(sizes: list[int], taken: int) -> None:
    assert files_to_merge(sizes, 100 if sizes == [40, 40, 40] else 10_000) == taken


@given(st.integers(2, 40), st.integers(50, 400))
def test_a_byte_is_written_a_logarithmic_number_of_times(trigger: int, commits: int) -> None:
    files: list[int] = []
    written = 0
    for _ in range(commits):
        files.append(1)
        taken = files_to_merge(sorted(files), 1 << 40)
        if taken >= trigger:
            files.sort()
            merged = sum(files[:taken])
            written += merged
            files[:taken] = [merged]
    assert sum(files) == commits
    assert written <= commits * (1 + commits.bit_length())
    assert len(files) < trigger + commits.bit_length() + 1
