"""Directories that are made before a transaction, or deleted or moved after it, so that nothing is lost half way.

A directory that is deleted, emptied or moved is closed meanwhile (``ownership.closures``): the transaction that decides
on it closes it, if nobody else has files there, and another one opens it when the files are gone. Where a directory can
be renamed it is put aside first, so that its name is free again at once, and whatever is made there is not deleted.
"""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

import structlog

from lakemark_core import storage
from lakemark_core.errors import AlreadyExists, FailedPrecondition, FilesLeft, LakemarkError, UnknownOutcome
from lakemark_proto.store.v1.store_pb2 import ClosedRecord
from lakemark_server.catalog.warehouse_records import parents_between
from lakemark_server.kv import Store, Transaction
from lakemark_server.ownership import closures, places
from lakemark_server.ownership.closures import TakenOver
from lakemark_server.ownership.tenures import LEFT_MS, Tenure, at_work

_ASIDE: Final = ".lakemark-deleted-"

_log = structlog.get_logger(__name__)

T = TypeVar("T")


def with_directories(locations: Iterable[str], change: Callable[[], T]) -> T:
    """Makes the directories, then runs ``change``. If that fails, removes the new directories that are empty."""
    made: list[str] = []
    try:
        for location in locations:
            if location:
                made += _made(location)
        return change()
    except LakemarkError as error:
        # A change that was first, or one of unknown outcome, may be using a directory by now.
        if not isinstance(error, AlreadyExists | UnknownOutcome):
            for location in reversed(made):
                storage.remove_if_empty(location)
        raise


def _made(location: str) -> list[str]:
    """Makes a directory and its parents. Returns those that were missing, the outermost first."""
    if not storage.keeps_directories(location):
        return []
    missing: list[str] = []
    parent = location
    # Stop at the root, or at the bucket.
    while parent.partition(":")[2].strip("/") and not storage.is_directory(parent):
        missing.append(parent)
        parent = posixpath.dirname(parent)
    if missing:
        storage.make_directory(location)
    return missing[::-1]


# -- deletion ---------------------------------------------------------------------------------------------------------


def begin_deletion(tx: Transaction, location: str, now_ms: int, *, aside: bool) -> ClosedRecord:
    """Closes a directory that is to be deleted when the transaction is durable.

    ``finish_deletion`` does it, or ``delete_in_place`` what is not ``aside``.

    ``aside``: it is renamed first, where that is possible. Raises LocationTaken while it is emptied or moved.
    """
    closures.require_not_in_use(tx, places.place_of(location))
    away = ""
    if aside and storage.keeps_directories(location):
        away = f"{posixpath.dirname(location)}/{_ASIDE}{secrets.token_hex(8)}"
    closed = ClosedRecord(since_ms=now_ms, why=ClosedRecord.DELETED, location=location, aside=away)
    closures.close(tx, closed)
    return closed


def finish_deletion(store: Store, location: str, now_ms: int) -> None:
    """Deletes a directory for which ``begin_deletion`` was called, if it is still there, and opens its name.

    Raises Unavailable, StorageRefused; it can be called again then, by any process. A directory that was put aside may
    be left until later: it is in nobody's way.
    """
    record = store.read(lambda tx: closures.find(tx, location))
    if record is None or record.why != ClosedRecord.DELETED:
        return
    if record.worker != closures.WORKER:
        if record.since_ms >= now_ms - LEFT_MS:
            return  # another process is at it, or has died and is followed by the sweeper
        taken = store.transact(partial(closures.take_over, record=record, now_ms=now_ms))
        if taken is None:
            return
        record = taken
    with at_work(store, [record], max(0, now_ms - record.since_ms)) as tenure:
        if record.aside and _removed_empty(store, record, tenure):
            return
        aside = _put_aside(store, record, tenure, now_ms) if record.aside else None
        if aside is None:
            storage.delete_directory(record.location, tenure.may_go_on)
            store.transact(lambda tx: closures.reopen(tx, [record]))
    if aside is not None:
        delete_in_place(store, [aside])


def _removed_empty(store: Store, record: ClosedRecord, tenure: Tenure) -> bool:
    """Removes a directory without content and opens its name, in one transaction less than it takes to put it aside.

    False: there is something to delete. Raises TakenOver.
    """
    tenure.may_go_on()
    if storage.is_directory(record.aside) or not storage.remove_if_empty(record.location):
        return False
    try:
        store.transact(partial(closures.reopen_own, record=record))
    except TakenOver:
        storage.make_directory(record.location)  # it may be the one that somebody has made since
        raise
    return True


def _put_aside(store: Store, record: ClosedRecord, tenure: Tenure, now_ms: int) -> ClosedRecord | None:
    """Moves the directory away and opens its name; what is closed now. Done again, it moves nothing. None: it cannot.

    Raises TakenOver.
    """
    moved = None
    if storage.is_directory(record.location) and not storage.is_directory(record.aside):
        try:
            moved = storage.begin_move(record.location, record.aside, tenure.may_go_on)
        except TakenOver:
            raise
        except LakemarkError as error:
            if not storage.is_directory(record.aside):  # it may have been moved nevertheless
                _log.debug("a directory is deleted where it is", location=record.location, reason=error.message)
                return None
    aside = ClosedRecord(since_ms=now_ms, why=record.why, location=record.aside)

    def body(tx: Transaction) -> None:
        closures.reopen_own(tx, record)
        closures.close(tx, aside)

    try:
        store.transact(body)
    except TakenOver:
        if moved is not None:  # what was moved may be what somebody has put there since the other process was done
            moved.undo()
        raise
    return aside


