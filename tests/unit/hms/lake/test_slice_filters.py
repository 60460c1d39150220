"""Filters over the file slices of a lake table: by partition, and by the key that tells slices apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakemark_hms.filters import PartitionFilter
from lakemark_hms.lake.facet import SparkFacet
from lakemark_hms.partition_view import PartitionView
from tests.lakes import open_lake

View = Callable[[str], PartitionView]


@pytest.fixture
def facet_view(tmp_path: Path) -> Iterator[View]:
    with open_lake(tmp_path) as lake:
        table = lake.table()
        lake.put(table, [1, 2, 3])
        lake.put(table, [2])
        facet, database = SparkFacet(lake.snapshots), lake.catalog.get_database("", "default")

        def view(text: str) -> PartitionView:
            found = facet.partitions(database, "t@v2@files", PartitionFilter(text))
            assert found is not None
            return found

        yield view


@pytest.mark.parametrize(
    ("text", "months"),
    [
        ("", ["1", "2", "3", "2"]),
        ("m = 2", ["2", "2"]),
        ("M >= 2", ["2", "3", "2"]),
        ("m = 7", []),
        ("m = 'soon'", ["1", "2", "3", "2"]),  # no number: the client filters again
        ("nonsense ((", ["1", "2", "3", "2"]),
    ],
)
def test_slices_are_selected_by_their_partition(facet_view: View, text: str, months: list[str]) -> None:
    assert [values[0] for values in facet_view(text).values] == months


def test_slices_are_selected_by_their_own_key(facet_view: View) -> None:
    whole = facet_view("")
    third = whole.values[3]
    chosen = facet_view(f'm = 2 and lakemark_slice = "{third[1]}"')
    assert list(chosen.values) == [third]
    assert chosen.struct(0) == whole.struct(3)
    assert list(facet_view(f'm = 1 and LAKEMARK_SLICE = "{third[1]}"').values) == []
    assert len(facet_view('lakemark_slice != ""')) == 4
