"""Twelve Sparks insert through doors at once, while the service is killed again and again.

What a Spark was told of is there exactly once at the end, and whatever was read in between is one of the versions.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from lakemark import connect
from tests.e2e.conftest import SPARK_VERSIONS
from tests.e2e.spark_runner import SparkProcess, SparkStatementError, interpreter
from tests.fault.killable import Killable
from tests.lengths import long
from tests.stores import store_url

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SPARKS: Final = int(os.environ.get("LAKEMARK_TEST_KILL_SPARKS", "12"))
SECONDS: Final = long(60)
"""For so long the service is killed."""
PARTITIONS: Final = 4
STARTED_AT_ONCE: Final = 2
START_S_MAX: Final = 900.0
STATEMENT_S_MAX: Final = 600.0
"""They share the machine's cores, perhaps with other programs."""
ROWS_A_KILL: Final = 10
"""So many must have been told for each kill, so a slow machine is given time."""
ROWS_S_MAX: Final = 300.0


class Application:
    """One Spark, in a thread of its own. Half of them are the same user, so that only their connections differ."""

    def __init__(self, number: int, spark: SparkProcess, stop: threading.Event) -> None:
        self.number, self._spark, self._stop = number, spark, stop
        self._chance = random.Random(number)
        self.told: list[int] = []
        self.not_told: list[int] = []
        self.upserted: dict[int, list[int]] = {}  # by key: what it may be, the last that was told first
        self.reads: list[tuple[int, int]] = []
        self.failed: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def warm_up(self) -> None:
        """One statement of each kind. The first ones take by far the longest."""
        self._insert(0)
        self._upsert(0)
        self._read()

    def _run(self) -> None:
        try:
            number = 0
            while not self._stop.is_set():
                number += 1
                match self._chance.randrange(4):
                    case 0:
                        self._read()
                    case 1:
                        self._upsert(number)
                    case _:
                        self._insert(number)
        except BaseException as error:  # for the thread of the test
            self.failed = error
            raise

    def _insert(self, number: int) -> None:
        first = self.number * 1_000_000 + number * 10
        rows = [first, first + 1, first + 2]
        values = ", ".join(f"({row}, {row % PARTITIONS})" for row in rows)
        (self.told if self._said_done(f"INSERT INTO t__append VALUES {values}") else self.not_told).extend(rows)

    def _upsert(self, number: int) -> None:
        """Keys of its own, in partitions that others write as well."""
        key = self.number * 1_000 + self._chance.randrange(5)
        may_be = self.upserted.setdefault(key, [0])
        if self._said_done(f"INSERT INTO k__upsert VALUES ({key}, {number}, {key % PARTITIONS})"):
            may_be[:] = [number]
        else:
            may_be.append(number)

    def _said_done(self, statement: str) -> bool:
        try:
            self._spark.sql(statement, timeout_s=STATEMENT_S_MAX)
        except SparkStatementError:
            return False  # refused, in doubt, or the service was away for too long
        return True

    def _read(self) -> None:
        try:
            self.reads += self._spark.sql("SELECT count(*), sum(id) FROM t", timeout_s=STATEMENT_S_MAX)
        except SparkStatementError:
            return


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Killable]:
    """On one port through all its lives, as Sparks know it by one address."""
    warehouse = f"{tmp_path}/warehouse"
    service = Killable(store_url(tmp_path), warehouse, hms_enabled=True, hms_port=free_port(), grpc_port=free_port())
    service.start()
    yield service
    service.end()


@pytest.mark.timeout(SECONDS + 7_200)
@pytest.mark.parametrize("policy", ["partition", "row"])
def test_what_sparks_were_told_is_there_once(service: Killable, tmp_path: Path, policy: str) -> None:
    with connect(service.address()) as client:
        common = {"lakemark.conflict.policy": policy}
        client.tables.create("default.t", "id bigint, m int", partitioned_by=["m"], properties=common)
        keyed = common | {
            "lakemark.primary-key": "id,m",
            "lakemark.bucket.count": "2",
            "lakemark.write.mode": "merge-on-read",
        }
        client.tables.create("default.k", "id bigint, v int, m int", partitioned_by=["m"], properties=keyed)
    chance, stop = random.Random(policy), threading.Event()
    with ExitStack() as stack:

        def start(number: int) -> Application:
            spark = stack.enter_context(_spark(number, service.address("hms"), tmp_path / f"spark{number}"))
            application = Application(number, spark, stop)
            application.warm_up()
            return application

        with ThreadPoolExecutor(STARTED_AT_ONCE) as threads:
            applications = list(threads.map(start, range(SPARKS)))
        print(f"{policy}: {SPARKS} Sparks are ready")
        for one in applications:
            one.thread.start()
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            # Now soon after the last one, and now when what was in doubt is over.
            time.sleep(chance.choice([1, 5, 30]) * chance.uniform(0.5, 1.5))
            _await_rows(applications, ROWS_A_KILL * (service.kills + 1))
            service.kill()
            service.start()
        time.sleep(30)
        stop.set()
        for one in applications:
            one.thread.join(STATEMENT_S_MAX)
        assert not any(one.thread.is_alive() for one in applications)
    assert [one.failed for one in applications if one.failed is not None] == []
    with connect(service.address()) as client:
        _check(client, applications)
    told = _told(applications)
    print(f"{policy}: {service.kills} kills, {told} rows told, {sum(len(one.not_told) for one in applications)} not")
    assert told > ROWS_A_KILL * service.kills


def _spark(number: int, metastore_uri: str, work_dir: Path) -> SparkProcess:
    return SparkProcess(
        interpreter(SPARK_VERSIONS[number % len(SPARK_VERSIONS)]),
        metastore_uri,
        work_dir,
        settings={"spark.master": "local[1]", "spark.driver.memory": "512m"},
        variables={"HADOOP_USER_NAME": "etl" if number < SPARKS // 2 else f"etl{number}"},
        start_timeout_s=START_S_MAX,
    )


def _told(applications: list[Application]) -> int:
    return sum(len(one.told) for one in applications)


def _await_rows(applications: list[Application], more_than: int) -> None:
    until = time.monotonic() + ROWS_S_MAX
    while _told(applications) <= more_than and time.monotonic() < until:
        time.sleep(0.1)


def _check(client: Any, applications: list[Application]) -> None:
    times = Counter(client.read("default.t").column("id").to_pylist())
    told = {row for one in applications for row in one.told}
    assert told - set(times) == set(), "told, and not there"
    assert [row for row, number in times.items() if number > 1] == [], "twice"
    known = told | {row for one in applications for row in one.not_told}
    assert set(times) - known == set(), "nobody has written them"
    # Whoever reads sees a version, and rows are only added: count and sum tell which.
    versions = {(0, None)}
    for one in client.timeline.versions("default.t", limit=100_000):
        rows = client.read("default.t", version=one.version).column("id").to_pylist()
        versions.add((len(rows), sum(rows) if rows else None))
    assert [read for one in applications for read in one.reads if read not in versions] == []
    keyed = dict(zip(*(client.read("default.k").column(name).to_pylist() for name in ("id", "v")), strict=True))
    for one in applications:
        for key, may_be in one.upserted.items():
            assert keyed.get(key, 0) in may_be, f"key {key} is {keyed.get(key)}, and may be {may_be}"
