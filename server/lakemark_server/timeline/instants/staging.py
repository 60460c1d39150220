"""Staging: the entries of an instant's files, written before the commit in as many transactions as they need."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, cast

import numpy as np
import pyarrow as pa

from lakemark_core.errors import InstantStateError, InvalidFile, InvalidSchema, LimitExceeded, StoreConflict
from lakemark_core.types import check_fits, check_readable
from lakemark_proto.store.v1.store_pb2 import InstantRecord, RemovedTotals, StagedTotals
from lakemark_proto.v1 import timeline_pb2
from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.admission import usage
from lakemark_server.admission.quotas import Quotas
from lakemark_server.admission.usage import Tenant
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.arrow import texts
from lakemark_server.file_index.entries.columns import from_messages, keep_deletes
from lakemark_server.file_index.entries.received import from_arrow
from lakemark_server.file_index.entries.validation import Hashes, directories_above, directory_hashes, validate
from lakemark_server.file_index.pages import blocks
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.store.keyspace import BLOCKS, REMOVED, STAGED_SLICES
from lakemark_server.store.mutations import Mutations
from lakemark_server.timeline import records
from lakemark_server.timeline.conflicts.partition_list import PartitionList
from lakemark_server.timeline.conflicts.touched import COUNTS_MADE, TouchedSet
from lakemark_server.timeline.instants.states import require_inflight

INLINE_BYTES_MAX: Final = 24_000
TRANSACTION_BYTES_AIM: Final = 900_000
FILES_OF_INSTANT_MAX: Final = 10_000_000
COMMIT_SEQUENCE: Final = 1 << 62  # the sequence number of what a commit request itself brings
# A compaction's delta would lie on top of those that were written while it ran, and hold older rows. Only deletes that
# its own base files have seen it may keep: they are merged by their ordering column.
TAKES_DELTAS: Final = frozenset({timeline_pb2.UPSERT, timeline_pb2.DELETE, timeline_pb2.OVERWRITE_PREDICATE})
REMOVES: Final = frozenset(
    {
        timeline_pb2.UPSERT,
        timeline_pb2.DELETE,
        timeline_pb2.OVERWRITE_PREDICATE,
        timeline_pb2.COMPACT,
        timeline_pb2.CLUSTER,
    }
)


@dataclass(frozen=True, slots=True)
class Entries:
    """Checked entries of files that are added and of files that are removed, as blocks.

    ``slices`` are hashes of what one instant may name only once: directories of the former, paths of the latter.
    ``added`` is None if there are none of the former.
    """

    blocks: list[bytes]
    totals: StagedTotals
    partitions: frozenset[str]
    slices: Hashes
    deltas: bool = False
    removed_blocks: list[bytes] = field(default_factory=list)
    removed: RemovedTotals = field(default_factory=RemovedTotals)
    touched: TouchedSet = field(default_factory=TouchedSet)
    added: pa.RecordBatch | None = None
    replaced: frozenset[tuple[str, str]] = frozenset()  # (partition, file group) of the base files removed

    def add_touched(self, record: InstantRecord) -> None:
        """Notes with the instant what they touch under its operation."""
        made = self.added if record.operation in COUNTS_MADE else None
        if made is None and not self.touched:
            return
        touched = TouchedSet.of(record)
        touched.add(self.touched)
        if made is not None:
            touched.add_made(made, record.instant, record.operation, self.replaced)
        touched.write_to(record)

    def above(self) -> Hashes:
        """Hashes of the directories above those of the files that are added."""
        if self.added is None:
            return np.empty(0, np.uint64)
        return directory_hashes(sorted(directories_above(texts(self.added.column("path")))))

    @property
    def inline(self) -> bool:
        """Whether they fit into the version's own record."""
        encoded = (*self.blocks, *self.removed_blocks)
        few = len(self.blocks) <= 1 and len(self.removed_blocks) <= 1
        return few and sum(map(len, encoded)) <= INLINE_BYTES_MAX

    @property
    def block(self) -> bytes:
        """The only one of inline entries; empty if there are none."""
        return self.blocks[0] if self.blocks else b""

    @property
    def removed_block(self) -> bytes:
        """Likewise."""
        return self.removed_blocks[0] if self.removed_blocks else b""


