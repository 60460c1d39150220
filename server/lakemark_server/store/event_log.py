"""Appending to the log of events: what one transaction changes in a catalog is one batch of the catalog's log.

A batch lies under a versionstamped key, so that the log has the order of the commits although no writer reads it or
waits for another. The offset of an event is its place in the log, counted from 1. Readers count
(``lakemark_server.events``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from google.protobuf.message import DecodeError

from lakemark_core.errors import CorruptStore
from lakemark_proto.store.v1.store_pb2 import EventBatch
from lakemark_proto.v1.events_pb2 import Event
from lakemark_server.kv import KeyValue, ReadTransaction, Space, Transaction, stamp_of
from lakemark_server.kv.api import VALUE_BYTES_MAX
from lakemark_server.store.keyspace import EARLIER_EPOCHS, EPOCH, EVENT_ENDS, EVENTS

_PLAIN: Final = 0
_ZSTD: Final = 1
_COMPRESSED_FROM: Final = 2_048
_HEADER_BYTES: Final = 7  # the number of pieces (2), the form (1), the length of the batch (4)
_CODEC: Final = pa.Codec("zstd", 1)


def epoch(tx: ReadTransaction) -> int:
    """0 until the store is restored from a backup; each restore makes it greater, and it is that restore's alone."""
    stored = tx.get(EPOCH, snapshot=True)
    return 0 if stored is None else int.from_bytes(stored, "big")


def begin_epoch(tx: Transaction, now_ms: int) -> int:
    """After a restore: what is appended with this epoch comes behind all that the backup holds.

    It is the time of the restore, so that two stores which were made of one backup do not share an epoch.
    """
    ended = epoch(tx)
    begun = max(ended + 1, now_ms)
    if ended:
        tx.set(EARLIER_EPOCHS.key(ended), b"")
    tx.set(EPOCH, begun.to_bytes(8, "big"))
    return begun


def has_been_in(tx: ReadTransaction, other: int) -> bool:
    """Whether the store is in that epoch or was; if not, another restore began it, which this store knows nothing of.

    Two stores that have been in an epoch have the same events of it, as far as both have them.
    """
    return other in (0, epoch(tx)) or tx.get(EARLIER_EPOCHS.key(other), snapshot=True) is not None


def append(tx: Transaction, epoch: int, catalog: str, events: Sequence[Event]) -> None:
    """Appends a batch, which is in the log if the transaction commits; once in a transaction for each catalog."""
    batch = EventBatch(events=events).SerializeToString()
    form, body = _PLAIN, batch
    if len(batch) > _COMPRESSED_FROM:
        form, body = _ZSTD, _CODEC.compress(batch, asbytes=True)
    first = VALUE_BYTES_MAX - _HEADER_BYTES
    pieces = [body[:first], *(body[at : at + VALUE_BYTES_MAX] for at in range(first, len(body), VALUE_BYTES_MAX))]
    header = len(pieces).to_bytes(2, "big") + bytes([form]) + len(batch).to_bytes(4, "big")
    prefix = EVENTS.key(catalog, epoch)
    for number, piece in enumerate(pieces):
        tx.set_versionstamped_key(prefix, number, header + piece if number == 0 else piece)
    tx.set_versionstamped_value(EVENT_ENDS.key(catalog), epoch.to_bytes(8, "big"))


def batches(catalog: str, pairs: Iterable[KeyValue]) -> Iterator[tuple[bytes, int, list[Event]]]:
    """For each whole batch of the catalog's log, in order: the key behind which the log goes on, what it takes in the
    store in bytes, and its events with their epoch.

    ``pairs`` begin with the first piece of a batch. A batch that they cut off at their end is left out. Raises
    CorruptStore.
    """
    space = EVENTS.space(catalog)
    gathered: list[bytes] = []
    for key, value in pairs:
        gathered.append(value)
        if len(gathered) == int.from_bytes(gathered[0][:2], "big"):
            epoch = _epoch_of(space, key, len(gathered) - 1)
            events = list(_parsed(key, gathered).events)
            for event in events:
                event.epoch = epoch
            yield key, sum(map(len, gathered)), events
            gathered = []


def _epoch_of(space: Space, key: bytes, number: int) -> int:
    epoch = space.unpack(key)[0]
    if not isinstance(epoch, int) or stamp_of(key, space.key(epoch))[1] != number:
        raise CorruptStore(f"a piece of the batch of events at {key!r} is missing")
    return epoch


def _parsed(key: bytes, pieces: Sequence[bytes]) -> EventBatch:
    form, size = pieces[0][2], int.from_bytes(pieces[0][3:_HEADER_BYTES], "big")
    body = b"".join((pieces[0][_HEADER_BYTES:], *pieces[1:]))
    if form not in (_PLAIN, _ZSTD):
        raise CorruptStore(f"the batch of events at {key!r} has form {form}, which this release does not know")
    try:
        return EventBatch.FromString(body if form == _PLAIN else _CODEC.decompress(body, size, asbytes=True))
    except (OSError, ValueError, DecodeError) as error:
        raise CorruptStore(f"the batch of events at {key!r} is damaged: {error}") from error
