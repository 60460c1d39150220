"""Directories that are made before a transaction, or deleted after it, so that a failure leaves nothing behind."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import structlog

from lakemark_core import storage
from lakemark_core.errors import AlreadyExists, FilesLeft, LakemarkError, UnknownOutcome
from lakemark_server.catalog.warehouse_records import inside, parents_between

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


def with_moved_directory(source: str, target: str, change: Callable[[], T]) -> T:
    """Moves the directory, then runs ``change``. If that fails, moves the directory back.

    Raises AlreadyExists if there is something at ``target``, Unavailable, and what ``change`` raises.
    """
    move = storage.begin_move(source, target)
    try:
        answer = change()
    except UnknownOutcome:
        raise
    except LakemarkError:
        move.undo()
        raise
    try:
        move.finish()
    except LakemarkError as error:
        _log.warning("what was moved has left its files", location=source, reason=error.message)
    return answer


def delete_unless_shared(location: str, kept: Iterable[str], has_lake_table: Callable[[str], bool]) -> None:
    """Deletes the directory of something that was dropped, unless others have files in it.

    It stays if it contains one of the directories ``kept``, or files of a lake table: a wrong location must not cost a
    database. A failure is logged and not raised, as in Hive's service.
    """
    if location and not any(inside(directory, location) for directory in kept):
        if has_lake_table(location):
            _log.warning("what was dropped has left its files: a lake table has files there, too", location=location)
            return
        try:
            storage.delete_directory(location)
        except LakemarkError as error:
            _log.warning("what was dropped has left its files", reason=error.message)


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
