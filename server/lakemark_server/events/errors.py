"""What can be wrong with an offset."""

from __future__ import annotations

from lakemark_core.errors import FailedPrecondition, InvalidArgument


class EventsTrimmed(FailedPrecondition):
    """The events behind the offset are kept no longer; ``first_offset`` (detail) is the first that there is."""

    code = "events_trimmed"


class EventsLost(FailedPrecondition):
    """The store was restored from a backup that has no event of the offset; ``last_offset`` (detail): its last one."""

    code = "events_lost"


class OffsetUnknown(InvalidArgument):
    """The log has no such offset yet; ``last_offset`` (detail) is the last one."""

    code = "offset_unknown"
