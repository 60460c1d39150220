"""Two services get the same requests, from one client each; the store of one of them fails all the time.

The client asks again until it knows the outcome. So both services must give the same answers and end with the same
content. A fault may only change how long it takes; everything else is a defect. No model is needed, and every kind of
request can take part.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lakemark import Client
from lakemark.cli.output import plain
from lakemark.client.calls import Backoff
from lakemark.client.writer import Writer
from lakemark.files import DataFile
from lakemark_core.errors import LakemarkError
from lakemark_server.kv import open_store
from lakemark_server.process import Service
from lakemark_server.settings import Settings
from lakemark_server.verify import verify
from tests.event_replay import replay_problems
from tests.faulty_store import Faults, FaultyStore, Rates
from tests.lakes import Clock
from tests.stores import store_url

STEPS = 70
TABLES = ("default.a", "default.b", "d1.a")
REFERENCES = ("r1", "r2")
PATIENT = Backoff(first_s=0.000_1, most_s=0.001, attempts_max=300)

Request = Callable[["Twin"], Any]


class Twin:
    """One of the two: its service, its client, and its writers by number."""

    def __init__(self, directory: Path, rates: Rates, seed: int, cleanup: ExitStack) -> None:
        directory.mkdir()
        self.directory = directory
        self.clock = Clock()
        self.inner = open_store(store_url(directory))
        cleanup.callback(self.inner.close)
        self.faults = Faults(seed, rates)
        self.writers: dict[int, Writer] = {}
        given: dict[str, Any] = {
            "store": store_url(directory), "warehouse": f"{directory}/warehouse", "grpc_port": 0, "hms_enabled": False,
            "sweep_interval_s": 3_600, "log_level": "error",
        }  # fmt: skip
        with self.faults.quiet():
            service = Service(Settings(**given), FaultyStore(self.inner, self.faults), self.clock)
        service.start()
        cleanup.callback(self.stop, service)
        self.client = cleanup.enter_context(Client(service.grpc_address, 60, PATIENT))

    def stop(self, service: Service) -> None:
        with self.faults.quiet():
            service.stop()

    def answer(self, request: Request) -> str:
        """What it answers or raises, without legitimate differences: directories, ports, and ids of tables."""
        self.clock.advance(7)
        try:
            text = json.dumps(plain(request(self)), sort_keys=True)
        except LakemarkError as error:
            text = f"{error.code}: {error.message}"
        text = re.sub(r"(/warehouse/[a-z0-9_./]+)-[0-9a-f]{8}", r"\1-_", text.replace(str(self.directory), ""))
        return re.sub(r"(\"table_id\": |table id |127\.0\.0\.1:)\d+", r"\1_", text)

    def content(self) -> dict[str, Any]:
        """All content that can be read."""
        with self.faults.quiet():
            client, found = self.client, {"databases": self.client.databases.list()}
            for table in TABLES:
                found[table] = self.answer(lambda twin, table=table: _everything(client, table))  # type: ignore[misc]
            return found


def _everything(client: Client, table: str) -> list[Any]:
    branches = client.branches.list(table)
    found: list[Any] = [client.tables.get(table), branches, client.tags.list(table), client.tables.schemas(table)]
    found.append(client.timeline.instants(table))
    for branch in branches:
        versions = client.timeline.versions(table, branch=branch.name)
        found.append(versions)
        for version in versions:
            plan = client.plan(table, version=version.version, branch=branch.name)
            found.append(sorted(map(repr, plan)))
    return found


class Script:
    """Random requests, each of which can be sent to either twin."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = iter(range(1_000_000))
        self.open: list[int] = []

    def __iter__(self) -> Iterator[tuple[str, Request]]:
        kinds: Mapping[Callable[[], tuple[str, Request]], int] = {
            self.catalog: 4, self.begin: 5, self.stage: 3, self.end: 5, self.write: 8, self.replace: 3,
            self.references: 5, self.restore: 2, self.schema: 3, self.read: 3,
        }  # fmt: skip
        for table in TABLES[:2]:
            yield f"create {table}", lambda twin, table=table: twin.client.tables.create(table, "id bigint, x int")  # type: ignore[misc]
        while True:
            yield self.random.choices(list(kinds), list(kinds.values()))[0]()

    def table(self) -> str:
        return self.random.choice(TABLES[:2] * 6 + TABLES[2:])

    def branch(self) -> str:
        return self.random.choice(["", "", "", "main", REFERENCES[0]])

    def catalog(self) -> tuple[str, Request]:
        table, other, number = self.table(), self.table(), str(next(self.numbers))
        return self.random.choice(
            [
                (f"create {TABLES[0]}", lambda twin: twin.client.tables.create(TABLES[0], "id bigint, x int")),
                (f"create {TABLES[1]}", lambda twin: twin.client.tables.create(TABLES[1], "id bigint, x int")),
                ("create d1", lambda twin: twin.client.databases.create("d1")),
                ("drop d1", lambda twin: twin.client.databases.drop("d1")),
                (f"create {table}", lambda twin: twin.client.tables.create(table, "id bigint, x int")),
                (f"drop {table}", lambda twin: twin.client.tables.drop(table)),
                (f"undrop {table}", lambda twin: twin.client.tables.undrop(table)),
                (f"undrop {table} as {other}", lambda twin: twin.client.tables.undrop(table, other)),
                (f"rename {table} {other}", lambda twin: twin.client.tables.rename(table, other)),
                (f"label {table}", lambda twin: twin.client.tables.set_properties(table, {"label": number})),
            ]
        )

    def begin(self) -> tuple[str, Request]:
        table, branch, number = self.table(), self.branch(), next(self.numbers)
        operation = self.random.choice(["append", "append", "upsert", "overwrite_table"])
        start = self.random.random() < 0.7
        self.open.append(number)

        def request(twin: Twin) -> Any:
            writer = twin.writers[number] = twin.client.begin(table, operation, branch=branch, start=start)  # type: ignore[arg-type]
            return writer.instant, writer.read_version, writer.state

        return f"begin {number}: {operation} {table} {branch}", request

    def stage(self) -> tuple[str, Request]:
        number, names = self.some_writer(), self.names()
        return f"stage {number}", self.by_writer(number, lambda writer: writer.stage(_files(writer, names)))

    def end(self) -> tuple[str, Request]:
        number, names = self.some_writer(), self.names()
        if self.random.random() < 0.2:
            return f"roll back {number}", self.by_writer(number, lambda writer: writer.rollback("because"))
        return f"commit {number}", self.by_writer(number, lambda writer: writer.commit(_files(writer, names)))

    def write(self) -> tuple[str, Request]:
        table, branch, names = self.table(), self.branch(), self.names()

        def request(twin: Twin) -> Any:
            with twin.client.begin(table, branch=branch) as writer:
                return writer.commit(_files(writer, names))

        return f"append to {table} {branch}", request

    def replace(self) -> tuple[str, Request]:
        """Replaces a file of the latest version by another one of the same group."""
        table, branch, which = self.table(), self.branch(), self.random.randrange(1_000)

        def request(twin: Twin) -> Any:
            old = sorted(twin.client.plan(table, branch=branch), key=lambda one: one.path)
            if not old:
                return None
            gone = old[which % len(old)]
            with twin.client.begin(table, "upsert", branch=branch, file_groups=[gone.file_group]) as writer:
                path = f"{writer.instant}/{gone.file_group}/a.parquet"
                return writer.commit([DataFile(path, 10, 5, file_group=gone.file_group)], removed=[gone.path])

        return f"replace in {table} {branch}", request

    def references(self) -> tuple[str, Request]:
        table, name, branch = self.table(), self.random.choice((REFERENCES[0],) * 3 + REFERENCES[1:]), self.branch()
        version, fast = self.random.choice([0, 0, 1, 2]), self.random.random() < 0.3
        return self.random.choice(
            [
                (
                    f"branch {table} {name} {branch} {version}",
                    lambda twin: twin.client.branches.create(table, name, from_branch=branch, from_version=version),
                ),
                (f"drop branch {table} {name}", lambda twin: twin.client.branches.drop(table, name)),
                (
                    f"merge {table} {name} {fast}",
                    lambda twin: twin.client.branches.merge(table, name, fast_forward_only=fast),
                ),
                (
                    f"tag {table} {name}",
                    lambda twin: twin.client.tags.create(table, f"t{name}", branch=branch, version=version),
                ),
                (f"drop tag {table} {name}", lambda twin: twin.client.tags.drop(table, f"t{name}")),
            ]
        )

    def restore(self) -> tuple[str, Request]:
        table, version, branch = self.table(), self.random.randrange(6), self.branch()
        return (
            f"restore {table} {version} {branch}",
            lambda twin: twin.client.timeline.restore(table, version, branch=branch),
        )

    def schema(self) -> tuple[str, Request]:
        table, number = self.table(), next(self.numbers)
        return self.random.choice(
            [
                (f"add column {table}", lambda twin: twin.client.tables.add_column(table, f"c{number} string")),
                (f"rename column {table}", lambda twin: twin.client.tables.rename_column(table, "x", f"x{number}")),
                (f"widen column {table}", lambda twin: twin.client.tables.widen_column(table, "x", "bigint")),
            ]
        )

    def read(self) -> tuple[str, Request]:
        table, branch = self.table(), self.branch()
        return f"read {table} {branch}", lambda twin: sorted(map(repr, twin.client.plan(table, branch=branch)))

    def names(self) -> list[str]:
        return [f"f{next(self.numbers)}" for _ in range(self.random.choice([0, 1, 1, 3, 40]))]

    def some_writer(self) -> int:
        """Mostly one of the last writers."""
        return self.random.choice((self.open or [0])[-4:])

    def by_writer(self, number: int, request: Callable[[Writer], Any]) -> Request:
        return lambda twin: request(twin.writers[number]) if number in twin.writers else None


