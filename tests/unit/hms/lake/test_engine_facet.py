"""Lake tables as plain partitioned parquet tables, for engines that look partitions up by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from lakemark_core.errors import UnsupportedOperation
from lakemark_core.evolution.statements import parse_changes
from lakemark_hms.filters import PartitionFilter
from lakemark_hms.lake.facet import EngineFacet
from lakemark_hms.partition_view import PartitionView, Values
from lakemark_hms.wire.codec import decode_struct
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.catalog.clean_schedule import Retention
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.parts.fold import Origin, Snapshot
from lakemark_server.kv import Store
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.timeline.jobs.alteration import AlterJob
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.lineage import Lineage
from lakemark_server.timeline.references import ReferenceDraft
from lakemark_thrift.ttypes import Partition, Table
from tests.lakes import FLAT, Lake, file, open_lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with open_lake(tmp_path) as opened:
        yield opened


class Engine:
    """What an engine asks: the table, the names of its partitions, and partitions by values."""

    def __init__(self, lake: Lake, snapshots: Snapshots | None = None) -> None:
        self.facet = EngineFacet(snapshots or lake.snapshots)
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


class Watched(Snapshots):
    """``loaded`` has the versions whose files were asked for, in that order."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.loaded: list[int] = []

    def load(self, table: LakeTable, lineage: Lineage, version: int, origin: Origin | None = None) -> Snapshot:
        self.loaded.append(version)
        return super().load(table, lineage, version, origin)


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


def test_what_was_listed_together_is_looked_for_in_one_version(lake: Lake) -> None:
    snapshots = Watched(lake.store)
    engine = Engine(lake, snapshots)
    table = lake.table()
    for month in (1, 2, 3, 4):
        lake.put(table, [month])
    earlier, listed = engine.view("t@v2").values, engine.view().values
    lake.put(table, [5], t.OVERWRITE_TABLE)
    lake.put(table, [6])

    def versions(wanted: Iterable[Values], found: Iterable[Values]) -> list[int]:
        snapshots.loaded.clear()
        view = engine.replaced(list(wanted))
        assert view is not None
        assert sorted(view.values) == sorted(found)
        return [version for version in snapshots.loaded if version != 6]

    assert versions(listed, listed) == [4]
    assert versions(earlier, earlier) == [2]
    strange = ("7", listed[-1][1])
    assert versions([*listed, strange], listed) == [4], "no older version has what its instant has not published"


def test_slices_from_several_versions_are_told_together(lake: Lake, engine: Engine) -> None:
    table = lake.table()
    wanted: list[Values] = []
    for month in (1, 2, 3):
        lake.put(table, [month], t.OVERWRITE_TABLE)
        wanted += engine.view().values
    replaced = engine.replaced(wanted)
    assert replaced is not None
    assert sorted(replaced.values) == wanted[:2]
    given = sorted(one.sd.location for one in partitions(replaced))
    assert given == sorted([*directories(lake, table, 1), *directories(lake, table, 2)])


def test_names_of_nothing_are_told_as_nothing(lake: Lake, engine: Engine) -> None:
    table = lake.table()
    lake.put(table, [1])
    own = engine.view().values[0]
    strange: list[Values] = [("1", "1.g1"), ("1", "x"), ("1", ""), ("7", own[1]), ("1", f"{10**30}.g1"), ("1",), ()]
    replaced = engine.replaced(strange)
    assert replaced is None or not len(replaced)
    assert engine.replaced([own], "t@v1") is None


@pytest.mark.parametrize("kind", [c.BRANCH, c.TAG])
def test_a_branch_or_a_tag_made_again_shows_its_own_files(
    lake: Lake, engine: Engine, kind: c.ReferenceKind.ValueType
) -> None:
    """The new one has the same name and the same version number as the one before."""
    table = lake.table()
    lake.put(table, [1])
    references = lake.timeline.references
    name = "dev" if kind == c.BRANCH else "kept"
    shown = []
    for month in (2, 3):
        references.create(table, ReferenceDraft("dev", c.BRANCH))
        job = OpenJob(branch="dev", operation=t.APPEND, profile=t.WorkProfile())
        instant = lake.timeline.open(table.table_id, job).record.instant
        lake.commit(table, instant, [file(instant, f"g{month}-{number}", month) for number in range(month)])
        if kind == c.TAG:
            references.create(table, ReferenceDraft(name, c.TAG, "dev", 2))
        parameters = engine.table(f"t@{name}").parameters
        shown.append((parameters["numFiles"], sorted(values[0] for values in engine.view(f"t@{name}").values)))
        if kind == c.TAG:
            references.drop(table, name)
        references.drop(table, "dev")
    assert shown == [("3", ["1", "2", "2"]), ("4", ["1", "3", "3", "3"])]


def alter(lake: Lake, table: LakeTable, text: str) -> LakeTable:
    return lake.timeline.alter_schema(table.table_id, AlterJob(tuple(parse_changes(text))))


def test_replaced_slices_that_the_latest_columns_do_not_fit_are_left_out(lake: Lake, engine: Engine) -> None:
    table = lake.table()
    lake.put(table, [1])
    table = alter(lake, table, "RENAME COLUMN x TO y")
    lake.put(table, [2], t.OVERWRITE_TABLE)
    renamed = engine.view().values
    table = alter(lake, table, "ADD COLUMN tip INT")
    lake.put(table, [3])
    listed = engine.view().values
    old = engine.view("t@v1").values
    lake.put(table, [4], t.OVERWRITE_TABLE)
    replaced = engine.replaced([*old, *listed])
    assert replaced is not None
    assert sorted(replaced.values) == sorted(listed)
    assert set(renamed) < set(listed), "files without an added column are read as nulls"
    assert all([column.name for column in one.sd.cols][1] == "y" for one in partitions(replaced))


def test_files_that_are_read_differently_are_refused(lake: Lake, engine: Engine) -> None:
    table = lake.table()
    lake.put(table, [1])
    alter(lake, table, "ADD COLUMN tip INT; ALTER COLUMN name FIRST")
    lake.put(lake.catalog.get_lake_table("", "default", "t"), [2])
    assert [column.name for column in engine.table().sd.cols] == ["name", "id", "x", "place", "tip"]
    alter(lake, table, "RENAME COLUMN tip TO fee")
    for ask in (engine.table, engine.view):
        with pytest.raises(UnsupportedOperation, match="written with other names or types of columns"):
            ask()
    assert engine.table("t@v1").tableType == "EXTERNAL_TABLE"