NO_ENTRIES: Final = Entries([], StagedTotals(), frozenset(), np.empty(0, np.uint64))


def read_entries(files: pb.DataFiles, table: LakeTable, instant: int) -> Entries:
    """Checks what a writer sent. Raises InvalidFile."""
    if files.WhichOneof("form") == "arrow":
        batch = from_arrow(files.arrow, table.schema)
    else:
        batch = from_messages(files.list.files, table.schema)
    batch, slices = validate(batch, table.schema, instant, table.record.location, deltas_allowed=True, kind=table.kind)
    totals = StagedTotals(files=batch.num_rows, rows=_sum(batch, "row_count"), bytes=_sum(batch, "size_bytes"))
    touched = TouchedSet()
    touched.add_added(batch)
    partitions = frozenset(texts(batch.column("partition")))
    added = batch if batch.num_rows else None
    return Entries(_to_blocks(files, batch), totals, partitions, slices, bool(touched), touched=touched, added=added)


def with_removed(entries: Entries, removed: pa.RecordBatch) -> Entries:
    """Together with files that are taken out, whose entries have the columns ``FIXED``."""
    if not removed.num_rows:
        return entries
    touched = TouchedSet()
    touched.add(entries.touched)
    touched.add_removed(removed)
    paths = np.sort(directory_hashes(texts(removed.column("path"))))
    partitions, groups = texts(removed.column("partition")), texts(removed.column("file_group"))
    kinds = removed.column("kind").to_pylist()
    return replace(
        entries,
        partitions=entries.partitions | frozenset(partitions),
        slices=np.sort(np.concatenate([entries.slices, paths])),
        removed_blocks=blocks.encode(removed),
        removed=RemovedTotals(
            files=removed.num_rows, rows=_sum(removed, "row_count"), bytes=_sum(removed, "size_bytes")
        ),
        touched=touched,
        replaced=frozenset(
            (where, group)
            for where, group, kind in zip(partitions, groups, kinds, strict=True)
            if kind != pb.DELTA  # else the group has no base file yet
        ),
    )


def _sum(batch: pa.RecordBatch, name: str) -> int:
    return int(batch.column(name).to_numpy().sum())


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


def written_with(tx: ReadTransaction, table: LakeTable, instant: int, schema_id: int) -> LakeTable:
    """The table with the schema of this id; 0: with the one that the instant was opened with.

    All files of an instant have one schema. Raises InvalidSchema, InstantNotFound.
    """
    record = records.instant(tx, table.table_id, instant)
    wanted, latest = schema_id or record.schema_id, table.schema.schema_id
    if not 1 <= wanted <= latest:
        raise InvalidSchema(
            f"{table.name} has no schema {wanted}; its schemas are 1 to {latest}",
            schema_id=str(wanted),
            latest_schema_id=str(latest),
        )
    if wanted != record.schema_id and record.staged.files and record.state != timeline_pb2.COMPLETED:
        raise InvalidSchema(
            f"files of instant {instant} were staged with schema {record.schema_id}, which it was opened with, and are "
            f"committed with {wanted}",
            schema_id=str(wanted),
        )
    return table if wanted == latest else replace(table, schema=lake.get_schema(tx, table.table_id, wanted))


def check_file_schema(file_schema: bytes, table: LakeTable) -> None:
    """Raises InvalidSchema with every reason why files of this Arrow schema do not fit the table, or could not be read
    by plain Spark, as far as that can be told by it."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(file_schema))
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidSchema(f"file_schema is not an Arrow schema: {error}") from error
    reasons = check_fits(table.schema, schema) or check_readable(table.schema, schema)
    if reasons:
        raise InvalidSchema(f"the files do not fit {table.name}: {'; '.join(reasons)}", table=table.name)


def check_operation(record: InstantRecord, entries: Entries) -> None:
    """Raises InvalidFile for deltas, or for removed files, that the instant's operation cannot have."""
    operation = timeline_pb2.Operation.Name(record.operation)
    if entries.deltas and entries.added is not None:
        _check_deltas(record, entries.added)
    if entries.removed.files and record.operation not in REMOVES:
        names = ", ".join(sorted(timeline_pb2.Operation.Name(one) for one in REMOVES))
        raise InvalidFile(
            f"instant {record.instant} is of operation {operation}, which removes no files by name; those that do: "
            f"{names}"
        )


