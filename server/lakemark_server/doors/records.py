"""What was decided about statements, in the store: so it is decided once, whichever process is asked, and when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from lakemark_core.errors import FailedPrecondition
from lakemark_proto.store.v1.doors_pb2 import DoorDirectoryRecord, DoorSessionRecord
from lakemark_server.doors.directories import GivenDirectory
from lakemark_server.kv import ReadTransaction, Transaction
from lakemark_server.store.keyspace import DOOR_DIRECTORIES, DOOR_SESSIONS, DOOR_SESSIONS_COUNTED

REASON_CHARS_MAX: Final = 2_000


def find_session(tx: ReadTransaction, table_id: int, session: str) -> DoorSessionRecord | None:
    """None if there is none: it was swept, or belongs to another table."""
    stored = tx.get(DOOR_SESSIONS.key(table_id, session))
    return None if stored is None else DoorSessionRecord.FromString(stored)


def put_session(tx: Transaction, table_id: int, session: str, record: DoorSessionRecord) -> None:
    tx.set(DOOR_SESSIONS.key(table_id, session), record.SerializeToString())


def note_open(tx: Transaction, table_id: int, session: str, latest: int) -> None:
    """The session is open, now that there are so many sessions of the table. Nothing happens if it is over."""
    record = find_session(tx, table_id, session)
    if record is not None and not record.swept and record.used < latest:
        record.used = latest
        put_session(tx, table_id, session, record)


def sessions(tx: ReadTransaction, table_id: int) -> list[tuple[str, DoorSessionRecord]]:
    """All of a table; a snapshot read, so that statements of different sessions do not disturb each other."""
    pairs = tx.get_range(*DOOR_SESSIONS.range(table_id), snapshot=True)
    return [(cast(str, DOOR_SESSIONS.unpack(key)[-1]), DoorSessionRecord.FromString(value)) for key, value in pairs]


def find(tx: ReadTransaction, table_id: int, directory: GivenDirectory) -> DoorDirectoryRecord:
    """What was decided about a directory and about the call that names it; an empty record: nothing yet."""
    stored = tx.get(DOOR_DIRECTORIES.key(table_id, directory.session, directory.name))
    return DoorDirectoryRecord.FromString(stored or b"")


def publish(tx: Transaction, table_id: int, calls: Mapping[GivenDirectory, int], session: str, now_ms: int) -> None:
    """Notes that the files of these directories are committed, once.

    ``session`` is owed the calls that end the statements; ``calls`` says how many each of them makes. Raises
    FailedPrecondition if it was told already that one of them is given up.
    """
    fresh = 0
    for directory, number in calls.items():
        record = find(tx, table_id, directory)
        if record.outcome == DoorDirectoryRecord.RETIRED:
            raise FailedPrecondition(
                "the rows of a statement were committed, but it was told before that they would not be: look whether "
                f"they are there before it is repeated ({record.reason})"
            )
        if record.outcome != DoorDirectoryRecord.PUBLISHED:
            fresh += number
            record.outcome = DoorDirectoryRecord.PUBLISHED
            _put(tx, table_id, directory, record, now_ms)
    owner = find_session(tx, table_id, session)
    if fresh and owner is not None:
        owner.owed += fresh
        put_session(tx, table_id, session, owner)


def retire(tx: Transaction, table_id: int, directories: Iterable[GivenDirectory], reason: str, now_ms: int) -> None:
    """Notes that their files are never committed. Nothing changes about those that are decided."""
    for directory in directories:
        record = find(tx, table_id, directory)
        if not record.outcome:
            record.outcome = DoorDirectoryRecord.RETIRED
            record.reason = reason[:REASON_CHARS_MAX]
            _put(tx, table_id, directory, record, now_ms)


def count_session(tx: Transaction, table_id: int) -> int:
    """The number of a new session of the table."""
    number = latest_session(tx, table_id) + 1
    tx.set(DOOR_SESSIONS_COUNTED.key(table_id), number.to_bytes(8, "big"))
    return number


def latest_session(tx: ReadTransaction, table_id: int) -> int:
    """The number of the session that was opened last."""
    return int.from_bytes(tx.get(DOOR_SESSIONS_COUNTED.key(table_id)) or b"", "big")


def doubt(tx: Transaction, table_id: int, among: Iterable[str], until_ms: int) -> None:
    """No call of these sessions is answered well for what was published so far, nor for anything until then."""
    for session in among:
        owner = find_session(tx, table_id, session)
        if owner is not None:
            owner.owed, owner.doubt_until_ms = 0, max(owner.doubt_until_ms, until_ms)
            put_session(tx, table_id, session, owner)


def refuse(tx: Transaction, table_id: int, call: GivenDirectory, message: str, now_ms: int) -> None:
    """Notes the answer to a call that is refused."""
    record = find(tx, table_id, call)
    record.refused = message[:REASON_CHARS_MAX]
    _put(tx, table_id, call, record, now_ms)


def answer(tx: Transaction, table_id: int, call: GivenDirectory, among: Sequence[str], worth: int, now_ms: int) -> bool:
    """Whether one of these sessions is owed a call; the first that is is then owed ``worth`` fewer, if it is so many.

    A call that was counted before is not counted again. False, too, if one of the sessions came into doubt meanwhile.
    """
    record = find(tx, table_id, call)
    if record.answered:
        return True
    owners = {session: find_session(tx, table_id, session) for session in among}
    if any(owner is not None and owner.doubt_until_ms > now_ms for owner in owners.values()):
        return False
    for session, owner in owners.items():
        if owner is not None and owner.owed:
            owner.owed -= min(worth, owner.owed)
            put_session(tx, table_id, session, owner)
            record.answered = True
            _put(tx, table_id, call, record, now_ms)
            return True
    return False


def _put(tx: Transaction, table_id: int, directory: GivenDirectory, record: DoorDirectoryRecord, now_ms: int) -> None:
    record.changed_ms = now_ms
    tx.set(DOOR_DIRECTORIES.key(table_id, directory.session, directory.name), record.SerializeToString())
