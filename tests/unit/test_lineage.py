"""Lineages of branches against a model that lists every version with its owner."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from lakemark_server.timeline.lineage import OF_MAIN, Lineage


@given(st.lists(st.integers(0, 12), max_size=4), st.integers(0, 16), st.integers(0, 16))
def test_segments_and_owners_are_those_of_the_versions(forks: list[int], after: int, upto: int) -> None:
    lineage, owners = OF_MAIN, dict.fromkeys(range(1, 17), "main")
    for number, fork in enumerate(forks):
        key = f"b#{number}"
        # A branch can fork from a version that its parent only inherits.
        lineage = Lineage(((key, fork), *lineage.forks))
        owners = {version: owner if version <= fork else key for version, owner in owners.items()}
    walked = [(version, key) for key, low, high in lineage.segments(after, upto) for version in range(low + 1, high + 1)]
    assert walked == [(version, owners[version]) for version in range(after + 1, upto + 1)]
    for version in range(1, 17):
        assert lineage.owner(version) == owners[version]
        assert lineage.at(version).key == owners[version]
        assert list(lineage.at(version).segments(0, version)) == list(lineage.segments(0, version))
