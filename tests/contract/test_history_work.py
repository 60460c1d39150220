"""What requests read does not grow with the past of a table that is folded and cleaned. Counts keys, not time."""

from __future__ import annotations

from pathlib import Path

from lakemark_core.evolution import AddColumn, DropColumn
from lakemark_core.types import BIGINT, Field
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.maintenance.cleaning.cleaner import Retention
from lakemark_server.snapshots.base_builds import Folding, Thresholds
from lakemark_server.snapshots.service import SnapshotReference, Snapshots
from lakemark_server.timeline.jobs.alteration import AlterJob
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.references import MergeDraft, ReferenceDraft
from tests.lakes import Lake, file, open_lake
from tests.work import Work, counted

APPENDS = 6
VERSIONS_A_ROUND = APPENDS + 3  # and a schema change, an overwrite of the table and a merge
ROUND_MS = 300_000  # after two rounds a base is old enough to begin with


def test_requests_read_as_much_after_a_long_history_as_after_a_short_one(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        table = lake.table()
        folding = Folding(lake.store, Snapshots(lake.store), lake.clock, Thresholds(VERSIONS_A_ROUND, 1_000_000))
        found = []
        for number in range(1, 25):
            live(lake, table, folding, number)
            if number in (6, 12, 24):
                found.append(read_by_requests(lake, table))
        assert found[0] == found[1] == found[2]


def live(lake: Lake, table: LakeTable, folding: Folding, number: int) -> None:
    """One round of a table's life: afterwards it has as many files and columns as before, and more past."""
    alter(lake, number)
    lake.put(table, [1, 2], t.OVERWRITE_TABLE)
    for _ in range(APPENDS):
        lake.put(table, [1])
    on_branch(lake, table, f"b{number}")
    lake.timeline.references.merge(table, MergeDraft(branch=f"b{number}"))
    lake.timeline.references.drop(table, f"b{number}")
    folding.run(lake.catalog.get_lake_table("", "default", "t"))
    lake.cleaner.clean(table, Retention(versions=2 * VERSIONS_A_ROUND))
    lake.clock.advance(ROUND_MS)


def alter(lake: Lake, number: int) -> None:
    change = AddColumn(Field(0, "extra", BIGINT)) if number % 2 else DropColumn("extra")
    table = lake.catalog.get_lake_table("", "default", "t")
    lake.timeline.alter_schema(table.table_id, AlterJob((change,)))


def on_branch(lake: Lake, table: LakeTable, name: str) -> None:
    """Creates a branch with a commit of its own."""
    lake.timeline.references.create(table, ReferenceDraft(name=name, kind=c.BRANCH))
    job = OpenJob(operation=t.APPEND, branch=name, profile=t.WorkProfile())
    instant = lake.timeline.open(table.table_id, job).record.instant
    lake.commit(table, instant, [file(instant, "g", 2)])


def read_by_requests(lake: Lake, table: LakeTable) -> dict[str, Work]:
    """What requests read in processes that have just been started."""
    latest = lake.snapshots.version("", "default", "t", SnapshotReference())[1]
    works = {}
    with counted(lake.store) as works["a new branch, and a commit on it"]:
        on_branch(lake, table, "measured")
    for name, at in (
        ("a read of the branch", SnapshotReference(branch="measured")),
        ("a read of the latest version", SnapshotReference()),
        ("time travel", SnapshotReference(version=latest - VERSIONS_A_ROUND - 2)),
    ):
        with counted(lake.store) as works[name]:
            Snapshots(lake.store).snapshot("", "default", "t", at).snapshot.entries()
    with counted(lake.store) as works["the branch goes"]:
        lake.timeline.references.drop(table, "measured")
    with counted(lake.store) as works["an append"]:
        lake.put(table, [1])
    with counted(lake.store) as works["schema changes"]:
        alter(lake, 1)
        alter(lake, 0)
    return works
