"""Staging: the entries of an instant's files, written before the commit in as many transactions as they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from lakemark.errors import InstantStateError, InvalidFile, InvalidSchema, LimitExceeded, StoreConflict
from lakemark.types import check_fits
from lakemark_proto.store.v1.store_pb2 import InstantRecord, StagedTotals
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.keyspace import BLOCKS, STAGED_SLICES
from lakemark_server.kv import ReadTransaction, Store, Transaction
from lakemark_server.snapshot import blocks
from lakemark_server.snapshot.admission import Hashes, admit
from lakemark_server.snapshot.arrow import texts
from lakemark_server.snapshot.entries import from_arrow, from_messages
from lakemark_server.timeline import records
from lakemark_server.timeline.partition_list import PartitionList
from lakemark_server.timeline.states import require_inflight

INLINE_BYTES_MAX: Final = 30_000
TRANSACTION_BYTES_AIM: Final = 900_000
FILES_OF_INSTANT_MAX: Final = 10_000_000
COMMIT_SEQUENCE: Final = 1 << 62  # the sequence number of what a commit request itself brings


@dataclass(frozen=True, slots=True)
class Entries:
    """Checked entries, as blocks."""

    blocks: list[bytes]
    totals: StagedTotals
    partitions: frozenset[str]
    slices: Hashes

    @property
    def inline(self) -> bool:
        """Whether they fit into the version's own record."""
        return len(self.blocks) <= 1 and sum(map(len, self.blocks)) <= INLINE_BYTES_MAX

    @property
    def block(self) -> bytes:
        """The only one of inline entries; empty if there are none."""
        return self.blocks[0] if self.blocks else b""


NO_ENTRIES: Final = Entries([], StagedTotals(), frozenset(), np.empty(0, np.uint64))


def read_entries(files: pb.DataFiles, table: LakeTable, instant: int) -> Entries:
    """Checks what a writer sent. Raises InvalidFile."""
    if files.WhichOneof("form") == "arrow":
        batch = from_arrow(files.arrow, table.schema)
    else:
        batch = from_messages(files.list.files, table.schema)
    batch, slices = admit(batch, table.schema, instant, table.record.location)
    rows, size = (int(batch.column(name).to_numpy().sum()) for name in ("row_count", "size_bytes"))
    totals = StagedTotals(files=batch.num_rows, rows=rows, bytes=size)
    partitions = frozenset(texts(batch.column("partition")))
    return Entries(_to_blocks(files, batch), totals, partitions, slices)


def _to_blocks(files: pb.DataFiles, batch: pa.RecordBatch) -> list[bytes]:
    if not batch.num_rows:
        return []
    if files.WhichOneof("form") == "list" and len(files.list.files) <= blocks.LIST_FILES_MAX:
        messages = pb.DataFileList(files=files.list.files)
        paths, groups = texts(batch.column("path")), texts(batch.column("file_group"))
        for message, path, group in zip(messages.files, paths, groups, strict=True):
            message.path, message.file_group = path, group
        block = blocks.encode_list(messages)
        if block is not None:
            return [block]
    return blocks.encode(batch)


