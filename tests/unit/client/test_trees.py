"""Which files Spark can read as trees of partitions."""

from __future__ import annotations

from typing import Any

import pytest

from lakemark_core.types import Field, Schema, name_of_partition, parse_type
from lakemark_spark.trees import Tree, trees_of


def _schema(**types: str) -> Schema:
    fields = [Field(at, name, parse_type(text)) for at, (name, text) in enumerate(types.items(), 1)]
    return Schema.build(fields, [name for name in types if name != "id"])


SCHEMA = _schema(id="bigint", p="string", n="int")


def test_files_of_an_instant_are_one_tree() -> None:
    files = {
        "7/p=a%2Fb/n=1/g_a=0/x.parquet": ("a/b", 1),
        "7/p=a%2Fb/n=1/g_a=1/y.parquet": ("a/b", 1),
        "7/p=__HIVE_DEFAULT_PARTITION__/n=2/g_a=0/x.parquet": (None, 2),
        "7/p=c/n=2/g_b=0/x.parquet": ("c", 2),
        "8/p=c/n=2/g_a=0/x.parquet": ("c", 2),
    }

    trees = trees_of(files, SCHEMA, ["id"])

    paths = list(files)
    assert trees == {Tree("7", "g_a"): paths[:3], Tree("7", "g_b"): [paths[3]], Tree("8", "g_a"): [paths[4]]}


@pytest.mark.parametrize(
    "path",
    [
        "7/p=a/n=1/x.parquet",  # without a number: a tree would mix with those that have one
        "7/p=a/n=1/g/x.parquet",
        "7/p=a/n=1/g=0/h=0/x.parquet",
        "7/n=1/p=a/g=0/x.parquet",
        "7/old=a/n=1/g=0/x.parquet",  # the column was renamed
        "7/p=b/n=1/g=0/x.parquet",  # the path says another value than the entry
        "7/p=a/n=1/ID=0/x.parquet",
        "7/p=a/n=1/N=0/x.parquet",
        "7/p=a/n=1/%69d=0/x.parquet",  # which Spark reads as id
        "7/p=a/n=1/aGVsbG8=/x.parquet",
        "7/p=a/n=1/=0/x.parquet",
        "p=a/n=1/g=0/x.parquet",
    ],
)
def test_other_layouts_are_none(path: str) -> None:
    good = {"7/p=a/n=1/g=0/x.parquet": ("a", 1)}

    assert trees_of(good, SCHEMA, ["id"]) is not None
    assert trees_of({**good, path: ("a", 1)}, SCHEMA, ["id"]) is None


@pytest.mark.parametrize(
    ("schema", "values", "scanned"),
    [
        (_schema(id="bigint", p="timestamp"), (None,), ["id"]),  # read in the session's zone
        (_schema(id="bigint", p="decimal(5,2)"), (None,), ["id"]),
        (SCHEMA, ("a", 1), ["id", "P"]),  # the files have a column of such a name, too
        (SCHEMA, ("a", 1), ["id", "Id"]),
    ],
)
def test_partitions_that_spark_might_read_otherwise_are_none(schema: Schema, values: Any, scanned: list[str]) -> None:
    assert trees_of({f"7/{name_of_partition(values, schema)}/g=0/x.parquet": values}, schema, scanned) is None
