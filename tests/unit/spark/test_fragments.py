"""Which small files are merged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakemark import DataFile
from lakemark.files.runs import bins_of, without_deltas

TARGET = 100
SIZES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 120)), max_size=30)


def _files(sizes: list[tuple[int, int]]) -> list[DataFile]:
    return [
        DataFile(f"1/p={partition}/{at}/f", size, 1, (partition,), file_group=f"g{at}", added_version=at)
        for at, (partition, size) in enumerate(sizes)
    ]


@given(SIZES)
def test_small_files_of_a_partition_are_merged_up_to_the_size(sizes: list[tuple[int, int]]) -> None:
    files = _files(sizes)
    bins = bins_of(files, TARGET)

    for one in bins:
        assert len(one) > 1
        assert len({file.partition for file in one}) == 1
        assert sum(file.size_bytes for file in one) <= TARGET
        assert all(2 * file.size_bytes < TARGET for file in one), "large files stay as they are"
    paths = [file.path for one in bins for file in one]
    assert len(paths) == len(set(paths))


@given(SIZES)
def test_what_was_merged_is_not_merged_for_ever(sizes: list[tuple[int, int]]) -> None:
    files = _files(sizes)
    rounds = 0
    while bins := bins_of(files, TARGET):
        rounds += 1
        gone = {file.path for one in bins for file in one}
        files = [file for file in files if file.path not in gone]
        merged = [(one[0].partition[0], sum(file.size_bytes for file in one)) for one in bins]
        files += [
            DataFile(f"{rounds + 1}/p={partition}/{at}/f", size, 1, (partition,), added_version=100 * rounds + at)
            for at, (partition, size) in enumerate(merged)  # type: ignore[misc]
        ]
    for partition in range(3):
        assert sum(2 * file.size_bytes < TARGET for file in files if file.partition == (partition,)) <= 1
    assert rounds <= 2


def test_files_of_groups_with_deltas_stay() -> None:
    files = [
        DataFile("1/a/f", 1, 1, file_group="a"),
        DataFile("1/b/f", 1, 1, file_group="b"),
        DataFile("2/b/f", 1, 1, file_group="b", kind="delta", base_instant=1),
    ]
    assert [file.file_group for file in without_deltas(files)] == ["a"]
