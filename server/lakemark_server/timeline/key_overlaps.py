"""Commits to a table with an extendible bucket index: of each key, at most one base file may have it.

Who merges base files by key would take one of two rows and drop the other; who reads base files alone would find both.
Only the writer knows the rows, so a base file that shares keys with another one is refused unless the same commit takes
that one out. Versions that come between the check and the commit are a matter of the conflict rules: two commits that
begin one bucket, or take out one file, exclude each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from lakemark_core.errors import InvalidFile
from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_proto.v1 import timeline_pb2
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.arrow import AnyArray, dictionary, take, texts
from lakemark_server.file_index.entries.bounds import filled
from lakemark_server.file_index.pages import blocks
from lakemark_server.file_index.partition_buckets import Integers, PartitionBuckets
from lakemark_server.kv import Space, Store
from lakemark_server.store.keyspace import BLOCKS, REMOVED
from lakemark_server.timeline.branches import forks
from lakemark_server.timeline.instants.staging import COMMIT_SEQUENCE, Entries
from lakemark_server.timeline.lineage import Lineage

BaseFile: TypeAlias = tuple[str, int, str]
"""Partition, bucket and path."""

_REPLACES_ALL: Final = frozenset({timeline_pb2.OVERWRITE_PARTITIONS, timeline_pb2.OVERWRITE_TABLE})
_BLOCKS_A_READ: Final = 20


class LiveBaseFiles(Protocol):
    """The base files of versions."""

    def sharing_keys(
        self, table: LakeTable, lineage: Lineage, version: int, buckets: PartitionBuckets
    ) -> Iterator[BaseFile]:
        """Those that are live and share keys with one of the buckets."""
        ...


class _Added(NamedTuple):
    """Columns of base files that are added; at least one. ``names``: the partitions that ``codes`` mean."""

    codes: Integers
    names: list[str]
    buckets: Integers
    paths: AnyArray


def only_deltas(added: pa.RecordBatch | None) -> bool:
    """Whether no base file is among files that are added."""
    return added is None or bool((added.column("kind").to_numpy() == pb.DELTA).all())


def check_overlaps(
    store: Store, files: LiveBaseFiles, table: LakeTable, record: InstantRecord, entries: Entries
) -> None:
    """``entries`` are the last of the instant's files. Raises InvalidFile that names two files with the same keys.

    Of files that were staged only the buckets are kept, so that an instant may have millions.
    """
    new, operation = PartitionBuckets(), record.operation
    for added in _added(store, table, record, entries):
        if operation == timeline_pb2.APPEND:
            raise _no_base_files(table, operation, str(added.paths[0]))
        new.add(added.codes, added.names, added.buckets)
    if not new:
        return
    twice = new.overlapping()
    if twice is not None:
        mine, theirs = _two_of(_added(store, table, record, entries), *twice)
        raise _overlap(mine, theirs, "this commit adds, too")
    if operation in _REPLACES_ALL:
        return
    live = _live(store, files, table, record, new)
    if operation == timeline_pb2.CLUSTER:
        there = set(live.values())
        other = next((path for path, place in _places(_added(store, table, record, entries)) if place not in there), "")
        if other:
            raise _no_base_files(table, operation, other)
    left = _left(store, table, record, entries, live)
    if left:
        theirs, (partition, bucket) = next(iter(left.items()))
        mine = next(path for _, path in _sharing(_added(store, table, record, entries), partition, bucket))
        raise _overlap(mine, theirs, f"version {record.read_version} of {table.name} has")


def _live(
    store: Store, files: LiveBaseFiles, table: LakeTable, record: InstantRecord, new: PartitionBuckets
) -> dict[str, tuple[str, int]]:
    """By their paths, partition and bucket of the base files of the version that is read which share keys with new
    ones."""
    if not record.read_version:
        return {}
    lineage = store.read(lambda tx: forks.lineage(tx, table.table_id, record.branch))
    live = files.sharing_keys(table, lineage, record.read_version, new)
    return {path: (partition, bucket) for partition, bucket, path in live}


def _places(added: Iterator[_Added]) -> Iterator[tuple[str, tuple[str, int]]]:
    """Path, and partition with bucket, of each."""
    for codes, names, buckets, paths in added:
        partitions = (names[code] for code in codes.tolist())
        yield from zip(texts(paths), zip(partitions, buckets.tolist(), strict=True), strict=True)


def _no_base_files(table: LakeTable, operation: timeline_pb2.Operation.ValueType, path: str) -> InvalidFile:
    if operation == timeline_pb2.APPEND:
        return InvalidFile(
            f"file {path!r} is appended to {table.name}, which has a key: its rows could have keys that are "
            "there already; use the operation UPSERT, with deltas or with files that replace others",
            path=path,
        )
    # A writer that begins a bucket meanwhile is compared with the buckets that a compaction makes.
    return InvalidFile(
        f"file {path!r} comes with the operation CLUSTER, which writes files of "
        f"the same buckets of {table.name} again, and of no others; use the operation COMPACT",
        path=path,
    )


def _overlap(mine: str, theirs: str, there: str) -> InvalidFile:
    return InvalidFile(
        f"file {mine!r} shares keys with {theirs!r}, which {there}: of buckets that lie above one another in "
        "a partition only one has a base file. Remove the other file in the same commit, and write its rows into "
        "the new ones, or write the changes as deltas",
        path=mine,
    )


def _left(
    store: Store, table: LakeTable, record: InstantRecord, entries: Entries, live: Mapping[str, tuple[str, int]]
) -> dict[str, tuple[str, int]]:
    """Those that the commit does not take out."""
    left = dict(live)
    if not left:
        return left
    for encoded in (entries.removed_blocks, _stored(store, table, record, REMOVED)):
        for block in encoded:
            for path in texts(blocks.decode_fixed(block).column("path")):
                left.pop(path, None)
    return left


def _added(store: Store, table: LakeTable, record: InstantRecord, entries: Entries) -> Iterator[_Added]:
    """The base files of all requests, one block after the other."""
    # A commit that is sent again may have staged its own files.
    if entries.added is not None and record.staged.sequence != COMMIT_SEQUENCE:
        yield from _bases(entries.added)
    for block in _stored(store, table, record, BLOCKS):
        few = blocks.page_of(block) is None  # decoded whole, since they are not by column
        yield from _bases(blocks.decode(block, table.schema) if few else blocks.decode_fixed(block))


def _bases(batch: pa.RecordBatch) -> Iterator[_Added]:
    buckets = filled(batch.column("bucket"), 0).to_numpy()
    places = np.flatnonzero((batch.column("kind").to_numpy() != pb.DELTA) & (buckets > 0))
    if len(places):
        codes, names = dictionary(batch.column("partition"))
        yield _Added(codes[places], names, buckets[places], take(batch.column("path"), places))


def _sharing(added: Iterator[_Added], partition: str, bucket: int) -> Iterator[tuple[int, str]]:
    """Bucket and path of those that share keys with a bucket."""
    one = PartitionBuckets.of(partition, bucket)
    for codes, names, buckets, paths in added:
        places = np.flatnonzero(one.sharing(codes, names, buckets))
        yield from zip(buckets[places].tolist(), texts(take(paths, places)), strict=True)


def _two_of(added: Iterator[_Added], partition: str, bucket: int) -> tuple[str, str]:
    """The paths of a file of this bucket, and of another one that shares keys with it."""
    mine = theirs = ""
    for number, path in _sharing(added, partition, bucket):
        if number == bucket and not mine:
            mine = path
        else:
            theirs = path
        if mine and theirs:
            break
    return mine, theirs


def _stored(store: Store, table: LakeTable, record: InstantRecord, space: Space) -> Iterator[bytes]:
    """What earlier requests have staged."""
    count = record.staged.blocks if space is BLOCKS else record.removed.blocks
    for first in range(0, count, _BLOCKS_A_READ):
        numbers = range(first, min(first + _BLOCKS_A_READ, count))
        keys = [space.key(table.table_id, record.instant, number) for number in numbers]
        yield from filter(None, store.read(lambda tx, keys=keys: tx.get_many(keys)))  # type: ignore[misc]
