"""The invariants of an extendible bucket index: of each key, at most one base file of the latest versions may have it.

Engines that read base files alone would find a row twice otherwise, and so would those that merge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from lakemark_core.bucket_tree import above, bucket_named
from lakemark_core.errors import LakemarkError
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.arrow import texts
from lakemark_server.file_index.parts.fold import NOWHERE, Snapshot
from lakemark_server.kv import Store
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.timeline import records
from lakemark_server.timeline.lineage import Lineage

_CACHE_BYTES: Final = 64 << 20
_TOLD_MAX: Final = 10


def check_buckets(store: Store, table: LakeTable, lineages: Iterable[Lineage]) -> Iterator[str]:
    """A sentence for each violation in the latest versions of the branches."""
    try:
        if table.kind.directory is None:
            return
        for lineage in lineages:
            head = store.read(lambda tx, lineage=lineage: records.head(tx, table.table_id, lineage.key))  # type: ignore[misc]
            snapshot = Snapshots(store, _CACHE_BYTES).loading(table).load(lineage, head.version, NOWHERE)
            for one, other in islice(_with_same_keys(snapshot), _TOLD_MAX):
                where = f"version {head.version} of branch {lineage.key!r}"
                yield f"{where}: base files {one} and {other} have the same keys"
    except LakemarkError as error:
        yield f"its buckets cannot be looked at: {error}"


def _with_same_keys(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Pairs of base files, by their paths, whose buckets share keys.

    By the names of their groups, one after the other: other code than that which refuses such files.
    """
    known: dict[tuple[str, int], str] = {}
    for part in snapshot.parts:
        live = part.live_entries()
        bases = (live.column("kind").to_numpy() != pb.DELTA).tolist()
        columns = (texts(live.column(name)) for name in ("partition", "file_group", "path"))
        for is_base, partition, group, path in zip(bases, *columns, strict=True):
            bucket = bucket_named(group) if is_base else None
            if bucket is None:
                continue
            if (partition, bucket) in known:
                yield known[partition, bucket], path
            known[partition, bucket] = path
    for (partition, bucket), path in known.items():
        for over in above(bucket)[1:]:
            if (partition, over) in known:
                yield known[partition, over], path
