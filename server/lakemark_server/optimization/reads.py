"""How often tables are read: plan requests, counted in memory and added to the store now and then."""

from __future__ import annotations

from typing import Final

from lakemark_server.context.clock import ClockMs
from lakemark_server.context.periodic import PeriodicThread
from lakemark_server.kv import Store
from lakemark_server.optimization import records
from lakemark_server.store.mutations import Mutation, Mutations

INTERVAL_S: Final = 10.0
TABLES_A_WRITE: Final = 500


class ReadCounts:
    """``note`` costs a look-up in a dictionary. What is not written yet when the process dies is lost, and nobody needs
    it exactly."""

    def __init__(self, store: Store, clock: ClockMs, interval_s: float = INTERVAL_S) -> None:
        self._mutations = Mutations(store, clock)
        self._counts: dict[int, int] = {}
        self._thread = PeriodicThread("reads", interval_s, self.write)

    def note(self, table_id: int) -> None:
        """A plan was asked for."""
        self._counts[table_id] = self._counts.get(table_id, 0) + 1

    def write(self) -> None:
        """Adds what was counted to the store. Raises LakemarkError."""
        counts, self._counts = self._counts, {}
        pairs = list(counts.items())
        for start in range(0, len(pairs), TABLES_A_WRITE):
            page = pairs[start : start + TABLES_A_WRITE]

            def body(mutation: Mutation, page: list[tuple[int, int]] = page) -> None:
                for table_id, count in page:
                    records.add_reads(mutation.tx, table_id, mutation.now_ms, count)

            self._mutations.run(body)

    def start(self) -> None:
        """Writes every ``interval_s``."""
        self._thread.start()

    def stop(self) -> None:
        """Ends that."""
        self._thread.stop()
