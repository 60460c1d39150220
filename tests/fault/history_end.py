"""The final state of a history, read without the services."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from lakemark_core.errors import VersionNotFound
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_server.catalog import schemas
from lakemark_server.file_index.arrow import texts
from lakemark_server.kv import Store
from lakemark_server.snapshots.service import SnapshotReference, Snapshots
from lakemark_server.timeline.service import Timeline
from tests.fault.history_plans import TABLES
from tests.fault.history_worker import BASE_COLUMNS
from tests.histories import History, Operation, Place, PlaceVersion, Version

KEPT_MAX = 100


def history(store: Store, operations: Sequence[Operation]) -> History:
    snapshots = Snapshots(store)
    timeline = Timeline(store, snapshots)
    versions: dict[Place, list[Version]] = {}
    forks: dict[Place, PlaceVersion] = {}
    kept: dict[PlaceVersion, frozenset[str]] = {}
    lost: dict[PlaceVersion, frozenset[str]] = {}
    gone: set[PlaceVersion] = set()
    is_there = cache(Path.exists)
    marked = [one.keeps for one in operations if one.keeps and one.outcome == "ok"]
    for name in TABLES:
        table = snapshots.resolve("", "default", name, SnapshotReference()).table
        root = Path(table.record.location.removeprefix("file:"))
        columns = {
            one.schema.schema_id: frozenset(column.name for column in one.schema.columns) - BASE_COLUMNS
            for one in store.read(lambda tx, table=table: schemas.all_of(tx, table))  # type: ignore[misc]
        }
        for branch in timeline.references.find(table, c.BRANCH):
            place = (name, branch.name)
            if branch.parent:
                forks[place] = ((name, branch.parent), branch.fork_version)
            records = timeline.versions(table.table_id, branch.name, after=branch.fork_version, limit=1_000_000)[0]
            versions[place] = [
                Version(
                    one.version,
                    one.instant,
                    one.restored_version,
                    (one.merged.name, one.merged.after_version, one.merged.upto_version)
                    if one.HasField("merged")
                    else None,
                    columns[one.schema_id],
                )
                for one in records
            ]
            first = branch.fork_version  # earlier versions belong to its parent
            some = range(branch.version, max(0, first - 1), -max(1, (branch.version - first) // KEPT_MAX))
            for number in {*some, *(version for at, version in marked if at == place)}:
                try:
                    found = snapshots.snapshot(
                        "", "default", name, SnapshotReference(version=number, branch=branch.name)
                    )
                except VersionNotFound:
                    gone.add((place, number))
                else:
                    paths = frozenset(texts(found.snapshot.entries().column("path")))
                    kept[place, number] = paths
                    if missing := frozenset(path for path in paths if not is_there(root / path)):
                        lost[place, number] = missing
    return History(operations, versions, forks, kept, lost, frozenset(gone))
