"""Which partitions are too old to stay, when the others will be, and why some never are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lakemark_core.partition_ttl import COLUMN_PROPERTY, TTL_PROPERTY, YEAR_MIN, PartitionTtl, period_end_ms
from lakemark_core.types import Schema
from lakemark_server.context.clock import TIME_MS_MAX, time_text
from lakemark_server.optimization.decisions import TableFacts, hold_on
from lakemark_server.optimization.measures import PartitionMeasure

NOTICE_MS: Final = 600_000
"""Nothing goes before a time to live, or a new one, has been in force for so long: a slip can be taken back. The same
for what a restore, a merge or an undrop has brought back."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """When a partition goes, and why. ``expires_ms`` 0: never. ``due``: now."""

    measure: PartitionMeasure
    expires_ms: int
    reason: str
    due: bool = False


def expiries(
    measures: Iterable[PartitionMeasure], ttl: PartitionTtl, schema: Schema, facts: TableFacts, in_force_ms: int
) -> list[Expiry]:
    """One for each partition, those that go first at the beginning. ``in_force_ms``: since when the time to live is."""
    every = [_of_partition(measure, ttl, schema, facts, in_force_ms) for measure in measures]
    return sorted(every, key=lambda one: (not one.due, not one.expires_ms, one.expires_ms, one.measure.name))


def next_expiry_ms(among: Sequence[Expiry], now_ms: int) -> int:
    """When time alone lets the next partition go; 0: never."""
    return min((one.expires_ms for one in among if one.expires_ms > now_ms), default=0)


def _of_partition(
    measure: PartitionMeasure, ttl: PartitionTtl, schema: Schema, facts: TableFacts, in_force_ms: int
) -> Expiry:
    brought_ms = facts.record.brought_back_ms
    since_ms, told = _since(measure, ttl, schema, brought_ms)
    if since_ms is None:
        return Expiry(measure, 0, told)
    reason = f"{told}, and {TTL_PROPERTY} is {ttl.ttl_ms}"
    aged_ms = min(since_ms + ttl.ttl_ms, TIME_MS_MAX)  # users say how long: the sum may be out of all bounds
    expires_ms = max(aged_ms, max(in_force_ms, brought_ms) + NOTICE_MS)
    if expires_ms > facts.now_ms:
        if expires_ms > aged_ms:
            why = f"this is so since {time_text(in_force_ms)} only"
            if brought_ms > in_force_ms:
                why = f"older files were brought back at {time_text(brought_ms)}"
            reason += f"; it stays until {time_text(expires_ms)}, since {why}"
        return Expiry(measure, expires_ms, reason)
    hold = hold_on(facts, measure.name)
    if facts.record.paused_ms:
        reason += "; but the table is paused"
    elif hold is not None:
        return Expiry(measure, hold.until_ms, f"{reason}; but it is held until {time_text(hold.until_ms)}")
    elif measure.name in facts.tasks:
        reason += "; but it is being optimized"
    else:
        return Expiry(measure, expires_ms, reason, due=True)
    return Expiry(measure, expires_ms, reason)


def _since(measure: PartitionMeasure, ttl: PartitionTtl, schema: Schema, brought_ms: int) -> tuple[int | None, str]:
    """From when on the age of a partition counts (None: nobody knows), in words."""
    if ttl.column is None:
        if measure.last_change_ms <= 0:  # its files are not in directories of instants
            return None, "never: nobody knows when it was changed"
        if brought_ms > measure.last_change_ms:  # a restore or merge names files as they were named before
            return brought_ms, f"older files were brought back at {time_text(brought_ms)}"
        return measure.last_change_ms, f"last changed at {time_text(measure.last_change_ms)}"
    text = ttl.text_of(measure.name, schema)
    if text is None:
        return None, f"never: {COLUMN_PROPERTY} = {ttl.column!r} is no partition column of the table any more"
    end_ms = period_end_ms(text)
    if end_ms is None:
        told = f"{ttl.column} = {text!r} names no time since {YEAR_MIN}, such as 2026-11-23 or 2026112305"
        return None, f"never: {told}"
    return end_ms, f"{ttl.column} = {text!r} ended at {time_text(end_ms)}"
