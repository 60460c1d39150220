"""Reading what many small commits bring: the files of a whole batch become columns at once.

A call into Arrow or numpy costs some microseconds however little it is given, and a commit of one file needs about
forty such calls. Read together, each of thirty commits costs a seventh of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import numpy as np
import pyarrow as pa

from lakemark_core.errors import LakemarkError, LimitExceeded, Unavailable
from lakemark_proto.store.v1.store_pb2 import StagedTotals
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.arrow import replaced, texts
from lakemark_server.file_index.entries.columns import from_messages
from lakemark_server.file_index.entries.validation import check, directory_hashes
from lakemark_server.file_index.pages.blocks import LIST_FILES_MAX, encode_list
from lakemark_server.kv import ReadTransaction
from lakemark_server.store.keyspace import INSTANTS
from lakemark_server.timeline import records
from lakemark_server.timeline.conflicts.touched import TouchedSet
from lakemark_server.timeline.instants.staging import NO_ENTRIES, Entries, read_entries, written_with
from lakemark_server.timeline.key_overlaps import only_deltas
from lakemark_server.timeline.publication.commits import Commit, CommitDraft

_UNTOUCHED: Final = TouchedSet()


class SmallCommits:
    """The small commits of a batch. ``read`` is called once, after all of them were added."""

    def __init__(self) -> None:
        self._drafts: list[CommitDraft] = []
        self._commits: dict[int, Commit | LakemarkError | None] = {}  # by the identity of the draft

    def add(self, draft: CommitDraft) -> None:
        self._drafts.append(draft)

    def read(self, tx: ReadTransaction, table: LakeTable) -> None:
        """Reads the files of all drafts."""
        commits = read_commits(tx, table, self._drafts)
        self._commits = {id(draft): commit for draft, commit in zip(self._drafts, commits, strict=True)}

    def __bool__(self) -> bool:
        return bool(self._drafts)

    def commit(self, draft: CommitDraft) -> Commit | None:
        """What is to be published of a draft that was added; None if it brings too much to be read here.

        Raises InvalidFile, InvalidSchema, InstantNotFound, LimitExceeded.
        """
        commit = self._commits[id(draft)]
        if isinstance(commit, LakemarkError):
            raise commit
        return commit


def read_commits(
    tx: ReadTransaction, table: LakeTable, drafts: Sequence[CommitDraft]
) -> list[Commit | LakemarkError | None]:
    """What is to be published of each small commit, or why it is refused; None if it turns out not to be small."""
    entries: dict[int, Entries | LakemarkError] = {}
    by_schema: dict[int, tuple[LakeTable, list[int]]] = {}
    for place, draft in enumerate(drafts):
        try:
            written = table
            if table.schema.schema_id != 1:  # else there never was another one
                written = written_with(tx, table, draft.instant, draft.schema_id)
            by_schema.setdefault(written.schema.schema_id, (written, []))[1].append(place)
        except Unavailable:
            raise  # of the store: it fails the batch
        except LakemarkError as error:
            entries[place] = error
    for written, places in by_schema.values():
        entries.update(zip(places, read_each([drafts[place] for place in places], written), strict=True))
    return [_commit(tx, table, draft, entries[place]) for place, draft in enumerate(drafts)]


def _commit(
    tx: ReadTransaction, table: LakeTable, draft: CommitDraft, entries: Entries | LakemarkError
) -> Commit | LakemarkError | None:
    if isinstance(entries, LakemarkError):
        return entries
    if table.kind.directory is not None and not _adds_deltas_alone(tx, table, draft.instant, entries):
        return None  # the files that are there have to be looked at
    if entries.totals.files > LIST_FILES_MAX or not entries.inline:
        return None
    return Commit(draft.instant, draft.schema_id, draft.metadata, entries, draft.by)


def _adds_deltas_alone(tx: ReadTransaction, table: LakeTable, instant: int, entries: Entries) -> bool:
    stored = tx.get(INSTANTS.key(table.table_id, instant))
    staged = stored is not None and records.parse_instant(stored, instant).staged.blocks
    return not staged and only_deltas(entries.added)


def read_each(drafts: Sequence[CommitDraft], table: LakeTable) -> list[Entries | LakemarkError]:
    """What ``read_entries`` gives or raises for each."""
    listed = [_files(draft) for draft in drafts]
    places = [place for place, files in enumerate(listed) if files]
    entries: dict[int, Entries] = {}
    if places:
        # If anything is wrong, reading them one by one shows with which commit, and gives the error its own words.
        with suppress(LakemarkError):
            together = _together([(drafts[place].instant, listed[place]) for place in places], table)
            entries.update(zip(places, together, strict=True))
    return [entries[place] if place in entries else _alone(draft, table) for place, draft in enumerate(drafts)]


def _files(draft: CommitDraft) -> Sequence[pb.DataFile]:
    """Those that came as messages."""
    return () if draft.added is None else draft.added.list.files


def _alone(draft: CommitDraft, table: LakeTable) -> Entries | LakemarkError:
    try:
        return NO_ENTRIES if draft.added is None else read_entries(draft.added, table, draft.instant)
    except LakemarkError as error:
        return error


def _together(commits: Sequence[tuple[int, Sequence[pb.DataFile]]], table: LakeTable) -> list[Entries]:
    """Of each (instant, files). Raises a LakemarkError if something is wrong with any of them."""
    every = [file for _, files in commits for file in files]
    instants = [instant for instant, files in commits for _ in files]
    batch = from_messages(every, table.schema)
    paths, groups, directories = check(
        batch, table.schema, instants, table.record.location, deltas_allowed=True, kind=table.kind
    )
    batch = replaced(replaced(batch, "path", paths), "file_group", groups)
    names, hashes = texts(batch.column("partition")), directory_hashes(directories)
    deltas = pb.DELTA in batch.column("kind").to_pylist()
    entries, first = [], 0
    for _, files in commits:
        last = first + len(files)
        named = pb.DataFileList(files=files)
        for file, path, group in zip(named.files, paths[first:last], groups[first:last], strict=True):
            file.path, file.file_group = path, group
        added = batch.slice(first, last - first)
        touched = _touched(added) if deltas else _UNTOUCHED
        block = encode_list(named)
        if block is None:
            raise LimitExceeded("more files than one block holds")
        entries.append(
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
    return entries


def _touched(batch: pa.RecordBatch) -> TouchedSet:
    touched = TouchedSet()
    touched.add_added(batch)
    return touched
