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
    walked = [
        (version, key) for key, low, high in lineage.segments(after, upto) for version in range(low + 1, high + 1)
    ]
    assert walked == [(version, owners[version]) for version in range(after + 1, upto + 1)]
    for version in range(1, 17):
        assert lineage.owner(version) == owners[version]
        assert lineage.at(version).key == owners[version]
        assert list(lineage.at(version).segments(0, version)) == list(lineage.segments(0, version))


Branch = tuple[Lineage, int, dict[int, str]]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(0, 5)), max_size=6), st.data())
def test_the_last_common_version_is_that_of_the_owners(made: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Branches fork from any earlier branch, at any of its versions, and then get versions of their own."""
    first = 8
    branches: list[Branch] = [(OF_MAIN, first, dict.fromkeys(range(1, first + 1), "main"))]
    for number, (parent, wanted, own) in enumerate(made):
        lineage, latest, owners = branches[parent % len(branches)]
        fork = min(wanted, latest)
        key = f"b#{number}"
        child = Lineage(((key, fork), *lineage.at(fork).forks)) if fork else Lineage(((key, 0), *OF_MAIN.forks))
        kept = {version: owner for version, owner in owners.items() if version <= fork}
        branches.append((child, fork + own, kept | dict.fromkeys(range(fork + 1, fork + own + 1), key)))
    one, other = (data.draw(st.sampled_from(branches)) for _ in range(2))
    shared = [version for version, owner in one[2].items() if other[2].get(version) == owner]
    assert one[0].common(one[1], other[0], other[1]) == max(shared, default=0)
