"""Clients of two processes on one faulty store, compared with the model after each step.

A step is one attempt of one client at its wish. A client that does not learn the outcome asks again with the same
request id, at any process; other clients run in between. After each attempt the store's content, read without faults,
must equal the model, or the model with the attempt applied, and nothing in between. Responses must agree with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakemark_core.errors import LakemarkError, Outcome
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, LakeTableRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.catalog.lake import LakeTable, load
from lakemark_server.file_index.arrow import texts
from lakemark_server.kv import Store
from lakemark_server.snapshots.service import SnapshotReference
from lakemark_server.timeline.lineage import OF_MAIN
from lakemark_server.timeline.publication.commits import CommitDraft
from tests.fault.faulty_model import HOME, TIMEOUT_MS, Model, Table, TableKey, outcome_of
from tests.faulty_store import Crashed, Faults, FaultyStore, Rates
from tests.lakes import SCHEMA, Clock, Lake, file, files

CLIENTS = 3
DATABASES = (HOME, "d1", "d2")
NAMES = ("a", "b")
SWEEP = "sweep"
ANY = -1
STILL_OPEN = {"crashed", "retryable", "unknown"}
PRECIOUS = "precious"  # a file in each table's directory that must survive until the table is dropped


@dataclass
class Wish:
    """What a client wants: how to ask a process for it, and how the model answers.

    ``recorded``: it carries a request id, so the first answer holds for ever; without one, asking again reports the
    state by then. ``table`` is the table it is about, ``uid`` distinguishes it from others of that name. ``instant``
    (or ANY) is set if the wish goes by the table's name and not by a request id of its own. ``renews``: it takes effect
    from the last time it is asked, even if it was applied before.
    """

    what: str
    ask: Callable[[Lake], Any]
    model: Callable[[Model], Any]
    recorded: bool = False
    table: TableKey | None = None
    instant: int = 0
    uid: str = ""
    renews: bool = False
    told: tuple[str, Any] | None = None  # the right answer, once the wish was applied
    attempts: int = 0


class World:
    """``seed`` decides everything: faults, wishes, and the next client."""

    def __init__(self, inner: Store, directory: Path, seed: int, rate: float, inline: bool) -> None:
        self.random = random.Random(seed)
        self.clock = Clock()
        self.model = Model(inline)
        self.directory = directory
        self.faults = Faults(seed, Rates.of(rate))
        self.stores = [FaultyStore(inner, self.faults) for _ in range(2)]
        with self.faults.quiet():
            self.processes = [Lake(store, directory, self.clock) for store in self.stores]
            self.observer = Lake(inner, directory, self.clock)
        self.wishes: list[Wish | None] = [None] * CLIENTS
        self.numbers = iter(range(1_000_000))
        self.story: list[str] = []

    def run(self, steps: int) -> None:
        """Runs until every wish is fulfilled. Raises AssertionError."""
        for _ in range(steps):
            client = self.random.randrange(CLIENTS)
            self.wishes[client] = self.attempt(self.wishes[client] or self.wish())
        for wish in self.wishes:
            left = wish
            while left is not None:
                left = self.attempt(left)

    # -- one attempt ---------------------------------------------------------------------------------------------------

    def attempt(self, wish: Wish) -> Wish | None:
        """Makes one attempt. Returns the wish if its outcome is still open."""
        if wish.what.startswith("drop "):
            self.clock.advance(1)  # so that of two drops one is later
        self.model.now = self.clock.ms
        wish.attempts += 1
        assert wish.attempts < 200, f"{wish.what} never ends"
        if wish.table in self.model.tables and not wish.uid:
            wish.uid = self.model.tables[wish.table].uid
        which = self.random.randrange(2)
        told = self.ask(wish, which)
        self.story.append(f"{wish.what}, process {which}: {told}")
        after, right = self.carried_out(wish)
        now = self.look()
        if wish.what == SWEEP:
            self.follow_sweep(now)
        happened = now != self.model.view()
        ended = told[0] not in STILL_OPEN
        if happened or (ended and wish.told is None):
            assert wish.told is None or wish.renews, "it was carried out before"
            assert now == after.view(), f"told {told}; the store is neither as before nor as after"
            assert told[0] != "retryable", "it was told that nothing was applied"
            wish.told = right
            self.adopt(after)
        self.check_directories()
        if ended:
            self.check_told(wish, told)
        return None if ended else wish

    def ask(self, wish: Wish, which: int) -> tuple[str, Any]:
        try:
            return "done", wish.ask(self.processes[which])
        except Crashed:
            with self.faults.quiet():
                self.stores[which].reopen()
                self.processes[which] = Lake(self.stores[which], self.directory, self.clock)
            return "crashed", None
        except LakemarkError as error:
            return {Outcome.RETRYABLE: "retryable", Outcome.UNKNOWN: "unknown"}.get(
                error.outcome, outcome_of(error)
            ), None

    def carried_out(self, wish: Wish) -> tuple[Model, tuple[str, Any]]:
        """The model with the wish applied, and its answer."""
        after = self.model.copy()
        try:
            return after, ("done", wish.model(after))
        except LakemarkError as error:
            return after, (outcome_of(error), None)

    def follow_sweep(self, now: dict[str, Any]) -> None:
        """A sweep rolls back one writer after another, and may stop in between."""
        states = {
            label: seen["instants"] for seen in now.values() if isinstance(seen, dict) for label in [seen["label"]]
        }
        for table in self.model.everything():
            for number, one in table.instants.items():
                state, _ = states[table.label][number]
                if one.open and one.deadline < self.model.now and state == "ROLLED_BACK":
                    one.state = state

    def adopt(self, after: Model) -> None:
        known = {table.uid for table in self.model.everything()}
        for key, table in after.tables.items():
            if table.uid not in known:
                with self.faults.quiet():
                    record = self.observer.catalog.get_lake_table("", *key).record
                table.directory, table.number = record.location.removeprefix("file:"), record.table_id
                self.precious(table).touch()
        self.model = after

    def check_told(self, wish: Wish, told: tuple[str, Any]) -> None:
        if told == wish.told:
            return
        if wish.uid and all(table.uid != wish.uid for table in self.model.tables.values()) and told[0] == "NotFound":
            return  # the table was dropped meanwhile
        there = self.model.tables.get(wish.table) if wish.table else None
        if wish.instant and (there is None or there.uid != wish.uid):
            # Or it was renamed: these go by name, and the request id may be known for another table of this name.
            assert told[0] in {"NotFound", "InvalidArgument"}, f"{told}, and {wish.table} is gone"
            return
        right = wish.told if wish.recorded else self.carried_out(wish)[1]
        assert told == right, f"{wish.what}, attempt {wish.attempts}: told {told}, right is {right}"

    # -- what there is -------------------------------------------------------------------------------------------------

    def look(self) -> dict[str, object]:
        """The store's content in the form of ``Model.view``."""
        with self.faults.quiet():
            databases = [record.name for record in self.observer.catalog.list_databases("")]
            found: dict[str, object] = {"databases": databases}
            for database in databases:
                for name, _ in self.observer.catalog.list_tables("", database):
                    found[f"{database}.{name}"] = self.look_at(self.observer.catalog.get_lake_table("", database, name))
            for record in self.observer.catalog.dropped.listed(""):
                table = self.observer.store.read(lambda tx, at=record.table_id: load(tx, at, or_dropped=True))
                found[f"dropped {record.database}.{record.name} {record.properties['label']}"] = self.look_at(table)
            return found

    def look_at(self, table: LakeTable) -> dict[str, object]:
        timeline, number = self.observer.timeline, table.table_id
        instants = {}
        for record in timeline.instants(number, limit=1_000)[0]:
            living = timeline.instant(number, record.instant)[1]
            state = t.InstantState.Name(record.state)
            instants[record.instant] = (state, living.deadline_ms if living else None)
        versions = timeline.versions(number, "", limit=1_000)[0]
        content = self.observer.snapshots.load(table, OF_MAIN, len(versions))
        return {
            "label": table.record.properties["label"],
            "instants": instants,
            "commits": [record.instant for record in versions],
            "content": sorted(texts(content.entries().column("path"))),
        }

    def check_directories(self) -> None:
        for table in self.model.everything():
            assert self.precious(table).exists(), f"the files of {table.directory} are gone, and it was not deleted"

    def precious(self, table: Table) -> Path:
        return Path(table.directory) / PRECIOUS

    # -- wishes --------------------------------------------------------------------------------------------------------

    def wish(self) -> Wish:
        kinds: dict[Callable[[], Wish], int] = {
            self.database: 2,
            self.new_table: 3,
            self.drop: 2,
            self.undrop: 2,
            self.purge: 1,
            self.rename: 2,
            self.label: 2,
            self.open: 6,
            self.start: 3,
            self.stage: 4,
            self.commit: 8,
            self.rollback: 1,
            self.heartbeat: 2,
            self.sweep: 2,
            self.wait: 2,
            self.read: 4,
        }
        return self.random.choices(list(kinds), list(kinds.values()))[0]()

    def key(self) -> TableKey:
        """Mostly the key of an existing table."""
        if self.model.tables and self.random.random() < 0.9:
            return self.random.choice(list(self.model.tables))
        return self.random.choice(DATABASES), self.random.choice(NAMES)

    def writer(self) -> tuple[TableKey, int]:
        """Mostly an open writer; none that another client is asking for, because an instant has one writer."""
        key = self.key()
        busy = {wish.instant for wish in self.wishes if wish is not None}
        instants = self.model.tables[key].instants if key in self.model.tables else {}
        instants = {number: one for number, one in instants.items() if number not in busy}
        live = [number for number, one in instants.items() if one.open]
        some = live if live and self.random.random() < 0.9 else list(instants)
        return key, self.random.choice(some) if some else 1

    def request_id(self) -> str:
        return f"request {next(self.numbers)}"

    def database(self) -> Wish:
        name, request = self.random.choice(DATABASES[1:]), self.request_id()
        if self.random.random() < 0.6:
            record = DatabaseRecord(name=name)
            return Wish(
                f"create database {name}",
                lambda lake: _nothing(lake.catalog.create_database(record, request_id=request)),
                lambda model: model.create_database(name),
                recorded=True,
            )
        return Wish(
            f"drop database {name}",
            lambda lake: lake.catalog.drop_database("", name, request_id=request),
            lambda model: model.drop_database(name),
            recorded=True,
        )

    def new_table(self) -> Wish:
        key, request = (self.random.choice(DATABASES), self.random.choice(NAMES)), self.request_id()
        record = LakeTableRecord(database=key[0], name=key[1], properties={"label": request})
        return Wish(
            f"create {key}",
            lambda lake: _nothing(lake.catalog.create_lake_table(record, SCHEMA, request_id=request)),
            lambda model: model.create_table(key, request),
            recorded=True,
            uid=request,
        )

    def drop(self) -> Wish:
        key, request, at_once = self.key(), self.request_id(), self.random.random() < 0.3
        return Wish(
            f"drop {key} {at_once=}",
            lambda lake: _nothing(lake.catalog.dropped.drop("", *key, now=at_once, request_id=request)),
            lambda model: model.drop_table(key, at_once),
            recorded=True,
            table=key,
        )

    def undrop(self) -> Wish:
        """Mostly of a dropped table, under its own name or another one."""
        some = [key for key, _ in self.model.dropped]
        key = self.random.choice(some) if some and self.random.random() < 0.9 else self.key()
        target = key if self.random.random() < 0.5 else (self.random.choice(DATABASES), self.random.choice(NAMES))
        request = self.request_id()

        def ask(lake: Lake) -> None:
            lake.catalog.dropped.undrop("", *key, new_database=target[0], new_name=target[1], request_id=request)

        def undrop(model: Model) -> None:
            model.undrop_table(key, target)
            if wish.told is None:
                wish.uid = model.tables[target].uid

        wish = Wish(f"undrop {key} as {target}", ask, undrop, recorded=True)
        return wish

    def purge(self) -> Wish:
        key, table = self.random.choice(self.model.dropped) if self.model.dropped else (self.key(), None)
        number, request = table.number if table else 1, self.request_id()
        return Wish(
            f"purge {key} {number}",
            lambda lake: lake.catalog.dropped.purge("", *key, table_id=number, request_id=request),
            lambda model: model.purge_table(key, number),
            recorded=True,
        )

    def rename(self) -> Wish:
        key, request = self.key(), self.request_id()
        target = (self.random.choice(DATABASES), self.random.choice(NAMES))
        return Wish(
            f"rename {key} to {target}",
            lambda lake: _nothing(lake.catalog.rename_lake_table("", *key, *target, request_id=request)),
            lambda model: model.rename_table(key, target),
            recorded=True,
            table=key,
        )

    def label(self) -> Wish:
        key, request = self.key(), self.request_id()
        return Wish(
            f"label {key}",
            lambda lake: _nothing(lake.catalog.set_properties("", *key, {"label": request}, request_id=request)),
            lambda model: model.set_label(key, request),
            recorded=True,
            table=key,
        )

    def open(self) -> Wish:
        key, request, start = self.key(), self.request_id(), self.random.random() < 0.8
        overwrites = self.random.random() < 0.15
        operation = t.OVERWRITE_TABLE if overwrites else t.APPEND
        return Wish(
            f"open {key} {overwrites=} {start=}",
            lambda lake: lake.open(
                _table(lake, key), operation, start=start, timeout_ms=TIMEOUT_MS, request_id=request
            ),
            lambda model: model.open(key, overwrites, start),
            recorded=True,
            table=key,
            instant=ANY,
        )

    def start(self) -> Wish:
        key, instant = self.writer()
        return Wish(
            f"start {key} {instant}",
            lambda lake: _nothing(lake.timeline.start(_table(lake, key).table_id, instant, t.WorkProfile())),
            lambda model: model.start(key, instant),
            table=key,
            instant=instant,
        )

    def stage(self) -> Wish:
        key, instant = self.writer()
        number = 1
        if key in self.model.tables and instant in self.model.tables[key].instants:
            number = self.model.tables[key].instants[instant].requests + 1
        given = self.new_files(instant)
        return Wish(
            f"stage {key} {instant} request {number}: {len(given)} files",
            lambda lake: lake.stage(_table(lake, key), instant, number, given),
            lambda model: model.stage(key, instant, number, [one.path for one in given]),
            table=key,
            instant=instant,
        )

    def commit(self) -> Wish:
        key, instant = self.writer()
        given = self.new_files(instant)
        draft = CommitDraft(instant, files(*given))
        return Wish(
            f"commit {key} {instant} with {len(given)} files",
            lambda lake: lake.timeline.commit(_table(lake, key), draft).version,
            lambda model: model.commit(key, instant, [one.path for one in given]),
            table=key,
            instant=instant,
        )

    def rollback(self) -> Wish:
        key, instant = self.writer()
        return Wish(
            f"roll back {key} {instant}",
            lambda lake: _nothing(lake.timeline.rollback(_table(lake, key), instant, "because")),
            lambda model: model.rollback(key, instant),
            table=key,
        )

    def heartbeat(self) -> Wish:
        key = self.key()
        instants = list(self.model.tables[key].instants) if key in self.model.tables else []

        def ask(lake: Lake) -> set[int]:
            return set(lake.timeline.heartbeat(_table(lake, key).table_id, instants))

        return Wish(
            f"heartbeat of {key} {instants}",
            ask,
            lambda model: model.heartbeat(key, instants),
            table=key,
            instant=ANY,
            renews=True,
        )

    def sweep(self) -> Wish:
        return Wish(SWEEP, lambda lake: _nothing(lake.timeline.roll_back_expired()), lambda model: model.sweep())

    def wait(self) -> Wish:
        self.clock.advance(self.random.choice([1, 10, TIMEOUT_MS + 1]))
        self.model.now = self.clock.ms
        return self.sweep()

    def read(self) -> Wish:
        """Any existing version, from a process whose caches may be old. Its content never changes."""
        key = self.key()
        last = len(self.model.tables[key].commits) if key in self.model.tables else 0
        version = self.random.randint(0, last)

        def ask(lake: Lake) -> list[str]:
            found = lake.snapshots.snapshot("", *key, SnapshotReference(version=version))
            return sorted(texts(found.snapshot.entries().column("path")))

        return Wish(
            f"read {key} version {version}", ask, lambda model: model.read(key, version), table=key, instant=ANY
        )

    def new_files(self, instant: int) -> list[Any]:
        count = self.random.choice([0, 1, 2, 3, 12])
        return [file(instant, f"f{next(self.numbers)}", self.random.randrange(3)) for _ in range(count)]


def _table(lake: Lake, key: TableKey) -> LakeTable:
    return lake.catalog.get_lake_table("", *key)


def _nothing(_: object) -> None:
    return None
