"""A whole migration: databases and functions, tables side by side, then constraints; a stop is resumed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lakemark_core.errors import InvalidArgument
from lakemark_hms.listener.selection import Selection
from lakemark_hms.migration.copier import Copier, Outcome, What, told_if_refused
from lakemark_hms.migration.sides import CONSTRAINTS, Side
from lakemark_hms.outside import OutsideRefused
from lakemark_proto.v1.events_pb2 import EventFilter
from lakemark_server.events.filters import filter_of

KEPT_MAX: Final = 10_000
"""Objects that are not equal and are listed; more are only counted."""


@dataclass(frozen=True, slots=True)
class Orders:
    """``patterns``: databases and tables ("sales", "sales.orders_*"); none: everything. ``drops``: what the source does
    not have goes from the copy, without its files. ``grants``: roles (without patterns only) and privileges, too.
    ``journal``: a file of the tables that are done, which another run goes on with."""

    patterns: Sequence[str] = ()
    drops: bool = False
    statistics: bool = True
    grants: bool = True
    workers: int = 4
    journal: Path | None = None


@dataclass(slots=True)
class Progress:
    """How far a run has come. ``tables`` is how many there are; 0: not known yet."""

    tables: int = 0
    tables_done: int = 0
    partitions_done: int = 0


@dataclass(slots=True)
class Summary:
    """``counts``: by kind of object, and what became of it. ``told``: those that are left or different, at most
    ``KEPT_MAX``. ``resumed``: tables that an earlier run had done."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    told: list[Outcome] = field(default_factory=list)
    resumed: int = 0

    def add(self, outcome: Outcome) -> None:
        self.counts.setdefault(outcome.kind, Counter())[outcome.what.value] += outcome.count
        if outcome.what in {What.LEFT, What.DIFFERENT} and len(self.told) < KEPT_MAX:
            self.told.append(outcome)

    @property
    def wrong(self) -> int:
        """How many objects are not the same."""
        return sum(counts[What.LEFT.value] + counts[What.DIFFERENT.value] for counts in self.counts.values())


