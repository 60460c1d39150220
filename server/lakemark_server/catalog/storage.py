"""Directories of databases and tables, on the file system that their URI names (one of pyarrow's)."""

from __future__ import annotations

import contextlib
import posixpath
import re
from pathlib import Path
from urllib.parse import unquote

from pyarrow import fs

from lakemark_core.errors import AlreadyExists, InvalidArgument, Unavailable

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")


def normal_uri(location: str) -> str:
    """``location`` as an absolute URI without a trailing slash: ``/a/b/`` -> ``file:/a/b`` (as Hadoop writes it)."""
    text = location.strip()
    if not text:
        raise InvalidArgument("the location is empty")
    if not _SCHEME.match(text):
        if not text.startswith("/"):
            raise InvalidArgument(f"location {location!r} is relative; give an absolute path or a URI")
        text = "file:" + text
    if text.startswith("file:"):
        return "file:" + posixpath.normpath("/" + text[len("file:") :].lstrip("/"))
    return text.rstrip("/")


def child(uri: str, *names: str) -> str:
    """The URI of something below a directory."""
    return "/".join((uri.rstrip("/"), *names))


def local_path(uri: str) -> Path | None:
    """The path of a ``file:`` URI; None for other schemes."""
    if uri.startswith("file:"):
        return Path("/" + uri[len("file:") :].lstrip("/"))
    return None


def _open(uri: str) -> tuple[fs.FileSystem, str]:
    path = local_path(uri)
    if path is not None:
        return fs.LocalFileSystem(), str(path)
    for hadoop, arrow in (("s3a:", "s3:"), ("s3n:", "s3:")):
        if uri.startswith(hadoop):
            uri = arrow + uri[len(hadoop) :]
    try:
        system, opened = fs.FileSystem.from_uri(uri)
    except (ValueError, OSError, ImportError) as error:
        raise Unavailable(f"the file system of {uri!r} cannot be reached: {error}", location=uri) from error
    return system, unquote(opened)


def is_directory(uri: str) -> bool:
    """Whether there is a directory. Raises Unavailable."""
    system, path = _open(uri)
    return bool(system.get_file_info(path).type == fs.FileType.Directory)


def is_empty(uri: str) -> bool:
    """Whether the directory has nothing in it or does not exist. Raises Unavailable."""
    system, path = _open(uri)
    try:
        return not system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    except OSError as error:
        raise Unavailable(f"directory {uri!r} cannot be read: {error}", location=uri) from error


def make_directory(uri: str) -> bool:
    """Makes the directory and its parents. Returns whether it was missing. Raises Unavailable."""
    system, path = _open(uri)
    try:
        info = system.get_file_info(path)
        if info.type == fs.FileType.Directory:
            return False
        system.create_dir(path, recursive=True)
    except OSError as error:
        raise Unavailable(f"directory {uri!r} cannot be made: {error}", location=uri) from error
    return True


def delete_directory(uri: str) -> None:
    """Deletes the directory with its content, if it exists. Raises Unavailable."""
    system, path = _open(uri)
    try:
        if system.get_file_info(path).type == fs.FileType.Directory:
            system.delete_dir(path)
    except OSError as error:
        raise Unavailable(f"directory {uri!r} cannot be deleted: {error}", location=uri) from error


def move_directory(source: str, target: str) -> bool:
    """Moves a directory within one file system and makes the parents. Returns False if there is no ``source``.

    Raises AlreadyExists if there is anything but an empty directory at ``target``, InvalidArgument for another file
    system, Unavailable.
    """
    system, path = _open(source)
    target_system, target_path = _open(target)
    if system != target_system:
        raise InvalidArgument(f"{source!r} cannot be moved to {target!r}: that is another file system")
    try:
        if system.get_file_info(path).type != fs.FileType.Directory:
            return False
        remove_if_empty(target)
        if system.get_file_info(target_path).type != fs.FileType.NotFound:
            raise AlreadyExists(f"the directory {target!r} exists already", location=target)
        system.create_dir(posixpath.dirname(target_path), recursive=True)
        system.move(path, target_path)
    except OSError as error:
        raise Unavailable(f"directory {source!r} cannot be moved to {target!r}: {error}", location=source) from error
    return True


def empty_directory(uri: str) -> None:
    """Deletes what is in the directory and keeps it. Raises Unavailable."""
    system, path = _open(uri)
    try:
        system.delete_dir_contents(path, missing_dir_ok=True)
    except OSError as error:
        raise Unavailable(f"directory {uri!r} cannot be emptied: {error}", location=uri) from error


def remove_if_empty(uri: str) -> None:
    """Removes a local directory if it is empty. Anything else stays."""
    path = local_path(uri)
    if path is not None:
        with contextlib.suppress(OSError):
            path.rmdir()
