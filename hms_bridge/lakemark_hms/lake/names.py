"""Names of snapshots in SQL: ``t``, ``t@v12``, ``t@2026-11-20t10:00:00``, ``t@v10..v12``, and what they hide.

Spark lower-cases table names, so ``T`` and ``Z`` of a timestamp come as ``t`` and ``z``. Times without a zone are UTC.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Final

from lakemark.errors import InvalidName
from lakemark_server.snapshot.service import At

FILES_SUFFIX: Final = "files"
_GROUP = re.compile(r"s(\d{1,9})")
_VERSION = re.compile(r"v(\d{1,18})")
_RANGE = re.compile(r"v(\d{1,18})\.\.v(\d{1,18})")
_TIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[t ](\d{2}:\d{2})(:\d{2})?(\.\d{1,6})?)?(z|[+-]\d{2}:?\d{2})?", re.IGNORECASE
)
_FORMS: Final = (
    "t@v12 (a version), t@2026-11-20t10:00:00 (the last version committed at or before a time, UTC) or t@v10..v12 (the "
    "rows that came with versions 11 and 12)"
)


@dataclass(frozen=True, slots=True)
class SnapshotName:
    """``table`` at a snapshot; ``files`` if the hidden table of its file slices is meant.

    With ``since`` only the files that were added after that version; with ``group`` only those whose schemas are read
    as this one is (``lake.scans``).
    """

    table: str
    at: At
    files: bool = False
    since: int | None = None
    group: int | None = None


def hidden_name(table: str, version: int, since: int | None = None, group: int | None = None) -> str:
    """The table of a version's file slices (or of those added after ``since``, or of a group), which a view reads."""
    versions = f"v{version}" if since is None else f"v{since}..v{version}"
    name = f"{table}@{versions}@{FILES_SUFFIX}"
    return name if group is None else f"{name}@s{group}"


def parse(name: str) -> SnapshotName:
    """Raises InvalidName for what follows an @ and is no snapshot, UnsupportedOperation for what comes later."""
    table, *rest = name.lower().split("@")
    if not rest:
        return SnapshotName(table, At())
    group = _GROUP.fullmatch(rest[2]) if len(rest) == 3 else None
    files = rest[1:2] == [FILES_SUFFIX] and (len(rest) == 2 or group is not None)
    number = int(group.group(1)) if group else None
    increment = _RANGE.fullmatch(rest[0])
    if len(rest) > 1 and not (files and (increment or _VERSION.fullmatch(rest[0]))):
        raise InvalidName(f"{name!r} names no snapshot; write {_FORMS}", name=name)
    if increment:
        since, version = map(int, increment.groups())
        if since > version:
            raise InvalidName(f"{name!r}: version {since} is not before version {version}", name=name)
        return SnapshotName(table, At(version=version), files, since, number)
    return SnapshotName(table, _at(rest[0]), files, group=number)


def _at(reference: str) -> At:
    version = _VERSION.fullmatch(reference)
    if version:
        return At(version=int(version.group(1)))
    time = _TIME.fullmatch(reference)
    if time:
        return At(timestamp_ms=_milliseconds(reference, time))
    raise InvalidName(
        f"'@{reference}' is no snapshot; write {_FORMS}. Branches, tags and read-optimized views are not available yet",
        name=reference,
    )


def _milliseconds(reference: str, match: re.Match[str]) -> int:
    day, minute, second, fraction, zone = match.groups()
    text = f"{day}T{minute or '00:00'}{second or ':00'}{fraction or ''}{zone.upper() if zone else '+00:00'}"
    try:
        return int(dt.datetime.fromisoformat(text).timestamp() * 1_000)
    except (ValueError, OverflowError) as error:
        raise InvalidName(f"'@{reference}' is not a time: {error}", name=reference) from error