def _check_deltas(record: InstantRecord, added: pa.RecordBatch) -> None:
    kept = keep_deletes(*(added.column(name) for name in ("kind", "base_instant", "path")))
    others = (added.column("kind").to_numpy() == pb.DELTA) & ~kept
    operation = timeline_pb2.Operation.Name(record.operation)
    if record.operation == timeline_pb2.COMPACT:
        if others.any():
            raise InvalidFile(
                f"instant {record.instant} is of operation {operation}, which writes base files, and no deltas but "
                f"such as keep deletes that these have seen: their base_instant is {record.instant}, its own"
            )
    elif record.operation not in TAKES_DELTAS:
        raise InvalidFile(f"instant {record.instant} is of operation {operation}, which writes base files, no deltas")
    elif kept.any():
        raise InvalidFile(
            f"instant {record.instant} is of operation {operation}, and a delta of it has base_instant "
            f"{record.instant}: that is the instant of the base file under it, which was there before, or 0"
        )


def stage(
    mutations: Mutations,
    table: LakeTable,
    instant: int,
    entries: Entries,
    sequence: int,
    quotas: Quotas,
) -> InstantRecord:
    """Writes entries under the instant; again with the same ``sequence``: nothing new. Returns the instant, which
    knows its totals so far.

    Raises InstantStateError (not inflight, sequence out of order), InvalidFile (a directory was staged before, or other
    files under this sequence), StoreConflict (another request for the same instant was at work), QuotaExceeded.
    """
    table_id = table.table_id
    tenant = quotas.tenant(table.record.catalog)
    seen = mutations.store.read(lambda tx: _seen(tx, table_id, instant, entries, sequence, tenant))
    if seen.staged.sequence < sequence:
        for group in _transactions(_places(table_id, seen, entries)):
            mutations.store.transact(lambda tx, group=group: _put_blocks(tx, table_id, seen, group))  # type: ignore[misc]
    return mutations.run(lambda mutation: _account(mutation.tx, table_id, entries, sequence, seen, tenant))


def _places(table_id: int, seen: InstantRecord, entries: Entries) -> list[tuple[bytes, bytes]]:
    """Keys and blocks, behind those that are staged already."""
    instant, staged, removed = seen.instant, seen.staged.blocks, seen.removed.blocks
    added = [(BLOCKS.key(table_id, instant, staged + at), block) for at, block in enumerate(entries.blocks)]
    gone = [(REMOVED.key(table_id, instant, removed + at), block) for at, block in enumerate(entries.removed_blocks)]
    return added + gone


def _seen(
    tx: ReadTransaction, table_id: int, instant: int, entries: Entries, sequence: int, tenant: Tenant
) -> InstantRecord:
    """What is staged so far, if these entries may follow, or are part of it."""
    record = records.instant(tx, table_id, instant)
    if _already(record, sequence):
        _check_same(tx, table_id, record, entries.slices, sequence)
    else:
        usage.check_staged(tx, tenant, entries.totals.files, entries.totals.bytes)
    check_operation(record, entries)
    return record


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
    if entries.totals.files or entries.removed.files:
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


