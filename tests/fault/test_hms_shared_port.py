"""Several services on one store and one Metastore port: clients lose connections when one is killed, and nothing else.

Only a store that several processes share can prove it: ``scripts/test-postgres`` or ``scripts/test-fdb`` with this
file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import pytest
from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from hmsclient.genthrift.hive_metastore.ttypes import AlreadyExistsException
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from tests.fault.killable import Killable
from tests.integration.hms_objects import partition, table
from tests.stores import STORE_VARIABLE, store_url
from tests.trino_server import free_port

pytestmark = pytest.mark.skipif(
    os.environ.get(STORE_VARIABLE, "sqlite") == "sqlite", reason="one process at a time serves a SQLite store"
)

T = TypeVar("T")
WRITERS = 4
KILLS = 4


@pytest.fixture
def services(tmp_path: Path) -> Iterator[tuple[Killable, Killable]]:
    shared: dict[str, Any] = {"hms_enabled": True, "hms_port": free_port(), "hms_shared_ports": True}
    first, second = (Killable(store_url(tmp_path), str(tmp_path / "warehouse"), **shared) for _ in range(2))
    first.start()
    second.start()
    yield first, second
    first.end()
    second.end()


class Client:
    """Opens a new connection after it has lost one, and asks again, as Hive's client does."""

    def __init__(self, uri: str) -> None:
        self._port = int(uri.rpartition(":")[2])
        self._transport: Any = None
        self.lost = 0

    def ask(self, question: Callable[[Any], T]) -> T:
        while True:
            try:
                if self._transport is None:
                    self._transport = TBufferedTransport(TSocket("127.0.0.1", self._port))
                    self._transport.open()
                return question(ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(self._transport)))
            except (TTransportException, OSError, EOFError):
                self.close()
                self.lost += 1

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None


def test_a_service_that_is_killed_takes_nothing_with_it(services: tuple[Killable, Killable]) -> None:
    uri = services[0].address("hms")
    assert services[1].address("hms") == uri
    stop = Event()
    with ThreadPoolExecutor(WRITERS) as pool:
        runs = [pool.submit(_write, uri, f"w{number}", stop) for number in range(WRITERS)]
        try:
            for turn in range(KILLS):
                killed = services[turn % 2]
                killed.kill()
                _at_least(uri, 10)  # the other one serves both
                killed.start()
        finally:
            stop.set()
        written = {f"w{number}": run.result() for number, run in enumerate(runs)}
    client = Client(uri)
    for name, (values, _) in written.items():
        stored = client.ask(lambda hive, name=name: hive.get_partition_names("default", name, -1))  # type: ignore[misc]
        assert sorted(stored) == sorted(f"p={value}" for value in values)
        assert values
    client.close()
    assert sum(lost for _, lost in written.values()) > 0


def _write(uri: str, name: str, stop: Event) -> tuple[list[int], int]:
    """Adds partitions one by one, and sees each at once on a new connection. Returns them, and how often it was cut."""
    client, reader = Client(uri), Client(uri)

    def create(hive: Any) -> None:
        try:
            hive.create_table(table(name, keys="p int"))
        except AlreadyExistsException:  # the answer to an earlier request was lost
            if not client.lost:
                raise

    def add(hive: Any, value: int) -> None:
        try:
            hive.add_partition(partition([str(value)], of=name))
        except AlreadyExistsException:
            if not client.lost:
                raise

    client.ask(create)
    values: list[int] = []
    while not stop.is_set():
        value = len(values)
        client.ask(lambda hive, value=value: add(hive, value))  # type: ignore[misc]
        values.append(value)
        reader.close()
        names = reader.ask(lambda hive: hive.get_partition_names("default", name, -1))
        assert f"p={value}" in names
    client.close()
    reader.close()
    return values, client.lost + reader.lost


def _at_least(uri: str, calls: int) -> None:
    client = Client(uri)
    for _ in range(calls):
        assert "default" in client.ask(lambda hive: hive.get_all_databases())
        client.close()
