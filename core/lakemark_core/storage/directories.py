"""Directories: made, looked at, moved and deleted, on stores that have such and on those that have only keys."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pyarrow import fs

from lakemark_core.errors import AlreadyExists, InvalidArgument, LakemarkError, Unavailable
from lakemark_core.storage.calls import short_call
from lakemark_core.storage.connections import open_location, storage_error
from lakemark_core.storage.s3 import S3Directory
from lakemark_core.storage.uris import is_hdfs, is_s3, join, local_path

Check = Callable[[], None]


def _always() -> None:
    """Nothing stops it."""


def is_directory(uri: str) -> bool:
    """On S3: whether there is anything in it. Raises Unavailable, StorageRefused."""
    return short_call(uri, f"directory {uri!r} cannot be looked at", lambda: _is_directory(uri))


def _is_directory(uri: str) -> bool:
    if is_s3(uri):
        return S3Directory(uri).is_there()
    system, path = open_location(uri)
    try:
        return bool(system.get_file_info(path).type == fs.FileType.Directory)
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise Unavailable(f"directory {uri!r} cannot be looked at: {error}", location=uri) from error


def is_empty(uri: str) -> bool:
    """Whether there is nothing in the directory; also if there is no directory. Raises Unavailable, StorageRefused."""
    return short_call(uri, f"directory {uri!r} cannot be read", lambda: _is_empty(uri))


def _is_empty(uri: str) -> bool:
    if is_s3(uri):
        return S3Directory(uri).is_empty()
    system, path = open_location(uri)
    try:
        return not system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise Unavailable(f"directory {uri!r} cannot be read: {error}", location=uri) from error


def list_files(uri: str) -> Iterator[tuple[str, int]]:
    """The files in the directory and all below it: each path, relative to ``uri``, and its size in bytes.

    None if there is no such directory. On S3 one request for each 1,000 keys. Raises Unavailable, StorageRefused.
    """
    system, path = open_location(uri)
    try:
        infos = system.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise storage_error(f"directory {uri!r} cannot be listed", system, path, error) from error
    start = len(path.rstrip("/")) + 1
    for info in infos:
        if info.type == fs.FileType.File:
            yield info.path[start:], info.size


def make_directory(uri: str) -> bool:
    """Makes the directory and its parents; whether it was missing. Raises Unavailable, StorageRefused.

    On S3 nothing is made: it is only checked that the bucket can be listed.
    """
    return short_call(uri, f"directory {uri!r} cannot be made", lambda: _make_directory(uri))


def _make_directory(uri: str) -> bool:
    if is_s3(uri):
        S3Directory(uri).check_bucket()
        return False
    system, path = open_location(uri)
    try:
        info = system.get_file_info(path)
        if info.type == fs.FileType.Directory:
            return False
        system.create_dir(path, recursive=True)
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise Unavailable(f"directory {uri!r} cannot be made: {error}", location=uri) from error
    return True


def delete_directory(uri: str, may_go_on: Check = _always) -> None:
    """Deletes the directory and what is in it; nothing happens if it is not there. Raises Unavailable, StorageRefused.

    On S3 multipart uploads that go on in it end, too. ``may_go_on`` is called before each part, and stops the deletion
    by what it raises.
    """
    if is_s3(uri):
        S3Directory(uri).delete(may_go_on)
        return
    system, path = open_location(uri)
    try:
        if system.get_file_info(path).type == fs.FileType.Directory:
            _delete_inner(uri, system, path, may_go_on)
            may_go_on()
            system.delete_dir(path)
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise Unavailable(f"directory {uri!r} cannot be deleted: {error}", location=uri) from error


def delete_with_directories(uri: str, paths: Iterable[str]) -> dict[str, LakemarkError]:
    """Deletes files, each of which is alone in its directory, with these directories; by path, why some are left.

    ``paths`` are relative to ``uri``. Those that are not there are as good as deleted. On S3 a request deletes
    ``KEYS_A_REQUEST`` keys: of each file its own and the marker of its directory, and that of the first directory on
    the way to it, which Hadoop's committers leave there.
    """
    left: dict[str, LakemarkError] = {}
    if is_s3(uri):
        directory = S3Directory(uri)
        file_of = {path: path for path in paths}
        # Markers come after what lies in their directories, which some servers really have.
        file_of |= {f"{posixpath.dirname(path)}/": path for path in file_of}
        file_of |= {f"{path.partition('/')[0]}/": path for path in file_of.values()}
        prefix = directory.place.prefix
        for key, error in directory.delete_keys([prefix + key for key in file_of]).items():
            left[file_of[key.removeprefix(prefix)]] = error
        return left
    for path in paths:
        try:
            delete_directory(join(uri, posixpath.dirname(path)))
        except LakemarkError as error:
            left[path] = error
    return left


def _delete_inner(uri: str, system: fs.FileSystem, path: str, may_go_on: Check) -> None:
    """Deletes the directories in a directory, one after the other. HDFS deletes all of it by one request later."""
    if is_hdfs(uri):
        return
    local = local_path(uri)
    if local is not None:
        # A link is deleted with the directory that it is in, and nothing that it points at.
        inner = [str(one) for one in local.iterdir() if one.is_dir() and not one.is_symlink()] if local.is_dir() else []
    else:
        infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        inner = [info.path for info in infos if info.type == fs.FileType.Directory]
    for one in inner:
        may_go_on()
        system.delete_dir(one)


@dataclass(frozen=True, slots=True)
class Move:
    """A directory on the way from ``source`` to ``target``, where it can be read already.

    Either ``finish`` or ``undo`` ends it. ``happened``: there was something to move. ``may_go_on``: as in
    ``begin_move``.
    """

    source: str
    target: str
    happened: bool
    may_go_on: Check = _always

    def finish(self) -> None:
        """On S3 deletes what was copied, and nothing that came later. Raises Unavailable, StorageRefused."""
        if self.happened and is_s3(self.source):
            source, copy = S3Directory(self.source), S3Directory(self.target)
            source.delete_copied(copy, self.may_go_on, copies=False)

    def undo(self) -> None:
        """Brings everything back, also if somebody has made the source again. Raises Unavailable, StorageRefused.

        On S3 it deletes the copies. Files stay at the target that have a name which is taken at the source by now.
        """
        if not self.happened:
            return
        if is_s3(self.target):
            source, copy = S3Directory(self.source), S3Directory(self.target)
            source.delete_copied(copy, self.may_go_on, copies=True)
            return
        system, target = open_location(self.target)
        _, source_path = open_location(self.source)
        try:
            _move_into(system, target, source_path, self.may_go_on)
        except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
            raise Unavailable(
                f"directory {self.target!r} cannot be moved back to {self.source!r}: {error}", location=self.target
            ) from error


def _move_into(system: fs.FileSystem, path: str, target: str, may_go_on: Check) -> None:
    """Moves a directory to where there may be one already, which then gets what it does not have."""
    here, there = system.get_file_info([path, target])
    if here.type != fs.FileType.Directory:
        return
    if there.type == fs.FileType.NotFound:
        system.create_dir(posixpath.dirname(target), recursive=True)
        may_go_on()
        system.move(path, target)
        return
    for info in system.get_file_info(fs.FileSelector(path)):
        inner = posixpath.join(target, info.base_name)
        if info.type == fs.FileType.Directory:
            _move_into(system, info.path, inner, may_go_on)
        elif system.get_file_info(inner).type == fs.FileType.NotFound:
            may_go_on()
            system.move(info.path, inner)
    if not system.get_file_info(fs.FileSelector(path)):
        system.delete_dir(path)


def begin_move(source: str, target: str, may_go_on: Check = _always) -> Move:
    """Moves a directory within one file system, making the parents. On S3 it is copied, object by object.

    ``may_go_on`` is called before each part, and stops the move by what it raises.

    Raises AlreadyExists if there is something at ``target`` (an empty directory may be), Unavailable, StorageRefused,
    InvalidArgument if ``target`` is on another file system.
    """
    system, path = open_location(source)
    target_system, target_path = open_location(target)
    if system != target_system:
        raise InvalidArgument(f"{source!r} cannot be moved to {target!r}: that is another file system")
    if is_s3(source):
        if not is_empty(target):
            raise _taken(target)
        return Move(source, target, S3Directory(source).copy_to(S3Directory(target), may_go_on), may_go_on)
    try:
        if system.get_file_info(path).type != fs.FileType.Directory:
            return Move(source, target, happened=False, may_go_on=may_go_on)
        remove_if_empty(target)
        if system.get_file_info(target_path).type != fs.FileType.NotFound:
            raise _taken(target)
        system.create_dir(posixpath.dirname(target_path), recursive=True)
        may_go_on()
        system.move(path, target_path)
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise Unavailable(f"directory {source!r} cannot be moved to {target!r}: {error}", location=source) from error
    return Move(source, target, happened=True, may_go_on=may_go_on)


def _taken(target: str) -> AlreadyExists:
    return AlreadyExists(f"the directory {target!r} exists already", location=target)


def empty_directory(uri: str, may_go_on: Check = _always) -> None:
    """Deletes what is in the directory and keeps it where there are directories. Raises Unavailable, StorageRefused.

    ``may_go_on`` is called before each part, and stops it by what it raises.
    """
    if is_s3(uri):
        S3Directory(uri).delete(may_go_on, uploads=False)
        return
    system, path = open_location(uri)
    try:
        _delete_inner(uri, system, path, may_go_on)
        may_go_on()
        system.delete_dir_contents(path, missing_dir_ok=True)
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise Unavailable(f"directory {uri!r} cannot be emptied: {error}", location=uri) from error


def remove_if_empty(uri: str) -> bool:
    """Removes an empty local directory; anything else stays. Returns whether it was there and is gone."""
    path = local_path(uri)
    if path is not None:
        with contextlib.suppress(OSError):
            path.rmdir()
            return True
    return False
