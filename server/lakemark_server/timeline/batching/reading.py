"""Reading what many small commits bring: the files of a whole batch become columns at once.

A call into Arrow or numpy costs some microseconds however little it is given, and a commit of one file takes about
forty of them. Together, the files of thirty commits cost each a seventh.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import numpy as np
import pyarrow as pa

from lakemark_core.errors import LakemarkError, LimitExceeded, Unavailable
from lakemark_proto.store.v1.store_pb2 import StagedTotals
from lakemark_proto.v1 import timeline_pb2
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.arrow import replaced, texts
from lakemark_server.file_index.entries.columns import from_messages
from lakemark_server.file_index.entries.validation import check, directory_hashes
from lakemark_server.file_index.pages.blocks import LIST_FILES_MAX, encode_list
from lakemark_server.kv import ReadTransaction
from lakemark_server.timeline.batching.jobs import MOVED, Moved
from lakemark_server.timeline.conflicts.touched import TouchedSet
from lakemark_server.timeline.instants.staging import NO_ENTRIES, Entries, read_entries, written_with
from lakemark_server.timeline.publication.publish import CommitJob

COMMIT_BYTES_MAX: Final = 8 << 10
_UNTOUCHED: Final = TouchedSet()


def is_small(request: timeline_pb2.CommitRequest) -> bool:
    """Whether all that a commit brings can be read with its batch, and fits into its version's record.

    Of columns nobody knows how many files they are before they are read: ``read_commits`` may find that they do not.
    """
    if request.removed.paths or request.file_schema or len(request.added.list.files) > LIST_FILES_MAX:
        return False
    return request.ByteSize() <= COMMIT_BYTES_MAX


def read_commits(
    tx: ReadTransaction, table: LakeTable, requests: Sequence[timeline_pb2.CommitRequest]
) -> list[CommitJob | Moved | LakemarkError]:
    """What is to be published of each small commit, or why it is not; MOVED if it turns out not to be small."""
    read: dict[int, Entries | LakemarkError] = {}
    by_schema: dict[int, tuple[LakeTable, list[int]]] = {}
    for place, request in enumerate(requests):
        try:
            written = table
            if table.schema.schema_id != 1:  # else there never was another one
                written = written_with(tx, table, request.instant, request.schema_id)
            by_schema.setdefault(written.schema.schema_id, (written, []))[1].append(place)
        except Unavailable:
            raise  # of the store: it is nobody's own
        except LakemarkError as error:
            read[place] = error
    for written, places in by_schema.values():
        read.update(zip(places, read_each([requests[place] for place in places], written), strict=True))
    return [_job(request, read[place]) for place, request in enumerate(requests)]


def _job(request: timeline_pb2.CommitRequest, entries: Entries | LakemarkError) -> CommitJob | Moved | LakemarkError:
    if isinstance(entries, LakemarkError):
        return entries
    if entries.totals.files > LIST_FILES_MAX or not entries.inline:
        return MOVED
    return CommitJob(request.instant, request.schema_id, dict(request.metadata), entries)


def read_each(requests: Sequence[timeline_pb2.CommitRequest], table: LakeTable) -> list[Entries | LakemarkError]:
    """What ``read_entries`` gives or raises for each."""
    messages = [place for place, request in enumerate(requests) if request.added.list.files]
    found: dict[int, Entries] = {}
    if messages:
        # If anything is wrong: whose it is, and what it looks like from there, shows one by one.
        with suppress(LakemarkError):
            found.update(zip(messages, _together([requests[place] for place in messages], table), strict=True))
    return [found[place] if place in found else _alone(request, table) for place, request in enumerate(requests)]


def _alone(request: timeline_pb2.CommitRequest, table: LakeTable) -> Entries | LakemarkError:
    try:
        return read_entries(request.added, table, request.instant) if request.HasField("added") else NO_ENTRIES
    except LakemarkError as error:
        return error


def _together(requests: Sequence[timeline_pb2.CommitRequest], table: LakeTable) -> list[Entries]:
    """Raises a LakemarkError if something is wrong with any of them."""
    every = [file for request in requests for file in request.added.list.files]
    instants = [request.instant for request in requests for _ in request.added.list.files]
    batch = from_messages(every, table.schema)
    paths, groups, directories = check(batch, table.schema, instants, table.record.location, deltas_allowed=True)
    batch = replaced(replaced(batch, "path", paths), "file_group", groups)
    names, hashes = texts(batch.column("partition")), directory_hashes(directories)
    deltas = pb.DELTA in batch.column("kind").to_pylist()
    found, first = [], 0
    for request in requests:
        last = first + len(request.added.list.files)
        named = pb.DataFileList(files=request.added.list.files)
        for file, path, group in zip(named.files, paths[first:last], groups[first:last], strict=True):
            file.path, file.file_group = path, group
        added = batch.slice(first, last - first)
        touched = _touched(added) if deltas else _UNTOUCHED
        block = encode_list(named)
        if block is None:
            raise LimitExceeded("more files than one block holds")
        found.append(
            Entries(
                [block] if named.files else [],
                StagedTotals(
                    files=last - first,
                    rows=sum(file.row_count for file in named.files),
                    bytes=sum(file.size_bytes for file in named.files),
                ),
                frozenset(names[first:last]),
                np.sort(hashes[first:last]),
                bool(touched),
                touched=touched,
                added=added if added.num_rows else None,
            )
        )
        first = last
    return found


def _touched(batch: pa.RecordBatch) -> TouchedSet:
    touched = TouchedSet()
    touched.add_added(batch)
    return touched
