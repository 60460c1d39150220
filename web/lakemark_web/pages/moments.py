"""Which version of a table a page shows: as addresses have it, and in words. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from lakemark_core.errors import InvalidArgument
from lakemark_server.snapshots.service import SnapshotReference
from lakemark_web import texts

LATEST: Final = SnapshotReference()
FIELDS: Final = ("version", "time", "branch", "tag")


def moment_of(given: Mapping[str, str]) -> SnapshotReference:
    """From the fields of a form: a version, a time in UTC ("2026-11-22T20:15", or milliseconds), a branch, or a tag.

    Empty fields are left out. Raises InvalidArgument.
    """
    version, time, branch, tag = (given.get(name, "").strip() for name in FIELDS)
    if sum(map(bool, (version, time, tag))) > 1 or (tag and branch):
        raise InvalidArgument("say which version, or which time, or which tag: one of them")
    return SnapshotReference(
        version=whole("version", version) if version else None,
        timestamp_ms=time_ms(time) if time else None,
        branch=branch,
        tag=tag,
    )


def whole(name: str, text: str) -> int:
    """A number of a field. Raises InvalidArgument."""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidArgument(f"{name} is {text[:50]!r}, which is no number")
    return int(text)


def time_ms(text: str) -> int:
    """A time in UTC, unless it says another zone. Raises InvalidArgument."""
    if text.isascii() and text.isdigit():
        return whole("time", text)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidArgument(f"{text[:50]!r} is no time; write it like 2026-11-22T20:15, in UTC") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return int(moment.timestamp() * 1_000)


def query_of(at: SnapshotReference) -> str:
    """What addresses of pages about the same moment have behind the question mark; "" for the latest of main."""
    fields = {"version": at.version, "time": at.timestamp_ms, "branch": at.branch or None, "tag": at.tag or None}
    return urlencode({name: value for name, value in fields.items() if value is not None})


def words_of(at: SnapshotReference) -> str:
    """The moment in words that go on after "the table"; "" for the latest of main."""
    if at == LATEST:
        return ""
    parts = []
    if at.version is not None:
        parts.append(f"at version {at.version}")
    if at.timestamp_ms is not None:
        parts.append(f"as of {texts.time(at.timestamp_ms)} UTC")
    if at.tag:
        parts.append(f"at tag {at.tag}")
    if at.branch:
        parts.append(f"{'on' if parts else 'at the latest version of'} branch {at.branch}")
    return " ".join(parts)
