"""The buckets of tables with an extendible index: what they hold, splits and merges (docs/keyed-tables.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from lakemark.arguments import checked
from lakemark.client.calls import Calls
from lakemark.client.model import Table, table_from
from lakemark.client.names import parse_table_name
from lakemark.files import DataFile
from lakemark.reading.plan import Plan
from lakemark_core.bucket_directory import BucketChanges, Directory, balanced, buckets_named
from lakemark_core.bucket_tree import depth_of, group_name
from lakemark_core.errors import InvalidArgument
from lakemark_core.table_kind import INDEX_PROPERTY
from lakemark_proto.v1 import catalog_pb2 as pb
from lakemark_proto.v1 import snapshot_pb2
from lakemark_proto.v1.catalog_pb2_grpc import CatalogServiceStub


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket into which rows are written, with its files in all partitions, deltas among them.

    ``shared_files``: of them those that have keys of other buckets, too, because they were written before a split or a
    merge; a compaction writes them into their buckets. They count with their part of the hashes in ``size_bytes`` and
    in ``largest_bytes``, the size of the bucket in the partition where it is largest.
    """

    name: str
    depth: int
    files: int
    shared_files: int
    size_bytes: int
    largest_bytes: int


@checked
class Buckets:
    """``client.buckets``, for tables with an extendible index. Tables are named ``database.table``.

    Buckets are named as their file groups: ``bucket-1-of-4`` has the keys for which ``pmod(hash(key), 4)`` is 1.
    """

    def __init__(self, calls: Calls) -> None:
        self._call = calls
        self._stub = CatalogServiceStub(calls.channel)

    def list(self, table: str) -> list[Bucket]:
        """The buckets of a table in the order of remainders. Raises InvalidArgument (no such index), TableNotFound."""
        directory, _, files = self._looked_at(table)
        return buckets_of_files(directory, files)

    def alter(self, table: str, *, split: Sequence[str] = (), merge: Sequence[str] = ()) -> Table:
        """Splits buckets in two, and makes one bucket of the two halves of each in ``merge``: all of it, or nothing.

        It is a version of the table's main branch that touches no file. Rows that are written from then on go into the
        new buckets; writers that have begun before may commit what they have, and readers see no difference. Raises
        InvalidArgument, FailedPrecondition (there is no such bucket by now, or none can be deeper or larger).
        """
        return self._alter(table, BucketChanges(buckets_named(split), buckets_named(merge)))

    def balance(self, table: str, *, dry_run: bool = False) -> BucketChanges:
        """Splits buckets that are larger than ``lakemark.bucket.split-size-bytes`` in some partition, and merges halves
        that are small in all.

        ``dry_run``: says what would be changed next. A bucket that is much too large is split once by each call: how
        its rows are spread is seen when a compaction has written them into the halves. Raises as ``alter``.
        """
        directory, split_bytes, files = self._looked_at(table)
        sizes: dict[tuple[object, int], int] = {}
        for file in files:
            if file.bucket is not None:
                place = file.partition, file.bucket
                sizes[place] = sizes.get(place, 0) + file.size_bytes
        changes = balanced(directory, sizes, split_bytes)
        if changes and not dry_run:
            self._alter(table, changes)
        return changes

    def _alter(self, table: str, changes: BucketChanges) -> Table:
        request = pb.AlterBucketsRequest(
            name=parse_table_name(table), split=changes.split, merge=changes.merge, request_id=str(uuid4())
        )
        return table_from(self._call(self._stub.AlterBuckets, request, mutation=True))

    def _looked_at(self, table: str) -> tuple[Directory, int, Sequence[DataFile]]:
        """The directory, the size above which a bucket is split, and the files of the latest version of main."""
        name = parse_table_name(table)
        kind = table_from(self._call(self._stub.GetTable, pb.GetTableRequest(name=name))).table_kind
        if kind.directory is None:
            raise InvalidArgument(
                f"{table} has no buckets that are split or merged: it was not created with {INDEX_PROPERTY} = "
                "'extendible'",
                table=table,
            )
        request = snapshot_pb2.PlanFilesRequest(table=name, encoding=snapshot_pb2.ARROW_COMPACT)
        return kind.directory, kind.split_bytes, Plan(self._call, request, None).files()


def buckets_of_files(directory: Directory, files: Sequence[DataFile]) -> list[Bucket]:
    """The buckets of a directory with what these files have of them. Files without a bucket are not counted."""
    counts: dict[int, int] = {}
    shared: dict[int, int] = {}
    sizes: dict[int, dict[object, float]] = {leaf: {} for leaf in directory.leaves}
    for file in files:
        if file.bucket is None:
            continue
        for leaf, share in directory.shares(file.bucket).items():
            counts[leaf] = counts.get(leaf, 0) + 1
            shared[leaf] = shared.get(leaf, 0) + (file.bucket != leaf)
            by_partition = sizes[leaf]
            by_partition[file.partition] = by_partition.get(file.partition, 0) + file.size_bytes * share
    return [
        Bucket(
            group_name(leaf),
            depth_of(leaf),
            counts.get(leaf, 0),
            shared.get(leaf, 0),
            int(sum(sizes[leaf].values())),
            int(max(sizes[leaf].values(), default=0)),
        )
        for leaf in sorted(directory.leaves, key=lambda leaf: (leaf - (1 << depth_of(leaf)), leaf))
    ]
