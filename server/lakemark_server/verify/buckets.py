"""The invariants of an extendible bucket index: of each key, at most one base file of the latest versions may have it.

Engines that read base files alone would find a row twice otherwise, and so would those that merge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from lakemark_core.bucket_tree import files_with_same_keys
from lakemark_core.errors import LakemarkError
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.parts.fold import NOWHERE
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
            for one, other in islice(files_with_same_keys(snapshot.base_files()), _TOLD_MAX):
                where = f"version {head.version} of branch {lineage.key!r}"
                yield f"{where}: base files {one} and {other} have the same keys"
    except LakemarkError as error:
        yield f"its buckets cannot be looked at: {error}"
