"""Locations as texts: their normal form, their parts, and locations below them."""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

from lakemark_core.errors import InvalidArgument
from lakemark_core.redaction import HIDDEN

_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_S3_SCHEMES: Final = ("s3", "s3a", "s3n")
_HDFS_SCHEMES: Final = ("hdfs", "viewfs")
_WITH_DIRECTORIES: Final = ("file", *_HDFS_SCHEMES)
_CONTAINER_SCHEMES: Final = ("abfs", "abfss", "wasb", "wasbs")  # the container stands before the @
_MARKS: Final = {"?": "query", "#": "fragment"}
_CHARS_SHOWN: Final = 100
LOCATION_CHARS_MAX: Final = 4_000
_ENGINE_VARIABLE: Final = "LAKEMARK_ENGINE_SCHEMES"

ENGINE_SCHEMES: Final[Mapping[str, str]] = MappingProxyType({"s3": "s3a"})
"""Spark and Hive with Hadoop's own file systems read S3 as ``s3a:`` and in no other way."""


def normal_uri(location: str) -> str:
    """``location`` as an absolute URI without a trailing slash: ``/a/b/`` -> ``file:/a/b`` (as Hadoop writes it).

    Raises InvalidArgument if it is empty or relative, or has what no location may have (``check_location``).
    """
    text = location.strip()
    check_location(text)
    return _normal(text)


def canonical_uri(location: str) -> str:
    """The normal form in which all names of a place are the same: ``s3a:`` and ``s3n:`` are ``s3:``.

    Raises InvalidArgument as ``normal_uri``.
    """
    return _as_s3(normal_uri(location))


def stored_uri(location: str) -> str:
    """``canonical_uri`` of a location that the store has: earlier builds took some that are refused now.

    Raises InvalidArgument if it is relative.
    """
    return _as_s3(_normal(location.strip()))


def check_location(location: str) -> None:
    """Refuses what names a place together with how to reach it, and what could not be kept.

    Credentials and endpoints are settings of the service: a location could otherwise send its requests, signed with its
    keys, to any host. A query or a fragment would give one place several names.

    Raises InvalidArgument.
    """
    if not location:
        raise InvalidArgument("the location is empty")
    if len(location) > LOCATION_CHARS_MAX:
        raise InvalidArgument(
            f"location {location[:_CHARS_SHOWN]!r}… has {len(location)} characters; at most {LOCATION_CHARS_MAX}"
        )
    if not location.isprintable():
        raise InvalidArgument(f"location {location!r} has a control character, or another that cannot be printed")
    user, at, after = _authority(location).rpartition("@")
    if at and (scheme_of(location) not in _CONTAINER_SCHEMES or ":" in user):
        raise InvalidArgument(
            f"location '{location.partition(':')[0]}://{HIDDEN}@{after}' has a user, key or password before the @; "
            "leave it out: credentials are settings of the service (docs/storage.md), and whoever sees the table sees "
            "them"
        )
    if scheme_of(location) not in ("", "file") and not location.partition(":")[2].startswith("/"):
        raise InvalidArgument(f"location {location!r} is relative: there is no / after {scheme_of(location)}:")
    if scheme_of(location) not in ("", "file") and {".", ".."} & set(location.split("/")):
        raise InvalidArgument(
            f"location {location!r} has a part '.' or '..', which is a name like any other in some stores; write it "
            "without"
        )
    mark = next((mark for mark in "?#" if mark in location), "")
    if mark:
        raise InvalidArgument(
            f"location {location.partition(mark)[0]!r} goes on with a {_MARKS[mark]} ({mark}); leave it out: how a "
            "store is reached is a setting of the service, and names of directories have no such character"
        )


def _authority(location: str) -> str:
    """What may hold a user: a secret of AWS may have slashes in it, and then it ends behind them."""
    if scheme_of(location) in ("", "file"):
        return ""
    rest = location.partition(":")[2].lstrip("/")
    first = rest.partition("/")[0]
    _, colon, after = first.partition(":")
    is_port = after.isdigit() and not is_s3(location)
    return rest if "@" not in first and colon and not is_port and "@" in rest else first


def _normal(text: str) -> str:
    if not _SCHEME.match(text):
        if not text.startswith("/"):
            raise InvalidArgument(f"location {text!r} is relative; give an absolute path or a URI")
        text = "file:" + text
    if text.startswith("file:"):
        return "file:" + posixpath.normpath("/" + text[len("file:") :].lstrip("/"))
    return text.rstrip("/")


