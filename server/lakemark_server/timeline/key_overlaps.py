"""Commits to a table with an extendible bucket index: of each key, at most one base file may have it.

Who merges base files by key would take one of two rows and drop the other; who reads base files alone would find both.
Only the writer knows the rows, so a base file that shares keys with another one is refused unless the same commit takes
that one out. Versions that come between the check and the commit are a matter of the conflict rules: two commits that
begin one bucket, or take out one file, exclude each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from lakemark_core.bucket_tree import bucket_named, files_with_same_keys
from lakemark_core.errors import InvalidFile
from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_proto.v1 import timeline_pb2
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.arrow import texts
from lakemark_server.file_index.pages import blocks
from lakemark_server.kv import Space, Store
from lakemark_server.store.keyspace import BLOCKS, REMOVED
from lakemark_server.timeline.branches import forks
from lakemark_server.timeline.instants.staging import Entries
from lakemark_server.timeline.lineage import Lineage

BaseFile: TypeAlias = tuple[str, str, str]
"""Partition, file group and path."""

_REPLACES_ALL: Final = frozenset({timeline_pb2.OVERWRITE_PARTITIONS, timeline_pb2.OVERWRITE_TABLE})
_BLOCKS_A_READ: Final = 20


class LiveBaseFiles(Protocol):
    """The base files of versions."""

    def base_files(
        self, table: LakeTable, lineage: Lineage, version: int, partitions: Iterable[str]
    ) -> Iterator[BaseFile]:
        """Those that are live in these partitions."""
        ...


def only_deltas(added: pa.RecordBatch | None) -> bool:
    """Whether no base file of a bucket is among files that are added."""
    return added is None or not any(True for _ in _bases([added]))


def check_overlaps(
    store: Store, files: LiveBaseFiles, table: LakeTable, record: InstantRecord, entries: Entries
) -> None:
    """``entries`` are the last of the instant's files. Raises InvalidFile that names two files with the same keys."""
    staged = [] if entries.added is None else [entries.added]
    staged += [blocks.decode(block, table.schema) for block in _stored(store, table, record, BLOCKS)]
    added = list(_bases(staged))
    if not added:
        return
    if record.operation == timeline_pb2.APPEND:
        raise InvalidFile(
            f"file {added[0][2]!r} is appended to {table.name}, which has a key: its rows could have keys that are "
            "there already; use the operation UPSERT, with deltas or with files that replace others",
            path=added[0][2],
        )
    before = [] if record.operation in _REPLACES_ALL else list(_left(store, files, table, record, entries, added))
    new = {path for _, _, path in added}
    for one, other in files_with_same_keys([*before, *added]):
        if new.isdisjoint((one, other)):
            continue  # it was so before, which lakemark verify tells
        mine, theirs = (one, other) if one in new else (other, one)
        there = "this commit adds, too" if theirs in new else f"version {record.read_version} of {table.name} has"
        raise InvalidFile(
            f"file {mine!r} shares keys with {theirs!r}, which {there}: of buckets that lie above one another in "
            "a partition only one has a base file. Remove the other file in the same commit, and write its rows into "
            "the new ones, or write the changes as deltas",
            path=mine,
        )


def _left(
    store: Store,
    files: LiveBaseFiles,
    table: LakeTable,
    record: InstantRecord,
    entries: Entries,
    added: Sequence[BaseFile],
) -> Iterator[BaseFile]:
    """The base files beside the new ones that the commit does not take out."""
    if not record.read_version:
        return
    gone: set[str] = set()
    for block in (*entries.removed_blocks, *_stored(store, table, record, REMOVED)):
        gone.update(texts(blocks.decode_fixed(block).column("path")))
    lineage = store.read(lambda tx: forks.lineage(tx, table.table_id, record.branch))
    partitions = {partition for partition, _, _ in added}
    for one in files.base_files(table, lineage, record.read_version, partitions):
        if one[2] not in gone:
            yield one


def _bases(batches: Iterable[pa.RecordBatch]) -> Iterator[BaseFile]:
    """The base files of buckets."""
    for batch in batches:
        columns = (texts(batch.column(name)) for name in ("partition", "file_group", "path"))
        for kind, *base in zip(batch.column("kind").to_pylist(), *columns, strict=True):
            if kind != pb.DELTA and bucket_named(base[1]) is not None:
                yield base[0], base[1], base[2]


def _stored(store: Store, table: LakeTable, record: InstantRecord, space: Space) -> Iterator[bytes]:
    """What earlier requests have staged."""
    count = record.staged.blocks if space is BLOCKS else record.removed.blocks
    for first in range(0, count, _BLOCKS_A_READ):
        numbers = range(first, min(first + _BLOCKS_A_READ, count))
        keys = [space.key(table.table_id, record.instant, number) for number in numbers]
        yield from filter(None, store.read(lambda tx, keys=keys: tx.get_many(keys)))  # type: ignore[misc]
