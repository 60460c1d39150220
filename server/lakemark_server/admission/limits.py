"""The limits of a tenant: their names, their defaults, and how a tenant's own limits override them. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from lakemark_core.errors import InvalidArgument
from lakemark_proto.v1.admin_pb2 import Quota

LIMIT_MAX: Final = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """What one tenant may have. The defaults are far above usual needs and below what would harm other tenants."""

    requests_per_second: float = 100_000.0
    """On average, in each process."""

    request_burst: int = 200_000
    """How many may come at once after a pause, in each process."""

    concurrent_requests: int = 1_000
    """At the same time, in each process."""

    open_instants: int = 100_000
    """Requested and inflight instants of all tables together."""

    staged_files: int = 200_000_000
    """Files that are staged and not committed yet, of all open instants."""

    staged_bytes: int = 1 << 50
    """Total size of those files."""

    tables: int = 1_000_000
    """Lake and warehouse tables."""

    dropped_tables: int = 1_000_000
    """Lake tables that were dropped and can be brought back."""

    databases: int = 100_000

    partitions_per_request: int = 1_000_000
    """Partitions of a warehouse table that one request adds, changes or drops."""

    watchers: int = 500
    """Streams of events that are open at the same time, in each process."""


NAMES: Final = tuple(field.name for field in dataclasses.fields(Limits))


def merged(defaults: Limits, own: Quota) -> Limits:
    """The defaults, overridden by what is set in ``own``."""
    return dataclasses.replace(defaults, **_given(own))


def to_quota(limits: Limits) -> Quota:
    """The limits as a message in which every field is set."""
    return Quota(**{name: getattr(limits, name) for name in NAMES})


def changed(own: Quota, changes: Quota, clear: Iterable[str], *, clear_all: bool = False) -> Quota:
    """A tenant's own limits after a request to change them. Raises InvalidArgument."""
    cleared = set(NAMES) if clear_all else set(clear)
    if unknown := cleared - set(NAMES):
        raise InvalidArgument(f"there is no limit {sorted(unknown)[0]!r}; there are: {', '.join(NAMES)}")
    given = _given(changes)
    for name, value in given.items():
        _check(name, value)
    kept = {name: value for name, value in _given(own).items() if name not in cleared}
    return Quota(**(kept | given))


def _given(quota: Quota) -> dict[str, Any]:
    """The fields that are set, which includes a limit of 0."""
    return {field.name: value for field, value in quota.ListFields() if field.name in NAMES}


def _check(name: str, value: float) -> None:
    if not math.isfinite(value) or not 0 <= value <= LIMIT_MAX:
        raise InvalidArgument(f"{name} must lie between 0 (nothing is allowed) and {LIMIT_MAX}, and is {value}")
