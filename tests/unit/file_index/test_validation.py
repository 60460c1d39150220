"""The rules for files: under the instant's directory, alone in their directories, with sensible numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from lakemark_core.errors import InvalidArgument, InvalidFile
from lakemark_core.table_kind import TableKind
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.file_index.entries.columns import from_messages
from lakemark_server.file_index.entries.validation import PATH_CHARS_MAX, check_partition_name, validate
from tests.lakes import FLAT, ID, NAME, SCHEMA, X, file, stat

INSTANT = 1_800_000_000_000
LOCATION = "file:/warehouse/t"


def admitted(*given: p.DataFile) -> pa.RecordBatch:
    return validate(from_messages(given, SCHEMA), SCHEMA, INSTANT, LOCATION)[0]


def at(path: str) -> p.DataFile:
    one = file(INSTANT, "x", 1)
    one.path = path
    return one


def test_paths_and_groups_are_filled_in() -> None:
    named = file(INSTANT, "b", 1)
    named.file_group = "group-7"
    batch, hashes = validate(from_messages([file(INSTANT, "a", 1), named], SCHEMA), SCHEMA, INSTANT, LOCATION)
    assert batch.column("path").to_pylist() == [f"{INSTANT}/m=1/a/a.parquet", f"{INSTANT}/m=1/b/a.parquet"]
    assert batch.column("file_group").to_pylist() == ["a", "group-7"]
    assert len(hashes) == 2
    assert (np.diff(hashes.astype(object)) > 0).all()


def test_full_uris_below_the_location_lose_it() -> None:
    batch = admitted(at(f"{LOCATION}/{INSTANT}/a/f.parquet"), at(f"{INSTANT}/b/f.parquet"))
    assert batch.column("path").to_pylist() == [f"{INSTANT}/a/f.parquet", f"{INSTANT}/b/f.parquet"]


def test_nothing_is_fine() -> None:
    batch, hashes = validate(from_messages([], SCHEMA), SCHEMA, INSTANT, LOCATION)
    assert (batch.num_rows, len(hashes)) == (0, 0)


def test_files_of_a_table_with_buckets_lie_in_the_groups_of_these() -> None:
    def checked(group: str, bucket: int | None, kind: p.FileKind.ValueType = p.BASE) -> None:
        one = file(INSTANT, "a", 1)
        one.file_group, one.kind = group, kind
        if bucket is not None:
            one.bucket = bucket
        validate(
            from_messages([one], SCHEMA), SCHEMA, INSTANT, LOCATION, deltas_allowed=True, kind=TableKind(buckets=4)
        )

    checked("bucket-3", 3)
    checked("bucket-0", 0, p.DELTA)
    for group, bucket, kind, told in (
        ("bucket-4", 4, p.BASE, "bucket 4 is not one of the table's 4 buckets, 0 to 3"),
        ("bucket-2", 1, p.BASE, "bucket 1 is file group 'bucket-1' of its partition, and not 'bucket-2'"),
        ("bucket-2", None, p.DELTA, "a delta in a table with buckets names the bucket of its keys"),
        # A change of one of its keys, whichever these are, would leave the old row there.
        ("any", None, p.BASE, "a base file in a table with buckets names the bucket of its keys.* 0 and 'bucket-0'"),
    ):
        with pytest.raises(InvalidFile, match=told):
            checked(group, bucket, kind)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (f"{INSTANT + 1}/a/f.parquet", "outside the place of instant"),
        (f"{INSTANT}1/a/f.parquet", "outside the place of instant"),
        (f"/{INSTANT}/a/f.parquet", "outside the place of instant"),
        (f"file:/other/{INSTANT}/a/f.parquet", "outside the place of instant"),
        (f"file:/warehouse/t2/{INSTANT}/a/f.parquet", "outside the place of instant"),
        (f"{LOCATION}/{INSTANT + 1}/a/f.parquet", "outside the place of instant"),
        ("", "outside the place of instant"),
        (f"{INSTANT}/../{INSTANT + 1}/a/f.parquet", "not legal"),
        (f"{INSTANT}/a/../f.parquet", "not legal"),
        (f"{INSTANT}/a/..", "not legal"),
        (f"{INSTANT}/./a/f.parquet", "not legal"),
        (f"{INSTANT}//a/f.parquet", "not legal"),
        (f"{INSTANT}/a/", "not legal"),
        (f"{INSTANT}/a/f\n.parquet", "not legal"),
        (f"{INSTANT}/a/f\0.parquet", "not legal"),
        (f"{INSTANT}/a/f?.parquet", "not legal"),
        (f"{INSTANT}/a/f#.parquet", "not legal"),
        (f"{INSTANT}/a/" + "f" * PATH_CHARS_MAX, "not legal"),
        (f"{INSTANT}/f.parquet", "needs a directory of its own"),
        (f"{INSTANT}/a/_f.parquet", "hidden"),
        (f"{INSTANT}/a/.f.parquet", "hidden"),
    ],
)
def test_paths_that_are_refused(path: str, message: str) -> None:
    with pytest.raises(InvalidFile, match=message) as refused:
        admitted(file(INSTANT, "good", 1), at(path))
    assert refused.value.details["path"] == path.removeprefix(LOCATION + "/")


@pytest.mark.parametrize(
    "path", [f"{INSTANT}/_a/f.parquet", f"{INSTANT}/m=1/a..b/f..parquet", f"{INSTANT}/ä ö/f%20.parquet"]
)
def test_paths_that_are_unusual_and_fine(path: str) -> None:
    assert admitted(at(path)).column("path").to_pylist() == [path]


def test_the_same_file_twice() -> None:
    with pytest.raises(InvalidFile, match="is given twice"):
        admitted(file(INSTANT, "a", 1), file(INSTANT, "b", 1), file(INSTANT, "a", 1))


def test_the_same_file_by_name_and_by_uri() -> None:
    with pytest.raises(InvalidFile, match="is given twice"):
        admitted(at(f"{INSTANT}/a/f.parquet"), at(f"{LOCATION}/{INSTANT}/a/f.parquet"))


def test_two_files_in_one_directory() -> None:
    with pytest.raises(InvalidFile, match="holds several files"):
        admitted(at(f"{INSTANT}/a/f.parquet"), at(f"{INSTANT}/a/g.parquet"))


def text(column_id: int, low: str, high: str) -> p.ColumnStatistics:
    return p.ColumnStatistics(column_id=column_id, min=p.Value(text=low), max=p.Value(text=high))


def floats(low: float, high: float, nans: int = 0) -> p.ColumnStatistics:
    return p.ColumnStatistics(column_id=X, min=p.Value(floating=low), max=p.Value(floating=high), nan_count=nans)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: setattr(one, "size_bytes", -1), "size_bytes is negative"),
        (lambda one: setattr(one, "row_count", -1), "row_count is negative"),
        (lambda one: setattr(one, "row_count", 1 << 60), "absurdly large"),
        (lambda one: setattr(one, "kind", p.DELTA), "base files only"),
        (lambda one: setattr(one, "format", "orc"), "not one of parquet"),
        (lambda one: one.statistics.append(stat(ID, 2, 1)), "min of column 'id' is greater than its max"),
        (lambda one: one.statistics.append(text(NAME, "b", "a")), "min of column 'name' is greater"),
        (lambda one: one.statistics.append(floats(1.5, 1.25)), "min of column 'x' is greater"),
        (lambda one: one.statistics.append(stat(ID, nulls=-1)), "null_count of column 'id'"),
        (lambda one: one.statistics.append(stat(ID, nulls=6)), "null_count of column 'id'"),
        (lambda one: one.statistics.append(floats(1, 2, nans=6)), "nan_count of column 'x'"),
    ],
)
def test_numbers_that_are_refused(change: Callable[[p.DataFile], object], message: str) -> None:
    bad = file(INSTANT, "bad", 1)
    change(bad)
    with pytest.raises(InvalidFile, match=message) as refused:
        admitted(file(INSTANT, "good", 1, stats=[stat(ID, 1, 2, 5), floats(0, 0)]), bad)
    assert "bad/a.parquet" in refused.value.message


def test_equal_bounds_and_unknown_ones_are_fine() -> None:
    admitted(
        file(INSTANT, "a", 1, stats=[stat(ID, 3, 3, 0), floats(float("-inf"), float("inf"))]), file(INSTANT, "b", 1)
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "does not fit the table; it must be m="),
        ("m=1/n=2", "does not fit the table"),
        ("n=1", "does not fit the table"),
        ("m=01", "must be written 'm=1'"),
        ("m=+1", "must be written|not a"),
        ("M=1", "must be written 'm=1'"),
        ("m=", "m"),
        ("m=x", "x"),
        ("m=99999999999", "99999999999"),
        ("m", "m"),
        ("m=1/", "m=1/"),
    ],
)
def test_partition_names_have_one_form(name: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        check_partition_name(name, SCHEMA)


def test_partition_names_that_fit() -> None:
    check_partition_name("m=-1", SCHEMA)
    check_partition_name("m=__HIVE_DEFAULT_PARTITION__", SCHEMA)
    check_partition_name("", FLAT)
    with pytest.raises(InvalidArgument, match="no partition columns"):
        check_partition_name("m=1", FLAT)


def test_a_partition_of_nulls_does_not_fit_a_key_that_has_the_column() -> None:
    one = file(INSTANT, "a", 1)
    one.partition[0].CopyFrom(p.Value(null=True))
    one.bucket, one.file_group = 0, "bucket-0"
    batch = from_messages([one], SCHEMA)
    validate(batch, SCHEMA, INSTANT, LOCATION, kind=TableKind(key=("id",)))
    with pytest.raises(InvalidFile, match=r"a null in column 'm', which belongs to the table's key"):
        validate(batch, SCHEMA, INSTANT, LOCATION, kind=TableKind(key=("id", "m"), buckets=4))


def test_a_bad_partition_name_is_refused_with_a_file_that_has_it() -> None:
    batch = from_messages([file(INSTANT, "a", 1), file(INSTANT, "b", 2)], SCHEMA)
    names = pa.array(["m=1", "m=02"])
    batch = batch.set_column(batch.schema.get_field_index("partition"), "partition", names)
    with pytest.raises(InvalidFile, match=r"/b/a.parquet.*must be written 'm=2'"):
        validate(batch, SCHEMA, INSTANT, LOCATION)


@pytest.mark.parametrize(
    "paths",
    [
        ("g/f.parquet", "g/sub/f.parquet"),
        ("g/a/b/c/f.parquet", "other/f.parquet", "g/f.parquet"),
        ("m=1/g/f.parquet", "m=1/g/h/f.parquet"),
    ],
)
def test_a_files_directory_lies_in_no_other_ones(paths: tuple[str, ...]) -> None:
    with pytest.raises(InvalidFile, match=r"lies below directory '.*g', which holds another file"):
        admitted(*(at(f"{INSTANT}/{path}") for path in paths))


def test_directories_with_a_common_beginning_are_beside_each_other() -> None:
    paths = [f"{INSTANT}/{one}/f.parquet" for one in ("g", "g-1", "g1", "h/g", "h/g1", "i/h/g")]
    assert admitted(*map(at, paths)).column("path").to_pylist() == paths


@pytest.mark.parametrize("group", ["a/b", "g" * 256, "a\nb"])
def test_a_file_group_has_a_name_that_can_be_a_directorys(group: str) -> None:
    named = file(INSTANT, "b", 1)
    named.file_group = group
    with pytest.raises(InvalidFile, match="is not legal: at most 255 characters, no '/' and no control"):
        admitted(named)


def test_a_bucket_is_not_negative() -> None:
    one, two = file(INSTANT, "a", 1), file(INSTANT, "b", 1)
    one.bucket, two.bucket = 0, -5
    with pytest.raises(InvalidFile, match=r"b/a.parquet': bucket is negative"):
        admitted(one, two)


@pytest.mark.parametrize("bound", ["min", "max"])
def test_nan_is_no_bound(bound: str) -> None:
    nan = p.ColumnStatistics(column_id=X)
    getattr(nan, bound).floating = float("nan")
    with pytest.raises(InvalidFile, match=f"b/a.parquet': {bound} of column 'x' is NaN"):
        admitted(file(INSTANT, "a", 1), file(INSTANT, "b", 1, stats=[nan]))
