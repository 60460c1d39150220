"""Snapshots for tests without a store: versions given as records with the entries that they added."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakemark_core.types import Schema
from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.file_index.pages.contents import with_version
from lakemark_server.file_index.parts.fold import Snapshot, VersionEdit, fold
from lakemark_server.file_index.parts.part import in_memory

Version = tuple[VersionRecord, Sequence[pa.RecordBatch]]


def change(record: VersionRecord, added: Sequence[pa.RecordBatch], schema: Schema) -> VersionEdit:
    """The edit of a version without removals, restores and merges."""
    partitions = record.partitions if record.operation == t.OVERWRITE_PARTITIONS else ()
    return VersionEdit(
        record.version,
        everything=record.operation == t.OVERWRITE_TABLE,
        partitions=frozenset(partitions),
        added=tuple(in_memory(with_version(batch, record.version), schema) for batch in added if batch.num_rows),
    )


def folded(base: Snapshot, versions: Sequence[Version], schema: Schema) -> Snapshot:
    changes = [change(record, added, schema) for record, added in versions]
    return fold(base, changes, versions[-1][0], schema) if versions else base
