"""The directories that statements write into: their names, and what the paths of files in them become. Pure.

``<table>/_doors/<session>/<schema id>-<version>-<ms>-<random>``. The name tells with which schema the files are written
and which version the statement may have read, without a look-up.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import secrets
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Final, Self

from lakemark_core.storage import join
from lakemark_core.types import ColumnValue, Schema, name_of_partition, values_of_partition

ROOT: Final = "_doors"
SUCCESS: Final = "_SUCCESS"
"""Spark's committers leave this file once all files of a job are in place."""
MARKER: Final = "_given"
"""A file that is in each directory when it is given, so that the directory exists on every store. A static INSERT
OVERWRITE deletes it."""

_TAIL: Final = re.compile(rf"/{ROOT}/([0-9a-f]{{24}})/(\d+-\d+-\d+-[0-9a-f]{{16}})/?")


@dataclass(frozen=True, slots=True)
class GivenDirectory:
    """``session``: to which it was given; ``name``: its own, unique in the session."""

    session: str
    name: str

    @classmethod
    def new(cls, session: str, schema_id: int, version: int, now_ms: int) -> Self:
        return cls(session, f"{schema_id}-{version}-{now_ms}-{secrets.token_hex(8)}")

    @property
    def schema_id(self) -> int:
        """With which schema files are written."""
        return int(self.name.split("-")[0])

    @property
    def version(self) -> int:
        """The latest version when it was given."""
        return int(self.name.split("-")[1])

    @property
    def given_ms(self) -> int:
        return int(self.name.split("-")[2])

    @property
    def path(self) -> str:
        """Relative to the table's location."""
        return f"{ROOT}/{self.session}/{self.name}"

    @property
    def request_id(self) -> str:
        """Of the commit that its files become."""
        return f"door-{self.session}-{self.name}"


def new_session() -> str:
    """A name for a session, that nobody can guess."""
    return secrets.token_hex(12)


def given_at(location: str) -> GivenDirectory | None:
    """The directory at a location, in whatever scheme; None if it is not one that statements are given."""
    match = _TAIL.search(location)
    return GivenDirectory(match[1], match[2]) if match is not None and match.end() == len(location) else None


def session_path(session: str) -> str:
    """The directory of all that a session is given, relative to the table's location."""
    return f"{ROOT}/{session}"


def data_paths(paths: Iterable[str]) -> list[str]:
    """Those of a listing that are no hidden files, which committers and this service keep beside the data, in order."""
    return sorted(path for path in paths if not any(_is_hidden(part) for part in path.split("/")))


def is_left_by_overwrite(entries: Set[str]) -> bool:
    """Whether a dynamic INSERT OVERWRITE may have ended in a directory with these entries: it leaves no _SUCCESS.

    Any other job looks like that for a moment, when its own temporary directory is deleted.
    """
    return SUCCESS not in entries and any("=" in one for one in entries) and not any(map(_is_temporary, entries))


def _is_temporary(entry: str) -> bool:
    return entry == "_temporary" or entry.startswith(".spark-staging")


def _is_hidden(part: str) -> bool:
    return part.startswith((".", "_")) and "=" not in part  # the name of a partition column may begin so


@dataclass(frozen=True, slots=True)
class StatementFile:
    """A file of a statement, and what becomes of it.

    ``source`` is relative to the directory that was given, ``target`` to the table's location: a directory of its own
    below the instant's. The same file always gets the same target, so that it can be found there after a move.
    """

    source: str
    target: str
    partition: tuple[ColumnValue, ...]
    group: str


def slice_of(source: str, instant: int, schema: Schema) -> StatementFile:
    """Raises InvalidArgument if the path does not name a partition of the table."""
    directory, name = posixpath.split(source)
    partition = values_of_partition(directory, schema)
    place = name_of_partition(partition, schema)
    group = hashlib.blake2b(join(place, name).encode(), digest_size=10).hexdigest()
    target = join(str(instant), place, group, name)
    return StatementFile(source, target, partition, group)