class Migration:
    """From the Metastore at ``source`` to the one at ``copy``. ``look`` is called with the progress, by any thread."""

    def __init__(
        self, source: str, copy: str, orders: Orders, look: Callable[[Progress], None] = lambda _: None
    ) -> None:
        if source == copy:
            raise InvalidArgument(f"{source} cannot be copied to itself", uri=source)
        if not 1 <= orders.workers <= 64:
            raise InvalidArgument(f"{orders.workers} workers: from 1 to 64 are possible")
        self._source, self._copy, self._orders, self._look = source, copy, orders, look
        self._selection = Selection(filter_of(EventFilter(patterns=orders.patterns)))
        self._stopped = threading.Event()

    def copy(self) -> Summary:
        """Brings the copy in line. Raises OutsideUnavailable; another run goes on then."""
        with _Journal(self._orders.journal) as journal:
            summary = self._run(journal, applies=True)
            journal.end()
        return summary

    def compare(self) -> Summary:
        """Looks at every object and changes nothing. Raises OutsideUnavailable."""
        with _Journal(None) as journal:
            return self._run(journal, applies=False)

    def _run(self, journal: _Journal, *, applies: bool) -> Summary:
        summary, progress, lock = Summary(resumed=len(journal.done)), Progress(), threading.Lock()

        def note(kind: str, name: str, outcomes: Iterable[Outcome]) -> None:
            for outcome in told_if_refused(kind, name, outcomes):
                with lock:
                    summary.add(outcome)
                    if outcome.kind == "partition":
                        progress.partitions_done += outcome.count
                        self._look(progress)

        with self._sides() as sides:
            copier = self._copier(*sides, applies=applies)
            tables: list[tuple[str, str]] = []
            databases = sides[0].databases()
            if not self._orders.patterns:
                note("database", "*", copier.surplus_databases(databases))
            for database in filter(self._selection.reaches_into, databases):
                note("database", database, self._database(copier, sides, database, tables))
            progress.tables = len(tables)
            self._look(progress)

            def one(copier: Copier, table: tuple[str, str]) -> None:
                if table not in journal.done:
                    note("table", ".".join(table), copier.table(*table))
                    journal.add(table)
                with lock:
                    progress.tables_done += 1
                    self._look(progress)

            self._side_by_side(tables, one, applies=applies)
            if self._orders.grants:
                if not self._orders.patterns:
                    note("role", "*", copier.roles())
                for database in sorted({database for database, _ in tables}):
                    note("privilege", database, copier.privileges(database))
                for database, name in tables:
                    note("privilege", f"{database}.{name}", copier.privileges(database, name))
            for kind in CONSTRAINTS:
                for database, name in tables:
                    note(kind.words, f"{database}.{name}", copier.constraints(kind, database, name))
        return summary

    def _database(
        self, copier: Copier, sides: tuple[Side, Side], database: str, tables: list[tuple[str, str]]
    ) -> Iterator[Outcome]:
        """The database with its functions, and the tables that only the copy has; the others are added to ``tables``.

        After a read that is refused, nothing of the database is dropped: what is not listed may be there.
        """
        source, copy = sides
        refused = False
        try:
            yield from copier.database(database)
        except OutsideRefused as error:
            yield Outcome("database", database, What.LEFT, error.message)
            refused = True
        listed = source.table_names(database)
        tables += [(database, name) for name in listed if self._selection.table(database, name)]
        if not refused and self._selection.whole_database(database) and copy.database(database) is not None:
            if source.database(database) is None:  # it was dropped meanwhile: lists of it say nothing
                return
            yield from told_if_refused("function", database, copier.functions(database))
            yield from copier.surplus(database, listed)

    def _side_by_side(
        self, tables: Sequence[tuple[str, str]], work: Callable[[Copier, tuple[str, str]], None], *, applies: bool
    ) -> None:
        """Each worker has connections of its own. The first error stops all."""
        todo: Iterator[tuple[str, str]] = iter(tables)
        lock = threading.Lock()

        def worker() -> None:
            with self._sides() as sides:
                copier = self._copier(*sides, applies=applies)
                while not self._stopped.is_set():
                    with lock:
                        table = next(todo, None)
                    if table is None:
                        return
                    work(copier, table)

        self._stopped.clear()
        with ThreadPoolExecutor(self._orders.workers, "migration") as pool:
            futures: list[Future[None]] = [pool.submit(worker) for _ in range(self._orders.workers)]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                self._stopped.set()
        for future in futures:
            future.result()

    def _copier(self, source: Side, copy: Side, *, applies: bool) -> Copier:
        orders = self._orders
        return Copier(source, copy, applies=applies, drops=orders.drops, statistics=orders.statistics)

    @contextmanager
    def _sides(self) -> Iterator[tuple[Side, Side]]:
        source, copy = Side(self._source), Side(self._copy)
        try:
            yield source, copy
        finally:
            source.close()
            copy.close()


class _Journal:
    """The tables that are done, a line each, appended as they are."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.done: set[tuple[str, str]] = set()
        if path is not None and path.exists():
            text = path.read_text()
            lines = text[: text.rfind("\n") + 1].splitlines()  # the last one may have been cut off
            self.done = {(database, name) for database, _, name in (line.partition("\t") for line in lines)}

    def __enter__(self) -> _Journal:
        self._file = self._path.open("a") if self._path else None
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def add(self, table: tuple[str, str]) -> None:
        with self._lock:
            self.done.add(table)
            if self._file:
                self._file.write("\t".join(table) + "\n")
                self._file.flush()

    def end(self) -> None:
        """The run is over: the next one looks at everything again."""
        if self._path:
            self._path.unlink(missing_ok=True)
