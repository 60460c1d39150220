"""Directories that are made before a transaction and deleted after it, so that a failure leaves nothing behind."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from typing import TypeVar

from lakemark.errors import AlreadyExists, LakemarkError, UnknownOutcome
from lakemark_server.catalog import storage
from lakemark_server.catalog.warehouse_records import inside, parents_between

T = TypeVar("T")


def with_directories(locations: Iterable[str], change: Callable[[], T]) -> T:
    """Makes the directories, then runs ``change``; if that fails, those that were made and are empty are removed."""
    made: list[str] = []
    try:
        for location in locations:
            if location:
                made += _made(location)
        return change()
    except LakemarkError as error:
        # Whoever was first may be using a directory by now, and so may a change of unknown outcome.
        if not isinstance(error, AlreadyExists | UnknownOutcome):
            for location in reversed(made):
                storage.remove_if_empty(location)
        raise


def _made(location: str) -> list[str]:
    """Makes a directory; which ones that took, the outermost first."""
    missing: list[str] = []
    parent = location
    # Up to the root, or the bucket.
    while parent.partition(":")[2].strip("/") and not storage.is_directory(parent):
        missing.append(parent)
        parent = posixpath.dirname(parent)
    if missing:
        storage.make_directory(location)
    return missing[::-1]


def with_moved_directory(source: str, target: str, change: Callable[[], T]) -> T:
    """Moves the directory, then runs ``change``; if that fails, the directory goes back.

    Raises AlreadyExists if there is something at ``target``, Unavailable, and what ``change`` raises.
    """
    moved = storage.move_directory(source, target)
    try:
        return change()
    except UnknownOutcome:
        raise
    except LakemarkError:
        if moved:
            storage.move_directory(target, source)
        raise


def delete_unless_shared(location: str, kept: Iterable[str]) -> None:
    """Deletes a directory, unless one of ``kept`` is it or lies in it: a wrong location must not cost a database."""
    if location and not any(inside(directory, location) for directory in kept):
        storage.delete_directory(location)


def remove_empty_parents(location: str, top: str) -> None:
    """Removes the directories above ``location`` that are empty, below ``top``."""
    for parent in parents_between(location, top):
        storage.remove_if_empty(parent)