def try_to_delete(store: Store, location: str, now_ms: int) -> None:
    """Like ``finish_deletion``, but tells a failure in the log only, as Hive's service does."""
    try:
        finish_deletion(store, location, now_ms)
    except LakemarkError as error:
        _log.warning("what was dropped has left its files; it is tried again", location=location, reason=error.message)


def delete_in_place(store: Store, closed: Sequence[ClosedRecord]) -> None:
    """Deletes directories that this process has closed, and opens them together. Failures are told in the log."""
    if not closed:
        return
    gone = []
    with at_work(store, closed) as tenure:
        for record in closed:
            try:
                storage.delete_directory(record.location, tenure.may_go_on)
                gone.append(record)
            except TakenOver as error:
                _log.warning("another process goes on with what was dropped", reason=error.message)
                break
            except LakemarkError as error:
                _log.warning("what was dropped has left its files; it is tried again", reason=error.message)
        if gone:
            store.transact(partial(closures.reopen, records=gone))


@contextmanager
def emptying(store: Store, locations: Sequence[str], check: Callable[[Transaction], int]) -> Iterator[Tenure]:
    """Closes the directories while their content is deleted. ``check`` may refuse it, and returns the time."""

    def begin(tx: Transaction) -> list[ClosedRecord]:
        now_ms = check(tx)
        closures.require_open(tx, map(places.place_of, locations))
        records = [ClosedRecord(since_ms=now_ms, why=ClosedRecord.EMPTIED, location=one) for one in locations]
        for record in records:
            closures.close(tx, record)
        return records

    records = store.transact(begin)
    with at_work(store, records) as tenure:
        try:
            yield tenure
        finally:
            store.transact(partial(closures.reopen, records=records))


@contextmanager
def leaving_files() -> Iterator[None]:
    """Logs that a drop has left files instead of raising FilesLeft, again as in Hive's service."""
    try:
        yield
    except FilesLeft as error:
        _log.warning("what was dropped has left its files", reason=error.message)


def remove_empty_parents(location: str, top: str) -> None:
    """Removes those directories between ``location`` and ``top`` that are empty."""
    for parent in parents_between(location, top):
        storage.remove_if_empty(parent)


# -- moves ------------------------------------------------------------------------------------------------------------


def with_moved_directories(
    store: Store,
    moved: Sequence[ClosedRecord],
    keeps: Callable[[Transaction], str],
    change: Callable[[Sequence[ClosedRecord]], T],
) -> T:
    """Moves each directory ``location`` to its ``target``, then runs ``change``: all of it happens, or nothing.

    All of them are closed meanwhile; ``change`` takes their places, and checks that they are still closed by these
    records. If it fails, the directories are moved back. ``keeps`` says why a directory must not be moved, as
    ``Ownership.what_keeps``.

    Raises FailedPrecondition if others have files in a directory, AlreadyExists if there is something at a target,
    Unavailable, and what ``change`` raises.
    """
    every = [places.place_of(location) for record in moved for location in (record.location, record.target)]

    for record in moved:
        # Before it is closed: who finds the closure knows that what is at the target comes from the source.
        if not storage.is_empty(record.target):
            raise AlreadyExists(f"the directory {record.target!r} exists already", location=record.target)

    def begin(tx: Transaction) -> None:
        closures.require_open(tx, every)
        reason = keeps(tx)
        if reason:
            raise FailedPrecondition(f"{moved[0].location} cannot be moved: {reason}", location=moved[0].location)
        for record in moved:
            closures.close(tx, record)

    store.transact(begin)
    with at_work(store, moved) as tenure:
        moves: list[storage.Move] = []
        try:
            for record in moved:
                moves.append(storage.begin_move(record.location, record.target, tenure.may_go_on))
            tenure.may_go_on()
            answer = change(moved)
        except (UnknownOutcome, TakenOver):
            raise  # ``left_directories`` finds out how far it has come, and opens them
        except LakemarkError:
            stuck = _undo(moves)
            store.transact(
                partial(closures.reopen, records=[record for record in moved if record.location not in stuck])
            )
            raise
        for move in moves:
            try:
                move.finish()
            except LakemarkError as error:
                _log.warning("what was moved has left its files", location=move.source, reason=error.message)
        store.transact(partial(closures.reopen, records=moved))
    return answer


def _undo(moves: Sequence[storage.Move]) -> set[str]:
    """Moves directories back. Those that cannot be, given by their sources, are left to ``left_directories``."""
    stuck = set()
    for move in reversed(moves):
        try:
            move.undo()
        except LakemarkError as error:
            stuck.add(move.source)
            _log.warning("a directory is moved back later", location=move.source, reason=error.message)
    return stuck
