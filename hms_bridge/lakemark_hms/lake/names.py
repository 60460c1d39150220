"""Names of snapshots in SQL, and of the hidden tables that views read: ``t@v12@files`` and so on.

``t@ro``, ``t@v12@ro`` … are read-optimized: base files without their deltas. How a snapshot is named is in
``lakemark_core.snapshot_names``, for the command line too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast, get_args

from lakemark_core.errors import InvalidName
from lakemark_core.snapshot_names import FORMS, is_pinned, parse_parts
from lakemark_server.snapshots.service import SnapshotReference

FileKinds: TypeAlias = Literal["files", "bases", "deltas"]
"""Which files a hidden table has: all that are rows of the table as they are; base files that deltas lie on; deltas."""

OPTIMIZED_SUFFIX: Final = "ro"
_KINDS: Final = get_args(FileKinds)
_GROUP = re.compile(r"s(\d{1,9})")


@dataclass(frozen=True, slots=True)
class SnapshotName:
    """``table`` at a snapshot; ``files`` if the hidden table of its file slices is meant.

    ``kinds`` says which files of the snapshot a hidden table has; ``optimized`` that there are base files only.
    ``reference`` is a branch or a tag ("": main), or a branch's key. With ``since`` only the files that were added
    after that version; with ``group`` only those whose schemas are read as this one is (``lake.scans``).
    """

    table: str
    at: SnapshotReference
    files: bool = False
    since: int | None = None
    group: int | None = None
    reference: str = ""
    kinds: FileKinds = "files"
    optimized: bool = False


def hidden_name(
    table: str,
    version: int,
    since: int | None = None,
    group: int | None = None,
    branch: str = "",
    kinds: FileKinds = "files",
    *,
    optimized: bool = False,
) -> str:
    """The table of a version's file slices (or of those added after ``since``, or of a group), which a view reads.

    ``branch`` is the key of the branch that holds the version; "": main.
    """
    versions = f"v{version}" if since is None else f"v{since}..v{version}"
    name = f"{table}@{branch}@{versions}" if branch else f"{table}@{versions}"
    name += f"@{OPTIMIZED_SUFFIX}@{kinds}" if optimized else f"@{kinds}"
    return name if group is None else f"{name}@s{group}"


def parse(name: str) -> SnapshotName:
    """What a name in SQL stands for. Raises InvalidName if what follows an @ is no snapshot."""
    table, *rest = name.lower().split("@")
    group = _GROUP.fullmatch(rest[-1]) if rest[-2:-1] and rest[-2] in _KINDS else None
    number = int(group.group(1)) if group else None
    if group:
        rest.pop()
    files = bool(rest) and rest[-1] in _KINDS
    kinds = cast(FileKinds, rest.pop()) if files else "files"
    optimized = rest[-1:] == [OPTIMIZED_SUFFIX]
    if optimized:
        rest.pop()
    # A view cannot rely on the files of a name that moves to later versions.
    if files and not (rest and is_pinned(rest[-1])):
        raise InvalidName(f"{name!r} names no snapshot; write {FORMS}", name=name)
    part = parse_parts(name, rest)
    at = SnapshotReference(version=part.version, timestamp_ms=part.timestamp_ms)
    return SnapshotName(table, at, files, part.since, number, part.reference, kinds, optimized)