def _files(writer: Writer, names: list[str]) -> list[DataFile]:
    return [DataFile(f"{writer.instant}/{name}/a.parquet", 10, 5) for name in names]


@contextmanager
def twins(directory: Path, seed: int) -> Iterator[tuple[Twin, Twin]]:
    with ExitStack() as cleanup:
        # No crashes, because the service is this process. The tests of the domains have them.
        rates = Rates(
            unavailable=0.005, too_old=0.005, conflict=0.1, expired=0.05, unknown_lost=0.1, unknown_done=0.15,
            disk_full=0.1,
        )  # fmt: skip
        well = Twin(directory / "well", Rates(), seed, cleanup)
        yield well, Twin(directory / "sick", rates, seed, cleanup)


def seeds() -> list[int]:
    if only := os.environ.get("LAKEMARK_FAULT_SEED"):
        return [int(only)]
    return list(range(int(os.environ.get("LAKEMARK_FAULT_SEEDS", "6"))))


@pytest.mark.parametrize("seed", seeds())
def test_faults_change_nothing_but_the_time_it_takes(tmp_path: Path, seed: int) -> None:
    told: list[str] = []
    with twins(tmp_path, seed) as (well, sick):
        for _, (what, request) in zip(range(STEPS), Script(seed), strict=False):
            right, found = well.answer(request), sick.answer(request)
            told.append(f"{what}: {right}")
            assert found == right, f"LAKEMARK_FAULT_SEED={seed}\n" + "\n".join(told[-8:]) + f"\n{found}"
        assert sick.content() == well.content()
        assert [*verify(well.inner), *verify(sick.inner), *replay_problems(sick.inner)] == [], "\n".join(told)
        assert len(sick.faults.counts()) > 4, "hardly any fault was tried"
