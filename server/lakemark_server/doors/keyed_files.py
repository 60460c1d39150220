"""The files of a statement into a table with a key and buckets: made of those that Spark wrote.

They are written below the statement's directory, under names that nobody looks at, and moved to their places when all
of them are whole. A file has one place, by its partition and bucket, so that an attempt can be made again.
"""

from __future__ import annotations

import posixpath
import secrets
import threading
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final

from pyarrow import fs

from lakemark_core import storage
from lakemark_core.errors import LakemarkError, LimitExceeded
from lakemark_core.merge_sql import DELETE, UPSERT, check_delta_names
from lakemark_core.parquet.footers import read_footer
from lakemark_core.storage import open_location
from lakemark_core.table_kind import NEVER_WAITS
from lakemark_core.types import ColumnValue, Schema, name_of_partition
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.doors import contents
from lakemark_server.doors.base_files import BaseFileLookup, BaseFiles
from lakemark_server.doors.bucket_files import BucketFile, write_bucket_files
from lakemark_server.doors.directories import StatementFile, slice_of
from lakemark_server.doors.entries import entry_of
from lakemark_server.doors.parts import in_parts
from lakemark_server.doors.statement_rows import KeyedRows
from lakemark_server.doors.statements import CHANGES, Statement

AT_ONCE: Final = 2
"""The rows of so many statements are written again at once; others wait."""
BYTES_MAX: Final = 1 << 30


class KeyedFiles:
    """Thread-safe. ``readers`` read files ahead. ``bytes_max``: of the files of a statement."""

    def __init__(self, lookup: BaseFileLookup, readers: Executor, bytes_max: int = BYTES_MAX) -> None:
        self._lookup = lookup
        self._readers = readers
        self._bytes_max = bytes_max
        self._turns = threading.BoundedSemaphore(AT_ONCE)

    def write(
        self, table: LakeTable, schema: Schema, statement: Statement, sources: Mapping[str, int], instant: int
    ) -> list[pb.DataFile]:
        """The files, in their places below the instant's directory.

        ``schema``: with which ``sources`` were written, the sizes of files by their paths in the statement's directory.
        Raises InvalidSchema, InvalidArgument, InvalidFile, LimitExceeded, Unavailable, StorageRefused.
        """
        if not sources:
            return []
        if sum(sources.values()) > self._bytes_max:
            raise LimitExceeded(
                f"the files of the statement have {sum(sources.values())} bytes, and as they are written again by the "
                f"bucket of their keys they may have {self._bytes_max} (door_rewrite_bytes_max): cut it into several "
                "statements, or use lakemark_spark"
            )
        partitions: dict[tuple[ColumnValue, ...], list[str]] = {}
        for source in sources:
            partitions.setdefault(slice_of(source, instant, schema).partition, []).append(source)
        bases = BaseFiles()
        if statement.kind in CHANGES:
            check_delta_names(schema, table.name)
            bases = self._lookup.of(table, statement.branch, statement.directory.version, list(partitions))
        rows = KeyedRows(table.name, schema, table.kind, _operation(table, statement, bases), instant)
        location, directory = table.record.location, statement.directory.path
        work = posixpath.join(directory, f"_buckets-{secrets.token_hex(8)}")
        system, root = open_location(location)
        try:
            files: list[tuple[BucketFile, StatementFile]] = []
            with self._turns:
                for partition, paths in partitions.items():
                    place = name_of_partition(partition, schema)
                    there = [storage.join(root, directory, path) for path in paths]
                    for one in write_bucket_files(
                        rows, partition, there, storage.join(root, work, place), system, self._readers
                    ):
                        files.append((one, slice_of(posixpath.join(place, one.name), instant, schema)))
            # Not again: an attempt may have been made before, and committed by another process just now.
            moved = {f"{instant}/{path}" for path, _ in storage.list_files(storage.join(location, str(instant)))}
            pairs = ((f"{work}/{one.source}", one.target) for _, one in files if one.target not in moved)
            contents.move(location, pairs, self._readers)
        finally:
            with suppress(LakemarkError):
                storage.delete_directory(storage.join(location, work))
        under = bases.under((name_of_partition(one.partition, schema), _group(rows, one)) for one, _ in files)

        def entry(pair: tuple[BucketFile, StatementFile]) -> pb.DataFile:
            file, placed = pair
            return _entry(rows, file, placed, under, system, root)

        return in_parts(self._readers, entry, files)


def _operation(table: LakeTable, statement: Statement, bases: BaseFiles) -> str:
    """Of the deltas that rows become; "": base files. As ``lakemark_spark.upsert`` decides it."""
    if statement.kind == "delete":
        return DELETE
    begins = bases.empty and table.kind.merge_by == "row" and table.policy not in NEVER_WAITS
    return UPSERT if statement.kind == "upsert" and not begins else ""


def _group(rows: KeyedRows, file: BucketFile) -> str:
    return rows.kind.group_name(file.bucket)


def _entry(
    rows: KeyedRows,
    file: BucketFile,
    placed: StatementFile,
    under: Mapping[tuple[str, str], int],
    system: fs.FileSystem,
    root: str,
) -> pb.DataFile:
    footer = read_footer(storage.join(root, placed.target), system)
    group = _group(rows, file)
    entry = entry_of(placed.target, footer, rows.schema, file.partition, group, file.nans)
    entry.bucket = file.bucket
    if rows.operation:
        entry.kind = pb.DELTA
        entry.base_instant = under.get((name_of_partition(file.partition, rows.schema), group), 0)
    return entry