def check_file_schema(file_schema: bytes, table: LakeTable) -> None:
    """Raises InvalidSchema with every reason why files of this Arrow schema do not fit the table."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(file_schema))
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidSchema(f"file_schema is not an Arrow schema: {error}") from error
    reasons = check_fits(table.schema, schema)
    if reasons:
        raise InvalidSchema(f"the files do not fit {table.name}: {'; '.join(reasons)}", table=table.name)


def stage(store: Store, table: LakeTable, instant: int, entries: Entries, sequence: int) -> StagedTotals:
    """Writes entries under the instant; again with the same ``sequence``: nothing new. Returns the totals so far.

    Raises InstantStateError (not inflight, sequence out of order), InvalidFile (a directory was staged before, or other
    files under this sequence), StoreConflict (another request for the same instant was at work).
    """
    table_id = table.table_id
    seen = store.read(lambda tx: _seen(tx, table_id, instant, entries, sequence))
    if seen.sequence < sequence:
        for group in _transactions(entries.blocks):
            store.transact(lambda tx, group=group: _put_blocks(tx, table_id, instant, seen, group))  # type: ignore[misc]
    return store.transact(lambda tx: _account(tx, table_id, instant, entries, sequence, seen))


def _seen(tx: ReadTransaction, table_id: int, instant: int, entries: Entries, sequence: int) -> StagedTotals:
    """What is staged so far, if these entries may follow, or are part of it."""
    record = records.instant(tx, table_id, instant)
    if _already(record, sequence):
        _check_same(tx, table_id, record, entries.slices, sequence)
    return record.staged


def _check_same(tx: ReadTransaction, table_id: int, record: InstantRecord, slices: Hashes, sequence: int) -> None:
    """A number that is used for other files would lose them without a word."""
    staged = [
        np.frombuffer(value, np.uint64) for _, value in tx.get_range(*STAGED_SLICES.range(table_id, record.instant))
    ]
    if len(slices) and not (staged and np.isin(slices, np.concatenate(staged)).all()):
        which = "a commit request" if sequence == COMMIT_SEQUENCE else f"request {sequence}"
        raise InvalidFile(
            f"{which} of instant {record.instant} was received before with other files; each request that brings files "
            "has a number of its own, and a commit that is sent again has the same files",
            instant=str(record.instant),
        )


def check_more(record: InstantRecord, entries: Entries) -> None:
    """Raises InstantStateError if a commit request brought the last files before and these are more."""
    if entries.totals.files:
        _check_open(record)


def _check_open(record: InstantRecord) -> None:
    if record.staged.sequence == COMMIT_SEQUENCE:
        raise InstantStateError(
            f"a commit request brought the last files of instant {record.instant}; it can only be committed as it is "
            "or rolled back now",
            instant=str(record.instant),
        )


def _already(record: InstantRecord, sequence: int) -> bool:
    require_inflight(record)
    last = record.staged.sequence
    if sequence != COMMIT_SEQUENCE:
        _check_open(record)
    if sequence <= last:
        return True
    if sequence not in (last + 1, COMMIT_SEQUENCE):
        raise InstantStateError(
            f"request {sequence} of instant {record.instant} came after {last}: requests that stage files are numbered "
            "1, 2, 3 … and sent in order"
        )
    return False


def _transactions(encoded: list[bytes]) -> list[list[tuple[int, bytes]]]:
    groups: list[list[tuple[int, bytes]]] = []
    size = TRANSACTION_BYTES_AIM
    for number, block in enumerate(encoded):
        if size + len(block) > TRANSACTION_BYTES_AIM:
            groups.append([])
            size = 0
        groups[-1].append((number, block))
        size += len(block)
    return groups


def _put_blocks(
    tx: Transaction, table_id: int, instant: int, seen: StagedTotals, group: list[tuple[int, bytes]]
) -> None:
    record = records.instant(tx, table_id, instant)
    require_inflight(record)
    _check_alone(record, seen)
    for number, block in group:
        tx.set(BLOCKS.key(table_id, instant, seen.blocks + number), block)


def _check_alone(record: InstantRecord, seen: StagedTotals) -> None:
    """Blocks of a request that was overtaken would overwrite those of the other one."""
    if record.staged.sequence != seen.sequence:
        raise StoreConflict(
            f"another request staged files of instant {record.instant} at the same time; send this one again",
            instant=str(record.instant),
        )


def _account(
    tx: Transaction, table_id: int, instant: int, entries: Entries, sequence: int, seen: StagedTotals
) -> StagedTotals:
    record = records.instant(tx, table_id, instant)
    if _already(record, sequence):
        return record.staged
    _check_alone(record, seen)
    check_new_slices(tx, table_id, record, entries.slices)
    staged = record.staged
    if staged.files + entries.totals.files > FILES_OF_INSTANT_MAX:
        raise LimitExceeded(f"an instant holds at most {FILES_OF_INSTANT_MAX:,} files")
    hashes = entries.slices.tobytes()
    for number, at in enumerate(range(0, len(hashes), blocks.BLOCK_BYTES_MAX // 8 * 8)):
        tx.set(
            STAGED_SLICES.key(table_id, instant, staged.blocks, number),
            hashes[at : at + blocks.BLOCK_BYTES_MAX // 8 * 8],
        )
    partitions = PartitionList.of(record)
    partitions.add(entries.partitions)
    partitions.write_to(record)
    staged.files += entries.totals.files
    staged.rows += entries.totals.rows
    staged.bytes += entries.totals.bytes
    staged.blocks += len(entries.blocks)
    staged.sequence = sequence
    records.put_instant(tx, table_id, record)
    return staged


def check_new_slices(tx: ReadTransaction, table_id: int, record: InstantRecord, slices: Hashes) -> None:
    """Raises InvalidFile if a directory holds a file that was staged by an earlier request."""
    if not record.staged.blocks or not len(slices):
        return
    for _, value in tx.get_range(*STAGED_SLICES.range(table_id, record.instant)):
        if np.isin(slices, np.frombuffer(value, np.uint64)).any():
            raise InvalidFile(
                f"a file of this request, or another one in its directory, was staged before under instant "
                f"{record.instant}; each file is staged once, in a directory of its own",
                instant=str(record.instant),
            )


def discard(tx: Transaction, table_id: int, instant: int) -> None:
    """Forgets what was staged."""
    tx.clear_range(*BLOCKS.range(table_id, instant))
    tx.clear_range(*STAGED_SLICES.range(table_id, instant))
