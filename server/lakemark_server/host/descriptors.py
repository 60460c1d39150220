"""File descriptors: how many connections may have, so that enough are left for the store, files and other services."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Final

import structlog

RESERVE: Final = 512
"""For the store, files, sinks, outside Metastores and stores of files."""

_log = structlog.get_logger(__name__)


def raised_limit() -> int:
    """Raises this process's limit of open files as far as it may, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # some systems have a hard limit that no process may take
            return soft
    return hard


def shares(limit: int, wanted: Mapping[str, int], reserve: int = RESERVE) -> dict[str, int]:
    """How many of ``limit`` descriptors each kind of connections may have: what it wants, or its part if that is less.

    ``limit`` below 0: there is none. The reserve is left, but each kind may have one at least.
    """
    left, together = max(limit - reserve, 0), sum(wanted.values())
    if limit < 0 or together <= left:
        return dict(wanted)
    return {name: max(1, most * left // together) for name, most in wanted.items()}


def connection_limits(wanted: Mapping[str, int]) -> dict[str, int]:
    """``shares`` of what this process may open. Logs which settings it cannot keep."""
    limit = raised_limit()
    given = shares(limit, wanted)
    if given != dict(wanted):
        _log.warning(
            "fewer connections than the settings allow: raise the limit of open files (ulimit -n, LimitNOFILE)",
            open_files=limit,
            reserve=RESERVE,
            **given,
        )
    return given
