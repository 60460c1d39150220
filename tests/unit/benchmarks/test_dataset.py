"""The table of the benchmarks: all systems must plan the same files, in whatever order."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchmarks import lake
from benchmarks.dataset import APPENDS, Dataset


def _all(dataset: Dataset) -> pa.Table:
    return pa.concat_tables(dataset.append(number) for number in range(APPENDS))


@pytest.mark.parametrize("scattered", [False, True])
def test_every_file_once_and_partitions_of_one_size(scattered: bool) -> None:
    table = _all(Dataset(2_000, 20, scattered))

    assert sorted(table.column("min.1").to_numpy().tolist()) == [1_000 * place for place in range(2_000)]
    assert pc.value_counts(table.column("p")).field("counts").to_pylist() == [100] * 20
    assert len(set(table.column("path").to_pylist())) == 2_000


@pytest.mark.parametrize("scattered", [False, True])
def test_the_selection_needs_as_many_files_as_it_says(scattered: bool) -> None:
    dataset = Dataset(2_000, 20, scattered)
    wanted = dataset.selection
    table = _all(dataset)
    matching = [
        row
        for row in table.select(["p", "min.1", "max.1"]).to_pylist()
        if row["p"] == wanted.partition and row["max.1"] >= wanted.low and row["min.1"] < wanted.high
    ]

    assert len(matching) == dataset.selected_files == 50


def test_clustered_appends_fill_few_partitions_and_scattered_ones_all() -> None:
    clustered, scattered = (Dataset(2_000, 20, layout).append(3) for layout in (False, True))

    assert len(set(clustered.column("p").to_pylist())) == 1
    assert len(set(scattered.column("p").to_pylist())) == 20


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple"):
        Dataset(1_000, 7)


def test_a_measure_is_bounded_by_runs_and_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lake.median_s(lambda: None, 5)[1] == 5
    monkeypatch.setattr(lake, "SECONDS_MAX", 1e-9)
    assert lake.median_s(lambda: None, 5)[1] == 1
