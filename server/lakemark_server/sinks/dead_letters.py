"""Dead letters: events that a sink has given up. They stay in the store until they are sent again or dropped.

Their number and size are limited. A sink whose dead letters are full waits: it never loses an event in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from lakemark_core.errors import LimitExceeded
from lakemark_proto.store.v1.store_pb2 import DeadLetterRecord
from lakemark_server.kv import ReadTransaction, Space, Transaction, blob, counter
from lakemark_server.kv.api import TRANSACTION_BYTES_MAX
from lakemark_server.store.keyspace import DEAD_LETTER_COUNTS, DEAD_LETTERS, RESENDS

REASON_CHARS_MAX: Final = 1_000
CLEARED_A_TIME: Final = 500
"""Dead letters that one transaction removes, or marks for another attempt."""

_LETTERS: Final = "letters"
_BYTES: Final = "bytes"


class LettersFull(LimitExceeded):
    """The sink has as many dead letters as it may have. Nothing was written."""

    code = "dead_letters_full"


class SinkId(NamedTuple):
    """A sink, by its catalog and its name in lower case."""

    catalog: str
    name: str


@dataclass(frozen=True, slots=True)
class LetterLimits:
    """What each sink may have."""

    letters: int = 10_000
    bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter. ``resending``: another attempt was asked for."""

    letter_id: int
    record: DeadLetterRecord
    resending: bool


def add(tx: Transaction, sink: SinkId, letter_id: int, record: DeadLetterRecord, limits: LetterLimits) -> None:
    """Adds a letter with a new id. Raises LettersFull."""
    value = _stored(record)
    if count(tx, sink) + 1 > limits.letters or _size(tx, sink) + len(value) > limits.bytes:
        raise LettersFull(
            f"the dead letters of sink {sink.name!r} are full: nothing more is delivered until some are sent again or "
            f"dropped ('lakemark sinks resend', 'lakemark sinks drop-letters')"
        )
    blob.put_new(tx, _space(sink, letter_id), value)
    _count(tx, sink, 1, len(value))


def replace(tx: Transaction, sink: SinkId, letter_id: int, record: DeadLetterRecord) -> None:
    """Another attempt at the letter failed. Does nothing if it was dropped meanwhile."""
    old = blob.get(tx, _space(sink, letter_id))
    if old is not None:
        value = _stored(record)
        blob.put(tx, _space(sink, letter_id), value)
        _count(tx, sink, 0, len(value) - len(old))
    tx.clear(RESENDS.key(*sink, letter_id))


def remove(tx: Transaction, sink: SinkId, letter_id: int) -> bool:
    """Whether there was one."""
    tx.clear(RESENDS.key(*sink, letter_id))
    old = blob.get(tx, _space(sink, letter_id))
    if old is None:
        return False
    blob.clear(tx, _space(sink, letter_id))
    _count(tx, sink, -1, -len(old))
    return True


def forget(tx: Transaction, sink: SinkId) -> None:
    """Removes all of a sink that is dropped."""
    for space in (DEAD_LETTERS, DEAD_LETTER_COUNTS, RESENDS):
        tx.clear_range(*space.range(*sink))


def mark(tx: Transaction, sink: SinkId, letter_id: int) -> bool:
    """Asks for another attempt. False if there is no such letter."""
    if tx.get(_space(sink, letter_id).key(0), snapshot=True) is None:
        return False
    tx.set(RESENDS.key(*sink, letter_id), b"")
    return True


def next_marked(tx: ReadTransaction, sink: SinkId) -> Letter | None:
    """The first letter for which another attempt was asked for."""
    for key, _ in tx.get_range(*RESENDS.range(*sink), limit=1, snapshot=True):
        letter_id = _id(RESENDS, key)
        return Letter(letter_id, find(tx, sink, letter_id) or DeadLetterRecord(), True)
    return None


def find(tx: ReadTransaction, sink: SinkId, letter_id: int) -> DeadLetterRecord | None:
    """The letter, or None."""
    value = blob.get(tx, _space(sink, letter_id), snapshot=True)
    return None if value is None else DeadLetterRecord.FromString(value)


def ids(tx: ReadTransaction, sink: SinkId, after: int, limit: int) -> list[int]:
    """The ids of at most ``limit`` letters behind ``after``, in order."""
    listed: list[int] = []
    begin, end = DEAD_LETTERS.key(*sink, after + 1), DEAD_LETTERS.range(*sink)[1]
    while len(listed) < limit:
        pairs = tx.get_range(begin, end, limit=1, snapshot=True)
        if not pairs:
            break
        listed.append(_id(DEAD_LETTERS, pairs[0][0]))
        begin = DEAD_LETTERS.range(*sink, listed[-1])[1]
    return listed


def page(tx: ReadTransaction, sink: SinkId, after: int, limit: int) -> Iterator[Letter]:
    """At most ``limit`` letters behind the id ``after``, in order; fewer if they are large, but at least one."""
    size = 0
    for letter_id in ids(tx, sink, after, limit):
        record = find(tx, sink, letter_id)
        if record is not None:
            size += record.ByteSize()
            yield Letter(letter_id, record, tx.get(RESENDS.key(*sink, letter_id), snapshot=True) is not None)
        if size > TRANSACTION_BYTES_MAX:
            return


def count(tx: ReadTransaction, sink: SinkId) -> int:
    """How many letters there are."""
    return counter(tx.get(DEAD_LETTER_COUNTS.key(*sink, _LETTERS), snapshot=True))


def _size(tx: ReadTransaction, sink: SinkId) -> int:
    return counter(tx.get(DEAD_LETTER_COUNTS.key(*sink, _BYTES), snapshot=True))


def _count(tx: Transaction, sink: SinkId, letters: int, size_bytes: int) -> None:
    tx.add(DEAD_LETTER_COUNTS.key(*sink, _LETTERS), letters)
    tx.add(DEAD_LETTER_COUNTS.key(*sink, _BYTES), size_bytes)


def _stored(record: DeadLetterRecord) -> bytes:
    kept = DeadLetterRecord()
    kept.CopyFrom(record)
    kept.reason = record.reason[:REASON_CHARS_MAX]
    return kept.SerializeToString()


def _space(sink: SinkId, letter_id: int) -> Space:
    return DEAD_LETTERS.space(*sink, letter_id)


def _id(space: Space, key: bytes) -> int:
    letter_id = space.unpack(key)[2]
    assert isinstance(letter_id, int)  # noqa: S101 - the layout of the key
    return letter_id
