"""Names of snapshots, the same in Spark's SQL and on the command line: ``t@v12``, ``t@2026-11-20t10:00:00``, ``t@dev``,
``t@dev@v12``, ``t@v10..v12``. Pure.

Case does not matter behind the @: Spark hands table names over in lower case. Times without a zone are UTC.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from lakemark_core.errors import InvalidName

FORMS: Final = (
    "t@v12 (a version), t@2026-11-20t10:00:00 (the last version committed at or before a time, UTC), t@v10..v12 (the "
    "rows that came with versions 11 and 12), t@dev (a branch or tag), or t@dev@v12 and so on for a branch"
)
_VERSION: Final = re.compile(r"v(\d{1,18})")
_RANGE: Final = re.compile(r"v(\d{1,18})\.\.v(\d{1,18})")
_PINNED: Final = re.compile(r"v\d{1,18}(\.\.v\d{1,18})?")
_TIME: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[t ](\d{2}:\d{2})(:\d{2})?(\.\d{1,6})?)?(z|[+-]\d{2}:?\d{2})?", re.IGNORECASE
)
# A branch or tag, or the key of a branch, which stays its own when its name is used again.
_REFERENCE: Final = re.compile(r"[a-z_][a-z0-9_.-]*(#\d{1,18})?")


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """What stands behind a table's name: nothing for the latest version of main.

    ``reference`` is a branch or a tag ("": main), or a branch's key. ``since``: only what came after that version.
    """

    reference: str = ""
    version: int | None = None
    timestamp_ms: int | None = None
    since: int | None = None


def parse_snapshot_name(name: str) -> tuple[str, SnapshotPart]:
    """The table's name, as it stands there, and which snapshot of it. Raises InvalidName."""
    table, *rest = name.split("@")
    return table, parse_parts(name, [one.lower() for one in rest])


def parse_parts(name: str, parts: Sequence[str]) -> SnapshotPart:
    """Of what stands behind each @ of ``name``, in lower case. Raises InvalidName for what is no snapshot."""
    reference, rest = (parts[0], parts[1:]) if parts and _is_reference(parts[0]) else ("", parts)
    if len(rest) > 1:
        raise InvalidName(f"{name!r} names no snapshot; write {FORMS}", name=name)
    wanted = SnapshotPart(reference)
    return _moment(name, rest[0], wanted) if rest else wanted


def is_pinned(part: str) -> bool:
    """Whether it stands for the same for ever: a version, or all between two."""
    return _PINNED.fullmatch(part) is not None


def _is_reference(text: str) -> bool:
    return _REFERENCE.fullmatch(text) is not None and not is_pinned(text)


def _moment(name: str, text: str, wanted: SnapshotPart) -> SnapshotPart:
    increment = _RANGE.fullmatch(text)
    if increment:
        since, version = map(int, increment.groups())
        if since > version:
            raise InvalidName(f"{name!r}: version {since} is not before version {version}", name=name)
        return replace(wanted, version=version, since=since)
    version_text = _VERSION.fullmatch(text)
    if version_text:
        return replace(wanted, version=int(version_text.group(1)))
    time = _TIME.fullmatch(text)
    if time:
        return replace(wanted, timestamp_ms=_milliseconds(text, time))
    raise InvalidName(f"'@{text}' is no snapshot; write {FORMS}", name=text)


def _milliseconds(reference: str, match: re.Match[str]) -> int:
    day, minute, second, fraction, zone = match.groups()
    text = f"{day}T{minute or '00:00'}{second or ':00'}{fraction or ''}{zone.upper() if zone else '+00:00'}"
    try:
        return int(dt.datetime.fromisoformat(text).timestamp() * 1_000)
    except (ValueError, OverflowError) as error:
        raise InvalidName(f"'@{reference}' is not a time: {error}", name=reference) from error
