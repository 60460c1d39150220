"""Which base file lies under a delta, beside a search through all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakemark import DataFile
from lakemark_core.bucket_tree import FileGroups, group_name
from lakemark_spark.batches import BucketGroup
from lakemark_spark.groups import files_of_groups, instants_under

_names = st.integers(0, 15).map(lambda number: group_name(number) if number else "bucket-3")
_groups = st.builds(BucketGroup, st.sampled_from([("x",), ("y",)]), _names)


@given(st.lists(st.tuples(_groups, st.booleans()), max_size=8), st.sets(_groups, max_size=4))
def test_the_latest_base_file_that_shares_keys(known: list[tuple[BucketGroup, bool]], asked: set[BucketGroup]) -> None:
    distinct = dict(known)  # a group has one base file
    files = [
        DataFile(f"{at}/f/f", 1, 1, group.partition, file_group=group.name, kind="base" if is_base else "delta")
        for at, (group, is_base) in enumerate(distinct.items(), start=1)
    ]
    expected = {}
    for group in asked:
        sharing = FileGroups([group])
        instants = [
            int(file.path.split("/")[0])
            for file in files
            if file.kind == "base" and sharing.touch(file.partition, file.file_group)
        ]
        if instants:
            expected[group] = max(instants)
    assert instants_under(files, asked) == expected
    assert {file.path for file in files_of_groups(files, asked)} >= {
        file.path for file in files if FileGroups(asked).touch(file.partition, file.file_group)
    }
