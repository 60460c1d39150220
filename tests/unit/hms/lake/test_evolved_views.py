"""What plain Spark sees of a table whose files were written with several schemas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemark_core.errors import InvalidName
from lakemark_core.evolution.statements import parse_changes
from lakemark_hms.filters import PartitionFilter
from lakemark_hms.lake.facet import SparkFacet
from lakemark_hms.wire.codec import decode_struct
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.timeline.jobs.alteration import AlterJob
from lakemark_thrift.ttypes import Table
from tests.lakes import Lake, open_lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with open_lake(tmp_path) as opened:
        yield opened


class Shown:
    """A table of id bigint, x double, name string, place struct<lat:double>, m int, and the facet's answers."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.table = lake.table()
        self.facet = SparkFacet(lake.snapshots)

    def put(self, *months: int) -> None:
        current = self.lake.catalog.get_lake_table("", "default", "t")
        self.lake.put(current, months)

    def alter(self, text: str) -> LakeTable:
        return self.lake.timeline.alter_schema(self.table.table_id, AlterJob(tuple(parse_changes(text))))

    def get(self, name: str = "t") -> Table:
        database = self.lake.catalog.get_database("", "default")
        struct = self.facet.get_table(database, name)
        assert struct is not None
        return decode_struct(Table, struct)

    def text(self, name: str = "t") -> str:
        return self.get(name).viewOriginalText or ""

    def columns(self, name: str) -> list[tuple[str, str]]:
        return [(one.name or "", one.type or "") for one in self.get(name).sd.cols]

    def slices(self, name: str) -> list[tuple[str, ...]]:
        database = self.lake.catalog.get_database("", "default")
        view = self.facet.partitions(database, name, PartitionFilter(""))
        assert view is not None
        return [tuple(values[:-1]) for values in view.values]


@pytest.fixture
def shown(lake: Lake) -> Shown:
    return Shown(lake)


ALL = "`id`, `x`, `name`, `place`, `m`"


def test_one_schema_needs_one_scan(shown: Shown) -> None:
    shown.put(1)
    assert shown.text() == f"SELECT {ALL} FROM `default`.`t@v1@files`"
    assert shown.columns("t@v1@files") == [
        ("id", "bigint"), ("x", "double"), ("name", "string"), ("place", "struct<lat:double>"),
    ]  # fmt: skip


def test_added_dropped_and_moved_columns_need_no_second_scan(shown: Shown) -> None:
    shown.put(1)
    shown.alter("ADD COLUMN tip INT; DROP COLUMN x; ALTER COLUMN name FIRST")
    shown.put(2)
    assert shown.text() == "SELECT `name`, `id`, `place`, `tip`, `m` FROM `default`.`t@v3@files`"
    assert [name for name, _ in shown.columns("t@v3@files")] == ["name", "id", "place", "tip"]
    assert shown.slices("t@v3@files") == [("1",), ("2",)]


def test_before_a_file_has_the_new_column_it_is_null(shown: Shown) -> None:
    shown.put(1)
    shown.alter("ADD COLUMN tip STRUCT<a: INT>; RENAME COLUMN name TO who")
    assert shown.text() == (
        "SELECT `id`, `x`, `name` AS `who`, `place`, CAST(NULL AS STRUCT<`a`: INT>) AS `tip`, `m` "
        "FROM `default`.`t@v2@files`"
    )
    assert ("name", "string") in shown.columns("t@v2@files")


def test_names_and_types_of_old_files_are_in_a_hidden_table_of_their_own(shown: Shown) -> None:
    shown.put(1)
    shown.alter("RENAME COLUMN name TO who; ALTER COLUMN m TYPE BIGINT; ADD COLUMN place.lon DOUBLE")
    shown.put(2, 3)
    assert shown.text() == (
        "SELECT `id`, `x`, `name` AS `who`, IF(`place` IS NULL, NULL, named_struct('lat', `place`.`lat`, 'lon', "
        "CAST(NULL AS DOUBLE))) AS `place`, `m` FROM `default`.`t@v3@files@s1` UNION ALL "
        "SELECT `id`, `x`, `who`, `place`, `m` FROM `default`.`t@v3@files@s2`"
    )
    assert shown.columns("t@v3@files@s1")[2:] == [("name", "string"), ("place", "struct<lat:double>")]
    assert shown.columns("t@v3@files@s2")[2:] == [("who", "string"), ("place", "struct<lat:double,lon:double>")]
    assert shown.slices("t@v3@files@s1") == [("1",)]
    assert shown.slices("t@v3@files@s2") == [("2",), ("3",)]
    rows = [shown.get(f"t@v3@files@{one}").parameters["spark.sql.statistics.numRows"] for one in ("s1", "s2")]
    assert rows == ["5", "10"]
    assert shown.text("t@v1") == f"SELECT {ALL} FROM `default`.`t@v1@files`"
    assert shown.text("t@v1..v3") == "SELECT `id`, `x`, `who`, `place`, `m` FROM `default`.`t@v1..v3@files`"
    assert shown.slices("t@v1..v3@files") == [("2",), ("3",)]
    for wrong in ("t@v3@files", "t@v3@files@s9"):
        with pytest.raises(InvalidName, match="t@v3@files@s1 and t@v3@files@s2"):
            shown.get(wrong)


def test_a_name_that_came_back_does_not_read_old_values(shown: Shown) -> None:
    shown.put(1)
    shown.alter("DROP COLUMN name; ADD COLUMN name STRING")
    shown.put(2)
    assert shown.text() == (
        "SELECT `id`, `x`, `place`, CAST(NULL AS STRING) AS `name`, `m` FROM `default`.`t@v3@files@s1` UNION ALL "
        "SELECT `id`, `x`, `place`, `name`, `m` FROM `default`.`t@v3@files@s2`"
    )
    assert "name" not in [name for name, _ in shown.columns("t@v3@files@s1")]


def test_an_empty_table_has_its_latest_columns(shown: Shown) -> None:
    shown.alter("RENAME COLUMN name TO who")
    assert shown.text() == "SELECT `id`, `x`, `who`, `place`, `m` FROM `default`.`t@v1@files`"
    assert shown.slices("t@v1@files") == []


def test_the_last_key_has_a_name_that_no_column_has(shown: Shown) -> None:
    shown.put(1)
    shown.alter("RENAME COLUMN name TO lakemark_slice")
    keys = [one.name for one in shown.get("t@v2@files").partitionKeys]
    assert keys == ["m", "_lakemark_slice"]
    shown.alter("RENAME COLUMN lakemark_slice TO who")
    shown.put(2)
    assert [one.name for one in shown.get("t@v4@files@s3").partitionKeys] == ["m", "lakemark_slice"]
