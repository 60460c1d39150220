"""Lake tables as plain partitioned parquet tables, for engines that look partitions up by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemark_core.errors import UnsupportedOperation
from lakemark_core.evolution.statements import parse_changes
from lakemark_hms.filters import PartitionFilter
from lakemark_hms.lake.facet import EngineFacet
from lakemark_hms.partition_view import PartitionView, Values
from lakemark_hms.wire.codec import decode_struct
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.catalog.clean_schedule import Retention
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.timeline.jobs.alteration import AlterJob
from lakemark_thrift.ttypes import Partition, Table
from tests.lakes import FLAT, Lake, file, open_lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with open_lake(tmp_path) as opened:
        yield opened


class Engine:
    """What an engine asks: the table, the names of its partitions, and partitions by values."""

    def __init__(self, lake: Lake) -> None:
        self.facet = EngineFacet(lake.snapshots)
        self.database = lake.catalog.get_database("", "default")

    def table(self, name: str = "t") -> Table:
        struct = self.facet.get_table(self.database, name)
        assert struct is not None
        return decode_struct(Table, struct)

    def view(self, name: str = "t") -> PartitionView:
        view = self.facet.partitions(self.database, name, PartitionFilter(""))
        assert view is not None
        return view

    def replaced(self, wanted: list[Values], name: str = "t") -> PartitionView | None:
        return self.facet.replaced(self.database, name, wanted)


@pytest.fixture
def engine(lake: Lake) -> Engine:
    return Engine(lake)


def partitions(view: PartitionView) -> list[Partition]:
    return [decode_struct(Partition, view.struct(at)) for at in range(len(view))]


def directories(lake: Lake, table: LakeTable, version: int | None = None) -> list[str]:
    return sorted(f"{table.record.location}/{path.rpartition('/')[0]}" for path in lake.paths(table, version))


def test_a_table_is_a_plain_one_with_a_partition_for_each_file(lake: Lake, engine: Engine) -> None:
    table = lake.table()
    lake.put(table, [1, 2])
    lake.put(table, [2])
    shown = engine.table()
    assert (shown.tableType, shown.viewExpandedText) == ("EXTERNAL_TABLE", None)
    assert [key.name for key in shown.partitionKeys] == ["m", "lakemark_slice"]
    assert [column.name for column in shown.sd.cols] == ["id", "x", "name", "place"]
    assert {name: shown.parameters[name] for name in ("numFiles", "numRows", "totalSize", "lakemark.version")} == {
        "numFiles": "3", "numRows": "15", "totalSize": "30", "lakemark.version": "2",
    }  # fmt: skip
    view = engine.view()
    assert len(set(view.names)) == 3
    given = partitions(view)
    assert sorted(one.sd.location for one in given) == directories(lake, table)
    assert all(one.sd.cols == shown.sd.cols for one in given)  # Trino and Presto fail on a partition without columns


def test_a_table_without_partitions_is_partitioned_by_its_slices(lake: Lake, engine: Engine) -> None:
    table = lake.table(schema=FLAT)
    instant = lake.open(table)
    lake.commit(table, instant, [file(instant, "a", None), file(instant, "b", None)])
    assert [key.name for key in engine.table().partitionKeys] == ["lakemark_slice"]
    assert list(engine.view().names) == [f"lakemark_slice={instant}.a", f"lakemark_slice={instant}.b"]


def test_snapshots_are_plain_tables_too(lake: Lake, engine: Engine) -> None:
    table = lake.table()
    lake.put(table, [1])
    lake.put(table, [1, 2])
    assert engine.table("t@v1").tableType == "EXTERNAL_TABLE"
    assert sorted(one.sd.location for one in partitions(engine.view("t@v1"))) == directories(lake, table, 1)
    assert [values[0] for values in engine.view("t@v1..v2").values] == ["1", "2"]


def test_what_was_listed_before_a_commit_is_still_told(lake: Lake, engine: Engine) -> None:
    """An engine lists names, and asks for their partitions later: it reads the version whose names it has."""
    table = lake.table()
    lake.put(table, [1, 2, 3])
    lake.put(table, [1])
    listed = engine.view()
    work = lake.open(table, t.OVERWRITE_TABLE)
    lake.commit(table, work, [file(work, "new", 1)])
    lake.put(table, [2])
    now = engine.view()
    missing = [values for values in listed.values if not now.at(values)]
    assert len(missing) == 4
    replaced = engine.replaced(missing)
    assert replaced is not None
    told = {one.sd.location for one in partitions(replaced)}
    assert sorted(told) == directories(lake, table, 2)


def test_what_was_listed_is_told_after_its_version_was_cleaned(lake: Lake, engine: Engine) -> None:
    table = lake.table()
    lake.put(table, [1])
    old = engine.view().values[0]
    lake.put(table, [2])
    lake.put(table, [3])
    lake.cleaner.clean(table, Retention(versions=2))
    work = lake.open(table, t.OVERWRITE_TABLE)
    lake.commit(table, work, [file(work, "new", 1)])
    replaced = engine.replaced([old])
    assert replaced is not None
    assert list(replaced.values) == [old]


def test_names_of_nothing_are_told_as_nothing(lake: Lake, engine: Engine) -> None:
    table = lake.table()
    lake.put(table, [1])
    own = engine.view().values[0]
    strange: list[Values] = [("1", "1.g1"), ("1", "x"), ("1", ""), ("7", own[1]), ("1", f"{10**30}.g1"), ("1",), ()]
    replaced = engine.replaced(strange)
    assert replaced is None or not len(replaced)
    assert engine.replaced([own], "t@v1") is None


def test_files_that_are_read_differently_are_refused(lake: Lake, engine: Engine) -> None:
    table = lake.table()
    lake.put(table, [1])

    def alter(text: str) -> None:
        lake.timeline.alter_schema(table.table_id, AlterJob(tuple(parse_changes(text))))

    alter("ADD COLUMN tip INT; ALTER COLUMN name FIRST")
    lake.put(lake.catalog.get_lake_table("", "default", "t"), [2])
    assert [column.name for column in engine.table().sd.cols] == ["name", "id", "x", "place", "tip"]
    alter("RENAME COLUMN tip TO fee")
    for ask in (engine.table, engine.view):
        with pytest.raises(UnsupportedOperation, match="written with other names or types of columns"):
            ask()
    assert engine.table("t@v1").tableType == "EXTERNAL_TABLE"
