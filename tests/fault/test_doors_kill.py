"""kill -9 of the service while applications insert through doors.

Each application does what Spark and Hive's client do: one connection for all of its threads, and a call whose
connection broke is made again over a new one. Half of them are the same user on the same host, so nothing but the
connection tells them apart.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from hmsclient.genthrift.hive_metastore.ttypes import InvalidOperationException, MetaException
from thrift.Thrift import TApplicationException
from thrift.transport.TTransport import TTransportException

from lakemark import connect
from tests.fault.killable import Killable
from tests.integration.doors.statements import SparkClient
from tests.lengths import long, slow
from tests.stores import store_url

T = TypeVar("T")

APPLICATIONS: Final = 12
RETRIES: Final = 4
DOUBT_S: Final = 5.0
"""Longer than a service that was killed takes to be there again, on a busy machine too."""
LOST: Final = (TTransportException, TApplicationException, EOFError, OSError)
REFUSED: Final = (InvalidOperationException, MetaException)
ROWS: Final = 3


class Application:
    """Runs statements in ``threads`` threads until it is told to stop."""

    def __init__(self, service: Killable, number: int, threads: int) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._client = SparkClient(_port(service), "ann" if number % 2 else f"user{number}")
        self._ids = iter(range(number * 1_000_000, (number + 1) * 1_000_000))
        self.done: list[int] = []
        self.refused: list[int] = []
        self.lost: list[int] = []
        self.stop = threading.Event()
        self.failed: list[BaseException] = []
        self.threads = [threading.Thread(target=self._run) for _ in range(threads)]

    def _run(self) -> None:
        try:
            while not self.stop.is_set():
                with self._lock:
                    rows = [next(self._ids) for _ in range(ROWS)]
                try:
                    self._statement(rows)
                except REFUSED:
                    self.refused += rows
                    self.stop.wait(DOUBT_S * 1.1)  # as its message asks for
                except LOST:
                    self.lost += rows
                else:
                    self.done += rows
        except BaseException as error:  # for the thread of the test
            self.failed.append(error)
            raise

    def _statement(self, rows: list[int]) -> None:
        directory = self._call(lambda client: client.look_up("t__append"))
        self._call(lambda client: client.look_up("t__append"))
        self._client.write(directory, rows)
        shown = self._call(lambda client: client.client.get_table("default", "t__append"))
        shown.parameters = {}
        self._call(lambda client: client.send("t__append", shown))

    def _call(self, call: Callable[[SparkClient], T]) -> T:
        """As Hive's client makes a call: a few times, each over a new connection."""
        for attempt in range(RETRIES):
            with self._lock:
                try:
                    return call(self._client)
                except LOST:
                    if attempt + 1 == RETRIES:
                        raise
                    time.sleep(0.05)
                    self._client.close()
                    try:
                        self._client.connect(_port(self._service))
                    except LOST:
                        continue
        raise AssertionError


def _port(service: Killable) -> int:
    return int(service.address("hms").rpartition(":")[2])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Killable]:
    service = Killable(store_url(tmp_path), f"{tmp_path}/warehouse", hms_enabled=True, hms_port=0, door_doubt_s=DOUBT_S)
    service.start()
    yield service
    service.end()


@pytest.mark.parametrize(
    ("kills", "threads"),
    [
        pytest.param(4, 1, marks=pytest.mark.slow),
        (4, 3),
        pytest.param(long(50), 3, marks=slow(1_200)),
    ],
    ids=["one at a time", "three at a time", "many"],
)
def test_what_was_told_is_there_once(service: Killable, kills: int, threads: int) -> None:
    chance = random.Random(kills * threads)
    with connect(service.address()) as client:
        client.tables.create("default.t", "id int")
    applications = [Application(service, number, threads) for number in range(APPLICATIONS)]
    for application in applications:
        for thread in application.threads:
            thread.start()
    try:
        for number in range(kills):
            # Statements of all applications are at every step of theirs; every third kill is one after the doubt.
            time.sleep(chance.uniform(0.3, 1.2) + (number % 3 == 2) * DOUBT_S * 1.2)
            service.kill()
            service.start()
        time.sleep(DOUBT_S * 1.2)
    finally:
        for application in applications:
            application.stop.set()
        for thread in (thread for application in applications for thread in application.threads):
            thread.join(60)
    assert [error for application in applications for error in application.failed] == []
    with connect(service.address()) as client:
        times: Counter[Any] = Counter(client.read("default.t").column("id").to_pylist())
    done, refused, lost = (
        {row for application in applications for row in rows(application)}
        for rows in (lambda one: one.done, lambda one: one.refused, lambda one: one.lost)
    )
    print(f"{len(done)} rows told, {len(refused)} refused, {len(lost)} unknown, {service.kills} kills")
    assert done - set(times) == set(), "told, and not there"
    assert [row for row, number in times.items() if number > 1] == [], "twice"
    print(f"{len(refused & set(times))} rows were refused in doubt, though they are there")
    assert len(done) > kills * ROWS
