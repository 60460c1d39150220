"""Locations as texts: their normal form, their parts, and locations below them."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lakemark_core.errors import InvalidArgument

_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_S3_SCHEMES: Final = ("s3", "s3a", "s3n")
_WITH_DIRECTORIES: Final = ("file", "hdfs", "viewfs")


def normal_uri(location: str) -> str:
    """``location`` as an absolute URI without a trailing slash: ``/a/b/`` -> ``file:/a/b`` (as Hadoop writes it).

    Raises InvalidArgument if it is empty or relative.
    """
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


def join(location: str, *parts: str) -> str:
    """A location or path below another one."""
    return "/".join((location.rstrip("/"), *(part.strip("/") for part in parts if part)))


def scheme_of(uri: str) -> str:
    """In lower case; "" for a path without one."""
    match = _SCHEME.match(uri)
    return match[1].lower() if match else ""


def is_s3(uri: str) -> bool:
    return scheme_of(uri) in _S3_SCHEMES


def keeps_directories(uri: str) -> bool:
    """Whether the store has directories of their own; elsewhere one is only the beginning that keys have in common."""
    return (scheme_of(uri) or "file") in _WITH_DIRECTORIES


def local_path(uri: str) -> Path | None:
    """The path of a ``file:`` URI; None for other schemes."""
    if uri.startswith("file:"):
        return Path("/" + uri[len("file:") :].lstrip("/"))
    return None


@dataclass(frozen=True, slots=True)
class S3Place:
    """A bucket and a key in it, without a slash at its end; the key "" is the bucket itself."""

    bucket: str
    key: str

    @classmethod
    def of(cls, uri: str) -> S3Place:
        """Raises InvalidArgument if no bucket is named."""
        bucket, _, key = uri.partition(":")[2].removeprefix("//").partition("/")
        if not bucket:
            raise InvalidArgument(f"location {uri!r} names no bucket")
        return cls(bucket, key.strip("/"))

    @property
    def prefix(self) -> str:
        """The beginning of all keys below it."""
        return f"{self.key}/" if self.key else ""

    @property
    def path(self) -> str:
        """As pyarrow's file system has it."""
        return f"{self.bucket}/{self.key}" if self.key else self.bucket


def authority_and_path(uri: str) -> tuple[str, str]:
    """``hdfs://host:8020/a/b`` -> ``("hdfs://host:8020/", "a/b")``."""
    scheme, _, rest = uri.partition(":")
    authority, _, path = rest.removeprefix("//").partition("/") if rest.startswith("//") else ("", "", rest.lstrip("/"))
    return f"{scheme.lower()}://{authority}/", path.strip("/")
