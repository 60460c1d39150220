"""A watcher for the demo: it prints the events of one table as they come, beside everything else."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final, Self

import lakemark
from lakemark.client.events import Event
from lakemark.demo.report import Report
from lakemark_core.errors import FailedPrecondition

WAIT_S_MAX: Final = 10.0


class Watch:
    """Watches from ``start`` until the table is dropped or the client is closed.

    ``versions``: those that it was told of, in order.
    """

    def __init__(self, client: lakemark.Client, table: str, report: Report) -> None:
        self.versions: list[int] = []
        self._report = report
        self._stream = client.events(table=table)
        self._new = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def wait_for(self, version: int) -> list[int]:
        """The versions, as soon as this one is among them, or after ``WAIT_S_MAX``."""
        with self._new:
            self._new.wait_for(lambda: version in self.versions, WAIT_S_MAX)
            return list(self.versions)

    def start(self) -> Self:
        """Events from here on."""
        self._thread.start()
        return self

    def join(self) -> None:
        """Waits until it has seen the end of the table."""
        self._thread.join(WAIT_S_MAX)

    def _run(self) -> None:
        with suppress(FailedPrecondition), self._stream:  # a demo whose table stays ends by closing its client
            for event in self._stream:
                self._report.say(f"watcher: event {event.offset}, {_words(event)}")
                if event.kind == "committed":
                    with self._new:
                        self.versions.append(int(event.detail["version"]))
                        self._new.notify()
                if event.kind == "table_dropped":
                    return


def _words(event: Event) -> str:
    if event.kind != "committed":
        return f"{event.kind} {event.subject}"
    detail = event.detail
    return f"committed {event.subject}, version {detail['version']}: {detail.get('added_rows', 0)} rows"
