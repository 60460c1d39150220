"""Watchers over kill -9 of the service, and over two services of one store: every event once, and in one order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from lakemark_proto.v1 import catalog_pb2
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.events_pb2_grpc import EventServiceStub
from tests.contract.conftest import SHARED_URLS
from tests.fault.killable import LOST, Killable, Stubborn
from tests.integration.grpc_server import connected, running_service
from tests.stores import store_url

WAIT_S = 120.0
DATABASES = 120
KILLS = 4
HEARTBEAT_MS = 200


class ResumingWatcher(threading.Thread):
    """Watches over all lives of a service until it has been told the last database."""

    def __init__(self, service: Killable, consumer: str = "") -> None:
        super().__init__()
        self.offsets: list[int] = []
        self.names: list[str] = []
        self.streams = 0
        self._service = service
        self._consumer = consumer
        self._place = pb.EventPosition()

    def run(self) -> None:
        while not self.names or self.names[-1] != last_name():
            try:
                with grpc.insecure_channel(self._service.address()) as channel:
                    self._watch(EventServiceStub(channel))
            except grpc.RpcError as error:
                if error.code() not in LOST:  # type: ignore[attr-defined]
                    raise

    def _watch(self, stub: EventServiceStub) -> None:
        self.streams += 1
        request = pb.WatchEventsRequest(begin=self._place, heartbeat_ms=HEARTBEAT_MS)
        if self._consumer:
            request = pb.WatchEventsRequest(consumer=self._consumer, member="one", heartbeat_ms=HEARTBEAT_MS)
        for response in stub.WatchEvents(request):
            self.offsets += [event.offset for event in response.events]
            self.names += [event.database for event in response.events]
            self._place = pb.EventPosition(after=response.upto, epoch=response.epoch)
            if self._consumer and response.events:
                stub.AcknowledgeEvents(
                    pb.AcknowledgeEventsRequest(
                        consumer=self._consumer, offset=response.upto, epoch=response.epoch, token=response.token
                    )
                )
            if self.names and self.names[-1] == last_name():
                return


def name_of(number: int) -> str:
    return f"db{number}"


def last_name() -> str:
    return name_of(DATABASES - 1)


def create(client: Stubborn, number: int) -> None:
    request = catalog_pb2.CreateDatabaseRequest(request_id=name_of(number))
    request.database.name = name_of(number)
    client.ask(lambda wire: wire.catalog.CreateDatabase(request))


def test_watchers_resume_when_the_service_is_killed(tmp_path: Path) -> None:
    service = Killable(store_url(tmp_path), f"{tmp_path}/warehouse")
    try:
        service.start()
        writer = Stubborn(service)
        with grpc.insecure_channel(service.address()) as channel:
            EventServiceStub(channel).CreateConsumer(pb.CreateConsumerRequest(name="c"))
        watchers = [ResumingWatcher(service), ResumingWatcher(service), ResumingWatcher(service, "c")]
        for watcher in watchers:
            watcher.start()
        for number in range(DATABASES):
            if number and number % (DATABASES // KILLS) == 0:
                killing = threading.Thread(target=lambda: (service.kill(), service.start()))
                killing.start()
                create(writer, number)
                killing.join(WAIT_S)
            else:
                create(writer, number)
        for watcher in watchers:
            watcher.join(WAIT_S)
            assert not watcher.is_alive()
        with grpc.insecure_channel(service.address()) as channel:
            log = EventServiceStub(channel).ListEvents(pb.ListEventsRequest()).events
    finally:
        service.end()
    expected = ["default", *map(name_of, range(DATABASES))]
    assert [event.database for event in log] == expected, "every acknowledged change has one event"
    for watcher in watchers[:2]:
        assert watcher.names == expected
        assert watcher.streams > 1
    told = watchers[2]  # at least once: it had no time to acknowledge some
    assert list(dict.fromkeys(told.names)) == expected
    assert sorted(set(told.offsets)) == list(dict.fromkeys(told.offsets))


@pytest.mark.parametrize("backend", SHARED_URLS)
def test_watchers_of_two_services_see_one_order(backend: str, tmp_path: Path) -> None:
    url_of: Callable[[Path], str] = SHARED_URLS[backend]
    url = url_of(tmp_path)
    writers, each, watchers = 4, 25, 2
    with ExitStack() as stack:
        services = [stack.enter_context(running_service(tmp_path, store=url)) for _ in range(2)]
        clients = [stack.enter_context(connected(service)) for service in services]
        streams = [stack.enter_context(client.events(0)) for client in clients for _ in range(watchers)]
        pool = stack.enter_context(ThreadPoolExecutor(writers + len(streams)))

        def write(number: int) -> None:
            for turn in range(each):
                clients[number % 2].databases.create(f"w{number}_{turn}")

        seen = [
            pool.submit(lambda stream: [next(stream) for _ in range(1 + writers * each)], stream) for stream in streams
        ]
        for written in [pool.submit(write, number) for number in range(writers)]:
            written.result(WAIT_S)
        orders = [[(event.offset, event.database) for event in one.result(WAIT_S)] for one in seen]
    first = orders[0]
    assert all(order == first for order in orders)
    assert [offset for offset, _ in first] == list(range(1, len(first) + 1))
    for number in range(writers):
        own = [name for _, name in first if name.startswith(f"w{number}_")]
        assert own == [f"w{number}_{turn}" for turn in range(each)]
