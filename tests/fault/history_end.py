"""What there is at the end of a history, looked at without the services."""

from __future__ import annotations

from collections.abc import Sequence

from lakemark.errors import VersionNotFound
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_server.catalog import schemas
from lakemark_server.kv import Store
from lakemark_server.snapshot.arrow import texts
from lakemark_server.snapshot.service import At, Snapshots
from lakemark_server.timeline.service import Timeline
from tests.fault.history_load import BASE_COLUMNS, TABLES
from tests.histories import History, Operation, Place, Version

KEPT_MAX = 100


def history(store: Store, operations: Sequence[Operation]) -> History:
    snapshots, timeline = Snapshots(store), Timeline(store)
    versions: dict[Place, list[Version]] = {}
    forks: dict[Place, tuple[Place, int]] = {}
    kept: dict[tuple[Place, int], frozenset[str]] = {}
    gone: set[tuple[Place, int]] = set()
    marked = [one.keeps for one in operations if one.keeps and one.outcome == "ok"]
    for name in TABLES:
        table = snapshots.resolve("", "default", name, At()).table
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
            some = range(branch.version, 0, -max(1, branch.version // KEPT_MAX))
            for number in {*some, *(version for at, version in marked if at == place)}:
                try:
                    found = snapshots.snapshot("", "default", name, At(version=number, branch=branch.name))
                except VersionNotFound:
                    gone.add((place, number))
                else:
                    kept[place, number] = frozenset(texts(found.snapshot.entries().column("path")))
    return History(operations, versions, forks, kept, frozenset(gone))
