"""The base files that lie where a statement's rows go, in the version that the statement may have read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from lakemark_core.bucket_tree import instants_under
from lakemark_core.expressions import in_partitions
from lakemark_core.types import ColumnValue
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.arrow import one_array, texts
from lakemark_server.file_index.entries.columns import instants_of
from lakemark_server.file_index.planning.planner import Planner
from lakemark_server.kv import Store
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.timeline.branches import forks

Group: TypeAlias = "tuple[str, str]"
"""A file group, by the names of its partition and its own."""


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """``instants``: (partition, file group, instant) of each; ``empty``: there are no files at all, deltas neither."""

    instants: Sequence[tuple[str, str, int]] = ()
    empty: bool = True

    def under(self, groups: Iterable[Group]) -> Mapping[Group, int]:
        """The instant of the latest one under each of the groups; those without one are left out."""
        return instants_under(self.instants, groups)


class BaseFileLookup:
    """Thread-safe."""

    def __init__(self, store: Store, snapshots: Snapshots) -> None:
        self._store = store
        self._snapshots = snapshots
        self._planner = Planner(snapshots.cache)

    def of(
        self, table: LakeTable, branch: str, version: int, partitions: Sequence[tuple[ColumnValue, ...]]
    ) -> BaseFiles:
        """Those in these partitions, perhaps with others. Raises BranchNotFound."""
        if not version:
            return BaseFiles()
        lineage = self._store.read(lambda tx: forks.resolve(tx, table.table_id, branch))
        chosen = in_partitions(partitions, table.schema)

        def looked_up() -> pa.Table:
            plan = self._planner.plan(self._snapshots.load(table, lineage, version), chosen)
            return plan.columns(["partition", "file_group", "kind", "path"])

        files = self._snapshots.again(looked_up)
        if not files.num_rows:
            return BaseFiles()
        bases = files.filter(cast(Any, pc).not_equal(files.column("kind"), pb.DELTA)).combine_chunks()
        if not bases.num_rows:
            return BaseFiles(empty=False)
        where, groups, paths = (one_array(bases.column(name)) for name in ("partition", "file_group", "path"))
        instants = instants_of(paths).tolist()
        return BaseFiles(list(zip(texts(where), texts(groups), instants, strict=True)), empty=False)
