"""Looks into the directories that statements write into."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor

from pyarrow import fs

from lakemark_core import storage
from lakemark_core.storage import has_directories, open_location, storage_error
from lakemark_server.doors.decisions import CompleteDirectory
from lakemark_server.doors.directories import (
    MARKER,
    SUCCESS,
    GivenDirectory,
    data_paths,
    given_at,
    is_left_by_overwrite,
    session_path,
)
from lakemark_server.doors.looks import EarlierLooks
from lakemark_server.doors.parts import in_parts


def give(location: str, directory: GivenDirectory) -> str:
    """Makes the directory below the table's location; returns where it is. Raises Unavailable, StorageRefused."""
    uri = storage.join(location, directory.path)
    system, path = open_location(uri)
    try:
        if has_directories(system):
            system.create_dir(path, recursive=True)
        with system.open_output_stream(posixpath.join(path, MARKER)):
            pass
    except OSError as error:
        raise storage_error(f"directory {uri!r} cannot be made", system, path, error) from error
    return uri


def given_directories(location: str, session: str) -> list[GivenDirectory]:
    """All that are still there of a session, in the order of their names. Raises Unavailable, StorageRefused."""
    uri = storage.join(location, session_path(session))
    system, path = open_location(uri)
    try:
        infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    except OSError as error:
        raise storage_error(f"directory {uri!r} cannot be listed", system, path, error) from error
    named = (given_at(f"/{session_path(session)}/{info.base_name.rstrip('/')}") for info in infos)
    return sorted((one for one in named if one is not None), key=lambda one: one.name)


def complete_directories(
    location: str, session: str, *, partitioned: bool, looks: EarlierLooks
) -> list[CompleteDirectory]:
    """Those of a session in which a job has ended, in the order of their names. Raises Unavailable, StorageRefused.

    ``partitioned``: also those that a dynamic INSERT OVERWRITE has left. Those about which it was decided, as
    ``looks`` knows, are left out. That is where this look is remembered, too.
    """
    uri = storage.join(location, session_path(session))
    system, path = open_location(uri)
    try:
        changed_ns: Mapping[str, int | None]
        if has_directories(system):
            changed_ns = _changed_ns(system, path)
            named = _by_directory(system, path, looks.to_look_at(changed_ns), whole=partitioned)
        else:
            entries_of = _by_key(uri)
            changed_ns = dict.fromkeys(entries_of)
            named = {name: entries_of[name] for name in looks.to_look_at(changed_ns)}
    except OSError as error:
        raise storage_error(f"directory {uri!r} cannot be listed", system, path, error) from error
    complete = []
    for name, entries in sorted(named.items()):
        directory = given_at(f"/{session_path(session)}/{name}")
        if directory is not None and SUCCESS in entries:
            complete.append(CompleteDirectory(directory, emptied=MARKER not in entries))
        elif directory is not None and partitioned and is_left_by_overwrite(entries):
            complete.append(CompleteDirectory(directory, emptied=True, marked=False))
    looks.note_unended(named.keys() - {one.directory.name for one in complete}, changed_ns)
    return complete


def written_ms(location: str, paths: Sequence[str]) -> list[int | None]:
    """When these files were written, by the store's own clock; None for one that is not there.

    ``paths`` are relative to the location. Raises Unavailable, StorageRefused.
    """
    if not paths:
        return []
    system, root = open_location(location)
    try:
        infos = system.get_file_info([posixpath.join(root, path) for path in paths])
    except OSError as error:
        raise storage_error(f"files below {location!r} cannot be looked at", system, root, error) from error
    return [None if info.mtime_ns is None else int(info.mtime_ns // 1_000_000) for info in infos]


def holds_rows(location: str, directory: GivenDirectory) -> bool:
    """Whether files of a statement are in their places there. Raises Unavailable, StorageRefused."""
    return bool(data_paths(path for path, _ in storage.list_files(storage.join(location, directory.path))))


def delete_rows(location: str, directory: GivenDirectory) -> None:
    """Deletes the files of a statement, and no other ones of the directory. Raises Unavailable, StorageRefused."""
    uri = storage.join(location, directory.path)
    system, path = open_location(uri)
    try:
        infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        for info in infos:
            if not data_paths([info.base_name]):
                continue
            if info.type == fs.FileType.Directory:
                storage.delete_directory(storage.join(uri, info.base_name))
            else:
                system.delete_file(info.path)
    except OSError as error:
        raise storage_error(f"files in {uri!r} cannot be deleted", system, path, error) from error


def _changed_ns(system: fs.FileSystem, path: str) -> dict[str, int | None]:
    """When each directory below was changed last."""
    infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return {info.base_name: info.mtime_ns for info in infos if info.type == fs.FileType.Directory}


def _by_directory(system: fs.FileSystem, path: str, names: Sequence[str], *, whole: bool) -> dict[str, set[str]]:
    """The names of what is in each of these; not ``whole``: only of what tells whether a job has ended."""
    if whole:
        return {
            name: {
                inner.base_name
                for inner in system.get_file_info(fs.FileSelector(posixpath.join(path, name), allow_not_found=True))
            }
            for name in names
        }
    wanted = [(name, file) for name in names for file in (SUCCESS, MARKER)]
    there = system.get_file_info([posixpath.join(path, name, file) for name, file in wanted]) if wanted else []
    files: dict[str, set[str]] = {name: set() for name in names}
    for (name, file), info in zip(wanted, there, strict=True):
        if info.type == fs.FileType.File:
            files[name].add(file)
    return files


def _by_key(uri: str) -> dict[str, set[str]]:
    """On a store without directories one listing of everything takes fewer requests."""
    entries: dict[str, set[str]] = {}
    for path, _ in storage.list_files(uri):
        name, _, rest = path.partition("/")
        entries.setdefault(name, set()).add(rest.partition("/")[0])
    return entries


def move(location: str, pairs: Iterable[tuple[str, str]], pool: Executor) -> None:
    """Moves files, both paths relative to ``location``; those that were moved before are left out by the caller.

    A file that another process moves at the same time is as good as moved. Raises Unavailable, StorageRefused; nothing
    is moved any more then.
    """
    system, root = open_location(location)

    def move_one(pair: tuple[str, str]) -> None:
        start, end = (posixpath.join(root, path) for path in pair)
        try:
            if has_directories(system):
                system.create_dir(posixpath.dirname(end), recursive=True)
            system.move(start, end)
        except OSError as error:
            if system.get_file_info(end).type != fs.FileType.File:
                source, target = pair
                raise storage_error(f"{source} cannot be moved to {target}", system, start, error) from error

    in_parts(pool, move_one, pairs)
