"""What earlier looks at the directories of a session have told, so that a call looks only at what changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

RESOLUTION_NS: Final = 3_000_000_000
"""Stores of files tell when a directory was changed last, some of them in seconds."""


class EarlierLooks:
    """Of one session. Not thread-safe.

    ``decided``: when it was decided about directories that are still there, in ms by the service's clock.
    """

    def __init__(self) -> None:
        self.decided: dict[str, int] = {}
        self._unended: dict[str, int] = {}

    def to_look_at(self, changed_ns: Mapping[str, int | None]) -> list[str]:
        """The names of those in which a job may have ended since.

        ``changed_ns``: all directories that are there, and when each was changed last; None if that is not known.
        """
        self.decided = {name: at for name, at in self.decided.items() if name in changed_ns}
        self._unended = {name: at for name, at in self._unended.items() if changed_ns.get(name) == at}
        return [name for name in changed_ns if name not in self.decided and name not in self._unended]

    def note_unended(self, names: Iterable[str], changed_ns: Mapping[str, int | None]) -> None:
        """No job has ended in these, as they were when ``changed_ns`` was known.

        What was changed just before is looked at again: the next change could get the same time. The latest change of
        any directory tells the time by the clock of the store of files.
        """
        settled = max((at for at in changed_ns.values() if at is not None), default=0) - RESOLUTION_NS
        for name in names:
            at = changed_ns.get(name)
            if at is not None and at <= settled:
                self._unended[name] = at

    def take_decided(self, before_ms: int) -> list[str]:
        """The names of those about which it was decided before then; they are no longer remembered."""
        taken = [name for name, at in self.decided.items() if at < before_ms]
        for name in taken:
            del self.decided[name]
        return taken
