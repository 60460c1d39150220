"""Which events a watcher wants: patterns of names, and kinds. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from lakemark_core.errors import InvalidArgument
from lakemark_core.wildcards import Wildcard, WildcardPattern, pattern_of
from lakemark_proto.v1 import events_pb2 as pb

PATTERNS_MAX: Final = 100
PATTERN_CHARS_MAX: Final = 260
"""Two names of the greatest length, with the dot and some stars."""

_WILDCARDS: Final = {"*": Wildcard.ANY}
_PART: Final = re.compile(r"[a-z0-9_*]+", re.ASCII)
_OF_CATALOGS: Final = frozenset(
    {pb.QUOTA_CHANGED, pb.SINK_CREATED, pb.SINK_ALTERED, pb.SINK_DROPPED, pb.STORE_RESTORED}
)
_OF_DATABASES: Final = frozenset(
    {
        pb.DATABASE_CREATED,
        pb.DATABASE_ALTERED,
        pb.DATABASE_DROPPED,
        pb.FUNCTION_CREATED,
        pb.FUNCTION_ALTERED,
        pb.FUNCTION_DROPPED,
    }
)


class ObjectName(NamedTuple):
    """A database, or a table of it; in lower case. ``table`` "": the database; both "": the catalog."""

    database: str
    table: str


class Subject(NamedTuple):
    """What a filter looks at: the kind of an event, and the names that its object had before and after it."""

    kind: pb.EventKind.ValueType
    names: tuple[ObjectName, ...]


@dataclass(frozen=True, slots=True)
class NamePattern:
    """``table`` None: the database itself and everything in it."""

    database: str
    table: str | None

    def fits(self, name: ObjectName) -> bool:
        """Whether it is a name of this pattern."""
        if not name.database or not fits(self.database, name.database):
            return False
        return self.table is None or (bool(name.table) and fits(self.table, name.table))


@dataclass(frozen=True, slots=True)
class EventFilter:
    """No patterns: all names. No kinds: all kinds."""

    patterns: tuple[NamePattern, ...] = ()
    kinds: frozenset[pb.EventKind.ValueType] = frozenset()

    def fits(self, subject: Subject) -> bool:
        """Whether the event is wanted."""
        if self.kinds and subject.kind not in self.kinds:
            return False
        return not self.patterns or any(pattern.fits(name) for name in subject.names for pattern in self.patterns)


EVERYTHING: Final = EventFilter()


def subject_of(event: pb.Event) -> Subject:
    """What filters look at."""
    names = [ObjectName(event.database, event.table)]
    change = event.WhichOneof("detail")
    if change == "table_change" and event.table_change.HasField("before"):
        before = event.table_change.before.name
        names.append(ObjectName(before.database, before.table))
    elif change == "database_change" and event.database_change.HasField("before"):
        names.append(ObjectName(event.database_change.before.name, ""))
    return Subject(event.kind, tuple(dict.fromkeys(names)))


def filter_of(message: pb.EventFilter) -> EventFilter:
    """The filter. Raises InvalidArgument for one that is not understood, or that no event can ever fit."""
    if len(message.patterns) > PATTERNS_MAX:
        raise InvalidArgument(f"a filter has at most {PATTERNS_MAX} patterns, and this one {len(message.patterns)}")
    if len(message.kinds) > len(pb.EventKind.values()):
        raise InvalidArgument("a filter names each kind of events at most once")
    wanted = EventFilter(tuple(dict.fromkeys(map(_pattern, message.patterns))), frozenset(map(_kind, message.kinds)))
    _refuse_impossible(wanted)
    return wanted


def fits(pattern: str, name: str) -> bool:
    """Whether ``pattern``, in which "*" stands for any characters, fits the whole name."""
    return _compiled(pattern).fits(name)


@lru_cache(maxsize=1_000)
def _compiled(pattern: str) -> WildcardPattern:
    return pattern_of(pattern, _WILDCARDS)


def _pattern(text: str) -> NamePattern:
    lowered = text.strip().lower()
    parts = lowered.split(".")
    if len(text) > PATTERN_CHARS_MAX or len(parts) > 2 or not all(map(_PART.fullmatch, parts)):
        raise InvalidArgument(
            f"{text[:PATTERN_CHARS_MAX]!r} is no pattern of names: write a database (sales), a table (sales.orders), "
            "or either with * for any characters (sales.*, *.orders_*)"
        )
    return NamePattern(parts[0], parts[1] if len(parts) == 2 else None)


def _kind(number: int) -> pb.EventKind.ValueType:
    if number == pb.EVENT_KIND_UNSPECIFIED or number not in pb.EventKind.values():
        raise InvalidArgument(f"this service knows no kind of events with number {number}")
    return pb.EventKind.ValueType(number)


def _refuse_impossible(wanted: EventFilter) -> None:
    if not wanted.patterns or not wanted.kinds:
        return
    if wanted.kinds <= _OF_CATALOGS:
        raise InvalidArgument(
            f"no event can fit the filter: {_names(wanted.kinds)} concerns a whole catalog, and the patterns ask for "
            "databases or tables; leave the patterns out"
        )
    if wanted.kinds <= _OF_CATALOGS | _OF_DATABASES and all(pattern.table is not None for pattern in wanted.patterns):
        raise InvalidArgument(
            f"no event can fit the filter: {_names(wanted.kinds)} concerns no table, and all patterns ask for tables; "
            "write the database alone"
        )


def _names(kinds: Iterable[pb.EventKind.ValueType]) -> str:
    return ", ".join(pb.EventKind.Name(kind).lower() for kind in sorted(kinds))
