"""Names of snapshots in SQL: ``t``, ``t@v12``, ``t@2026-11-20t10:00:00``, ``t@v10..v12``, ``t@dev``, ``t@dev@v12`` …,
and what they hide.

Spark lower-cases table names, so ``T`` and ``Z`` of a timestamp come as ``t`` and ``z``. Times without a zone are UTC.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, replace
from typing import Final

from lakemark.errors import InvalidName
from lakemark_server.snapshot.service import At

FILES_SUFFIX: Final = "files"
_GROUP = re.compile(r"s(\d{1,9})")
_VERSION = re.compile(r"v(\d{1,18})")
_RANGE = re.compile(r"v(\d{1,18})\.\.v(\d{1,18})")
_PINNED = re.compile(r"v\d{1,18}(\.\.v\d{1,18})?")
_TIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[t ](\d{2}:\d{2})(:\d{2})?(\.\d{1,6})?)?(z|[+-]\d{2}:?\d{2})?", re.IGNORECASE
)
# A branch or tag, or the key of a branch, which stays its own when its name is used again.
_REFERENCE = re.compile(r"[a-z_][a-z0-9_.-]*(#\d{1,18})?")
_FORMS: Final = (
    "t@v12 (a version), t@2026-11-20t10:00:00 (the last version committed at or before a time, UTC), t@v10..v12 (the "
    "rows that came with versions 11 and 12), t@dev (a branch or tag), or t@dev@v12 and so on for a branch"
)


@dataclass(frozen=True, slots=True)
class SnapshotName:
    """``table`` at a snapshot; ``files`` if the hidden table of its file slices is meant.

    ``reference`` is a branch or a tag ("": main), or a branch's key. With ``since`` only the files that were added
    after that version; with ``group`` only those whose schemas are read as this one is (``lake.scans``).
    """

    table: str
    at: At
    files: bool = False
    since: int | None = None
    group: int | None = None
    reference: str = ""


def hidden_name(table: str, version: int, since: int | None = None, group: int | None = None, branch: str = "") -> str:
    """The table of a version's file slices (or of those added after ``since``, or of a group), which a view reads.

    ``branch`` is the key of the branch that holds the version; "": main.
    """
    versions = f"v{version}" if since is None else f"v{since}..v{version}"
    name = f"{table}@{branch}@{versions}" if branch else f"{table}@{versions}"
    name += f"@{FILES_SUFFIX}"
    return name if group is None else f"{name}@s{group}"


def parse(name: str) -> SnapshotName:
    """Raises InvalidName for what follows an @ and is no snapshot."""
    table, *rest = name.lower().split("@")
    group = _GROUP.fullmatch(rest[-1]) if FILES_SUFFIX in rest[:-1] else None
    number = int(group.group(1)) if group else None
    if group:
        rest.pop()
    files = rest[-1:] == [FILES_SUFFIX]
    if files:
        rest.pop()
    reference = rest.pop(0) if rest and _is_reference(rest[0]) else ""
    wanted = SnapshotName(table, At(), files, group=number, reference=reference)
    # The files of what moves on are no name that a view could rely on.
    if len(rest) > 1 or (files and not (rest and _PINNED.fullmatch(rest[0]))):
        raise InvalidName(f"{name!r} names no snapshot; write {_FORMS}", name=name)
    return _at(name, rest[0], wanted) if rest else wanted


def _is_reference(text: str) -> bool:
    return _REFERENCE.fullmatch(text) is not None and _PINNED.fullmatch(text) is None


def _at(name: str, text: str, wanted: SnapshotName) -> SnapshotName:
    increment = _RANGE.fullmatch(text)
    if increment:
        since, version = map(int, increment.groups())
        if since > version:
            raise InvalidName(f"{name!r}: version {since} is not before version {version}", name=name)
        return replace(wanted, at=At(version=version), since=since)
    version_text = _VERSION.fullmatch(text)
    if version_text:
        return replace(wanted, at=At(version=int(version_text.group(1))))
    time = _TIME.fullmatch(text)
    if time:
        return replace(wanted, at=At(timestamp_ms=_milliseconds(text, time)))
    raise InvalidName(f"'@{text}' is no snapshot; write {_FORMS}", name=text)


def _milliseconds(reference: str, match: re.Match[str]) -> int:
    day, minute, second, fraction, zone = match.groups()
    text = f"{day}T{minute or '00:00'}{second or ':00'}{fraction or ''}{zone.upper() if zone else '+00:00'}"
    try:
        return int(dt.datetime.fromisoformat(text).timestamp() * 1_000)
    except (ValueError, OverflowError) as error:
        raise InvalidName(f"'@{reference}' is not a time: {error}", name=reference) from error