def _transactions(encoded: list[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
    groups: list[list[tuple[bytes, bytes]]] = []
    size = TRANSACTION_BYTES_AIM
    for key, block in encoded:
        if size + len(block) > TRANSACTION_BYTES_AIM:
            groups.append([])
            size = 0
        groups[-1].append((key, block))
        size += len(block)
    return groups


def _put_blocks(tx: Transaction, table_id: int, seen: InstantRecord, group: list[tuple[bytes, bytes]]) -> None:
    record = records.instant(tx, table_id, seen.instant)
    require_inflight(record)
    _check_alone(record, seen)
    for key, block in group:
        tx.set(key, block)


def _check_alone(record: InstantRecord, seen: InstantRecord) -> None:
    """Blocks of a request that was overtaken would overwrite those of the other one."""
    if record.staged.sequence != seen.staged.sequence:
        raise StoreConflict(
            f"another request staged files of instant {record.instant} at the same time; send this one again",
            instant=str(record.instant),
        )


def _account(
    tx: Transaction, table_id: int, entries: Entries, sequence: int, seen: InstantRecord, tenant: Tenant
) -> InstantRecord:
    record = records.instant(tx, table_id, seen.instant)
    if _already(record, sequence):
        return record
    _check_alone(record, seen)
    above = entries.above()
    check_new_slices(tx, table_id, record, entries, above)
    usage.take_staged(tx, tenant, entries.totals.files, entries.totals.bytes)
    for number, part in enumerate(_parts(entries.slices)):
        tx.set(STAGED_SLICES.key(table_id, record.instant, sequence, number), part)
    for number, part in enumerate(_parts(above)):
        tx.set(STAGED_SLICES.key(table_id, record.instant, sequence, -1 - number), part)
    partitions = PartitionList.of(record)
    partitions.add(entries.partitions)
    partitions.write_to(record)
    entries.add_touched(record)
    add_totals(record, entries)
    record.staged.blocks += len(entries.blocks)
    record.removed.blocks += len(entries.removed_blocks)
    record.staged.sequence = sequence
    records.put_instant(tx, table_id, record)
    return record


def add_totals(record: InstantRecord, entries: Entries) -> None:
    """Counts them as staged. Raises LimitExceeded."""
    staged, removed = record.staged, record.removed
    if staged.files + entries.totals.files > FILES_OF_INSTANT_MAX:
        raise LimitExceeded(f"an instant holds at most {FILES_OF_INSTANT_MAX:,} files")
    staged.files += entries.totals.files
    staged.rows += entries.totals.rows
    staged.bytes += entries.totals.bytes
    record.deltas |= entries.deltas
    if entries.removed.files:
        removed.files += entries.removed.files
        removed.rows += entries.removed.rows
        removed.bytes += entries.removed.bytes


def _parts(hashes: Hashes) -> list[bytes]:
    """As values of the store."""
    data, size = hashes.tobytes(), blocks.BLOCK_BYTES_MAX // 8 * 8
    return [data[at : at + size] for at in range(0, len(data), size)]


def check_new_slices(
    tx: ReadTransaction, table_id: int, record: InstantRecord, entries: Entries, above: Hashes | None = None
) -> None:
    """Raises InvalidFile if a directory holds a file that was staged by an earlier request, or lies above or below one
    that does. ``above``: what ``entries.above()`` gave."""
    if not (record.staged.blocks or record.removed.blocks) or not len(entries.slices):
        return
    beside = np.concatenate([entries.slices, entries.above() if above is None else above])
    for key, value in tx.get_range(*STAGED_SLICES.range(table_id, record.instant)):
        outer = cast(int, STAGED_SLICES.unpack(key)[-1]) < 0
        staged = np.frombuffer(value, np.uint64)
        if np.isin(entries.slices if outer else beside, staged).any():
            raise InvalidFile(
                f"a file of this request, or another one in its directory or above or below that, was staged before "
                f"under instant {record.instant}; each file is added or removed once, and added in a directory of its "
                "own, which lies in no other file's",
                instant=str(record.instant),
            )


def discard(tx: Transaction, table_id: int, instant: int) -> None:
    """Forgets what was staged."""
    tx.clear_range(*BLOCKS.range(table_id, instant))
    tx.clear_range(*REMOVED.range(table_id, instant))
    forget_slices(tx, table_id, instant)


def forget_slices(tx: Transaction, table_id: int, instant: int) -> None:
    """Once nothing more can be staged, nobody asks what was."""
    tx.clear_range(*STAGED_SLICES.range(table_id, instant))