def is_same_place(first: str, second: str) -> bool:
    """Of two locations in normal form."""
    return _as_s3(first) == _as_s3(second)


def place_of(location: str) -> str:
    """What tells directories apart, whatever they are called; not a location to open. Without a slash at its end.

    Names of one directory are one place: with another alias of the scheme, with ``%20`` for a space, with ``..`` or
    ``//`` in the path, with the default port, and on the local disk by symbolic links as they are now. Two directories
    are one place only if their names differ in this alone. The root of local files is ``file:``. Raises
    InvalidArgument if it is empty or relative.
    """
    uri = stored_uri(location)  # what a client sends was checked before, and what the store has need not be legal
    scheme, _, rest = uri.partition(":")
    scheme = scheme.lower()
    authority = ""
    if scheme != "file" and rest.startswith("//"):
        authority, _, rest = rest[2:].partition("/")
        authority = "//" + authority.lower().removesuffix(":8020" if scheme in _HDFS_SCHEMES else "")
    # A path that has an escaped slash in a name must not seem to be deeper than it is.
    path = "/".join(map(_decoded, rest.split("/")))
    path = posixpath.normpath("/" + path.strip("/"))
    if scheme == "file" and "\0" not in path:
        path = os.path.realpath(path)
    return f"{scheme}:{authority}{path}".rstrip("/")


def _decoded(part: str) -> str:
    decoded = unquote(part).replace("/", "%2F")
    return part if decoded in (".", "..") else decoded  # escaped, these are names like any others


def places_above(place: str) -> list[str]:
    """The places that contain a place, the innermost first, up to the root, the host or the bucket."""
    head, rest = _root_of(place), place[len(_root_of(place)) :]
    parts = rest.split("/")
    return [head + "/".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]


def is_within(place: str, other: str) -> bool:
    """Whether the place is the other one, or lies in it."""
    return place == other or place.startswith(other + "/")


def _root_of(place: str) -> str:
    scheme, _, rest = place.partition(":")
    if not rest.startswith("//"):
        return f"{scheme}:"
    return f"{scheme}://{rest[2:].partition('/')[0]}"


def spellings(location: str) -> tuple[str, ...]:
    """All names of a place in normal form: of one on S3 with each alias of the scheme, the canonical one first."""
    if not is_s3(location):
        return (location,)
    return tuple(f"{scheme}{location[location.index(':') :]}" for scheme in _S3_SCHEMES)


def lies_in(location: str, directory: str) -> bool:
    """Whether ``location`` is ``directory`` or lies below it, both in normal form; nothing lies in ""."""
    place, above = _as_s3(location), _as_s3(directory)
    return bool(above) and (place == above or place.startswith(above + "/"))


def engine_schemes(environment: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """In which schemes engines read locations, by those that they have: ``LAKEMARK_ENGINE_SCHEMES``, a JSON object.

    Raises InvalidArgument.
    """
    text = environment.get(_ENGINE_VARIABLE, "")
    if not text:
        return ENGINE_SCHEMES
    try:
        schemes = json.loads(text)
    except ValueError:
        schemes = None
    if not isinstance(schemes, dict) or not all(isinstance(scheme, str) for scheme in schemes.values()):
        raise InvalidArgument(f'{_ENGINE_VARIABLE} is {text!r}, and should be a JSON object such as {{"s3": "s3a"}}')
    return schemes


def in_scheme(location: str, schemes: Mapping[str, str]) -> str:
    """``location`` with another scheme, if ``schemes`` has one for its own."""
    scheme = scheme_of(location)
    return schemes[scheme] + location[len(scheme) :] if scheme in schemes else location


def _as_s3(uri: str) -> str:
    return f"s3{uri[uri.index(':') :]}" if is_s3(uri) else uri


def join(location: str, *parts: str) -> str:
    """A location or path below another one."""
    return "/".join((location.rstrip("/"), *(part.strip("/") for part in parts if part)))


def scheme_of(uri: str) -> str:
    """In lower case; "" for a path without one."""
    match = _SCHEME.match(uri)
    return match[1].lower() if match else ""


def is_s3(uri: str) -> bool:
    return scheme_of(uri) in _S3_SCHEMES


def is_hdfs(uri: str) -> bool:
    return scheme_of(uri) in _HDFS_SCHEMES


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
