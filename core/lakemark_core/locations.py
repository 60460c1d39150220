"""Locations of tables as file systems of pyarrow: local paths, ``file:`` URIs, S3, GCS, HDFS."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from pyarrow import fs

from lakemark_core.errors import Unavailable

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")


def open_location(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a location and the path in it.

    A ``file:`` location is a plain path behind its scheme, as Hadoop writes it: ``%`` and spaces stand for themselves.
    Raises Unavailable if pyarrow cannot reach that file system.
    """
    if not _SCHEME.match(uri):
        return fs.LocalFileSystem(), str(Path(uri).absolute())
    if uri.startswith("file:"):
        return fs.LocalFileSystem(), "/" + uri.removeprefix("file:").lstrip("/")
    for hadoop, arrow in (("s3a:", "s3:"), ("s3n:", "s3:")):
        if uri.startswith(hadoop):
            uri = arrow + uri.removeprefix(hadoop)
    try:
        system, path = fs.FileSystem.from_uri(uri)
    except (ValueError, OSError, ImportError) as error:
        raise Unavailable(f"the file system of {uri!r} cannot be reached from here: {error}", location=uri) from error
    return system, unquote(path)


def join(location: str, *parts: str) -> str:
    """A location or path below another one."""
    return "/".join((location.rstrip("/"), *(part.strip("/") for part in parts if part)))
