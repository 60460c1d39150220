"""Checks which versions may be read in a history in which old versions end.

A version has ended once a clean reported so, and never comes back. Nothing ends before a clean begins that may end it,
nor while a tag, a savepoint or a fork keeps it. A clean leaves as many of the newest versions as it was asked to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.histories import Clean, History, Operation, PlaceVersion, name_of

FOREVER_NS = 1 << 62


@dataclass(frozen=True)
class _Cleaned:
    """A clean that has happened, or may have."""

    clean: Clean
    operation: Operation

    def may_end(self, at: PlaceVersion, holds: Mapping[PlaceVersion, int]) -> bool:
        place, version = at
        if place != self.clean.place or holds.get(at, FOREVER_NS) < self.operation.began_ns:
            return False
        if self.operation.outcome == "unknown":
            return True
        return version < self.clean.earliest and version not in self.clean.spared

    def has_ended(self, at: PlaceVersion) -> bool:
        place, version = at
        told = self.operation.outcome == "ok" and place == self.clean.place
        return told and version < self.clean.earliest and version not in self.clean.spared


def wrong_ends(history: History, made: Mapping[PlaceVersion, Operation]) -> Iterator[str]:
    """Violations. ``made``: the operation that made each version."""
    done = [_Cleaned(one.cleans, one) for one in history.operations if one.cleans and one.outcome != "refused"]
    holds = _holds(history)
    for cleaned in done:
        if cleaned.operation.outcome == "ok" and cleaned.clean.earliest > history.fork(cleaned.clean.place) + 1:
            yield from _ends_too_much(cleaned, done, made)
    for what, began_ns, ended_ns, readable, (place, version) in _looks(history, made):
        at = history.owner(place, version), version
        if readable:
            for one in done:
                if one.has_ended(at) and one.operation.ended_ns < began_ns:
                    yield f"{what} found version {version} of {name_of(at[0])}, which {one.operation.what} had ended"
        elif not any(one.operation.began_ns < ended_ns and one.may_end(at, holds) for one in done):
            yield f"{what} did not find version {version} of {name_of(at[0])}, which nothing has ended"


def _holds(history: History) -> dict[PlaceVersion, int]:
    """The time from which on each kept version is surely kept."""
    holds: dict[PlaceVersion, int] = {}
    for operation in history.operations:
        kept = operation.keeps
        if operation.creates and operation.creates in history.forks:
            kept = history.forks[operation.creates]
        if kept and operation.outcome == "ok":
            at = history.owner(*kept), kept[1]
            holds[at] = min(holds.get(at, FOREVER_NS), operation.ended_ns)
    return holds


def _ends_too_much(cleaned: _Cleaned, done: list[_Cleaned], made: Mapping[PlaceVersion, Operation]) -> Iterator[str]:
    """Each version that remains had been made, or was being made.

    Checked only if some of the branch's own versions have ended.
    """
    place, earliest = cleaned.clean.place, cleaned.clean.earliest
    retains = min(
        one.clean.retains
        for one in done
        if one.clean.place == place and (one is cleaned or one.operation.began_ns < cleaned.operation.ended_ns)
    )
    newest = made.get((place, earliest + retains - 1))
    if newest is None or newest.began_ns > cleaned.operation.ended_ns:
        yield (
            f"{cleaned.operation.what} left fewer than {retains} versions of {name_of(place)}: those from {earliest} on"
        )


def _looks(
    history: History, made: Mapping[PlaceVersion, Operation]
) -> Iterator[tuple[str, int, int, bool, PlaceVersion]]:
    """Who asked for which version, from when to when, and whether it could be read."""
    for one in history.operations:
        if one.looks and one.outcome != "unknown":
            yield one.what, one.began_ns, one.ended_ns, one.outcome == "ok", one.looks
        if one.keeps and one.outcome == "ok":
            yield one.what, one.began_ns, one.ended_ns, True, one.keeps
    for (place, _), one in made.items():
        write = one.writes[place]
        if write.restores:
            yield one.what, one.began_ns, one.ended_ns, True, (place, write.restores)
    for at in history.kept:
        yield "who looked in the end", FOREVER_NS, FOREVER_NS, True, at
    for at in history.gone:
        yield "who looked in the end", FOREVER_NS, FOREVER_NS, False, at
