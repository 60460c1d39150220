"""Events through a real service and client: streams, pages, consumers, and what is told when something is wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemark import Client, EventStream
from lakemark.client.calls import Backoff
from lakemark.errors import (
    ConsumerNotFound,
    ConsumerTaken,
    EventsTrimmed,
    InvalidArgument,
    OffsetUnknown,
    Overloaded,
    Unavailable,
)
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_server.events.upkeep import EVENTS_A_MARK, EventRetention, LogUpkeep
from lakemark_server.process import Service
from tests.integration.grpc_server import connected, running_service

BEAT_S = 0.1


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running_service(tmp_path, quota_watchers=3, request_retain_s=600) as service:
        yield service


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with connected(service) as client:
        yield client


def make(client: Client, *names: str) -> None:
    for name in names:
        client.databases.create(name)


def names(stream: EventStream, count: int) -> list[str]:
    """The databases of the next events."""
    return [next(stream).database for _ in range(count)]


def test_a_stream_has_what_was_and_what_comes(client: Client) -> None:
    make(client, "one")
    with client.events(0) as events:
        assert names(events, 2) == ["default", "one"]
        client.tables.create("one.t", "id bigint")
        created = next(events)
        assert (created.kind, created.subject, created.offset, created.epoch) == ("table_created", "one.t", 3, 0)
        assert created.detail["after"]["schema"]["columns"][0]["name"] == "id"
        assert created.cloud_event()["type"] == "io.lakemark.table_created"


def test_a_stream_from_now_on_does_without_the_past(client: Client) -> None:
    make(client, "one")
    with client.events() as events:
        make(client, "two")
        assert names(events, 1) == ["two"]


def test_what_there_is_can_be_listed_by_filter(client: Client) -> None:
    make(client, "one", "two")
    client.tables.create("two.t", "id bigint")
    assert [event.database for event in client.events(follow=False)] == ["default", "one", "two", "two"]
    assert [event.offset for event in client.events(2, follow=False)] == [3, 4]
    assert [event.offset for event in client.events(database="two", follow=False)] == [3, 4]
    assert [event.offset for event in client.events(table="two.*", follow=False)] == [4]
    assert [event.offset for event in client.events(table="t", kinds=["table_created"], follow=False)] == [4]
    assert list(client.events(4, follow=False)) == []
    log = client.event_log()
    assert (log.first, log.last, log.epoch) == (1, 4, 0)
    assert log.size_bytes > 100
    assert 0 < log.first_ms <= log.last_ms


def test_a_quiet_stream_says_how_far_it_is(client: Client) -> None:
    with client.events(0, kinds=["table_created"], heartbeat_s=BEAT_S) as events:
        make(client, "one", "two")
        responses = client._calls.follow(events._stub.WatchEvents, lambda: events._request)
        last = next(response for response in responses if response.upto == 3)
        assert (list(last.events), last.end) == ([], 3)
        responses.close()


def test_wrong_requests_are_told_in_words(client: Client) -> None:
    with pytest.raises(OffsetUnknown, match="no event with offset 7; the last one has 1") as error:
        client.events(7)
    assert error.value.details["last_offset"] == "1"
    with pytest.raises(InvalidArgument, match="there is no kind of events 'commit'; there are: database_created"):
        client.events(kinds=["commit"])
    with pytest.raises(InvalidArgument, match="'a b' is no pattern"):
        client.events(database="a b")
    with pytest.raises(InvalidArgument, match="no event can fit"):
        client.events(table="a.*", kinds=["database_created"])
    with pytest.raises(ConsumerNotFound, match="has no consumer 'c'; create it"):
        client.events(consumer="c")
    with pytest.raises(InvalidArgument, match="its own place and filter"):
        client.events(3, consumer="c")


def test_what_was_trimmed_is_told(service: Service, client: Client) -> None:
    client.consumers.create("late", 0)
    events = [pb.Event(kind=pb.CLEANED, catalog="hive") for _ in range(EVENTS_A_MARK)]
    service.catalog.mutations.run(lambda mutation: [mutation.tell(event) for event in events])
    LogUpkeep(service.store, lambda: 1 << 50, EventRetention(0, 1 << 30)).round()
    first = client.event_log().first
    assert first == EVENTS_A_MARK + 2
    with pytest.raises(EventsTrimmed) as error:
        client.events(1)
    assert error.value.details["first_offset"] == str(first)
    with pytest.raises(EventsTrimmed):
        client.events(consumer="late")
    client.consumers.seek("late", first - 1)


def test_a_consumer_goes_on_where_it_was(client: Client) -> None:
    made = client.consumers.create("c", 0, patterns=["o*", "t*"], kinds=["database_created"], owner="ada")
    assert (made.offset, made.owner, made.patterns, made.kinds) == (0, "ada", ("o*", "t*"), ("database_created",))
    make(client, "one", "other", "two", "x", "three")
    with client.events(consumer="c") as events:
        assert names(events, 3) == ["one", "other", "two"]
    assert client.consumers.get("c").offset == 3  # with "two" it was not done
    with client.events(consumer="c") as events:
        assert names(events, 1) == ["two"]
        events.acknowledge()
    assert [event.database for event in client.events(consumer="c", follow=False)] == ["three"]
    consumer = client.consumers.get("c")
    assert (consumer.offset, consumer.end, consumer.behind) == (6, 6, 0)
    assert [consumer.name for consumer in client.consumers.list()] == ["c"]
    assert client.consumers.drop("c")
    assert not client.consumers.drop("c", if_exists=True)


def test_members_of_a_group_take_turns(client: Client) -> None:
    client.consumers.create("c", 0)
    make(client, "one", "two", "three")
    first = client.events(consumer="c", member="first")
    assert names(first, 1) == ["default"]
    assert client.consumers.get("c").member == "first"
    with pytest.raises(ConsumerTaken, match="first has consumer 'c' now"):
        client.consumers.acknowledge("c", 3, epoch=0)
    seen: list[str] = []
    second = client.events(consumer="c", member="second", heartbeat_s=BEAT_S)
    waiting = threading.Thread(target=lambda: seen.extend(names(second, 2)))
    waiting.start()
    assert names(first, 1) == ["one"]
    first.acknowledge()
    first.close()
    waiting.join(30)
    assert seen == ["two", "three"]
    second.close()


def test_a_seek_moves_who_reads(client: Client) -> None:
    client.consumers.create("c", 0)
    make(client, "one", "two")
    with client.events(consumer="c", heartbeat_s=BEAT_S) as events:
        assert names(events, 3) == ["default", "one", "two"]
        assert client.consumers.seek("c", 1).offset == 1
        assert names(events, 2) == ["one", "two"]
        events.acknowledge()
    assert client.consumers.get("c").offset == 3


def test_a_tenant_has_only_so_many_streams(service: Service) -> None:
    with Client(service.grpc_address, 0.3, Backoff(0.01, 0.05, 3)) as client:
        streams = [client.events(0) for _ in range(3)]
        with pytest.raises(Overloaded, match="its quota of watchers is 3"):
            client.events(0)
        streams[0].close()
        client.events(0)


def test_a_slow_stream_holds_up_nobody_and_misses_nothing(service: Service, client: Client) -> None:
    slow, fast = client.events(0), client.events(0)
    filling = "x" * 200_000
    count = 100  # 20 MB: neither the connection nor the ring holds them
    for number in range(count):
        event = pb.Event(kind=pb.COMMITTED, catalog="hive", table=f"t{number}", request_id=filling)
        service.catalog.mutations.run(lambda mutation, event=event: mutation.tell(event))
    expected = ["", *(f"t{number}" for number in range(count))]
    assert [next(fast).table for _ in expected] == expected
    make(client, "one")
    assert [next(slow).table for _ in expected] == expected
    assert [next(stream).database for stream in (slow, fast)] == ["one", "one"]
    slow.close()
    fast.close()


def test_a_stream_that_nobody_reads_ends_with_its_time(tmp_path: Path) -> None:
    with running_service(tmp_path, request_s_max=1.0) as service, connected(service) as client:
        stream = client.events(0)
        for _ in range(40):
            event = pb.Event(kind=pb.COMMITTED, catalog="hive", table="t", request_id="x" * 200_000)
            service.catalog.mutations.run(lambda mutation, event=event: mutation.tell(event))
        end = time.monotonic() + 30
        while service.events.feed.watched.get("hive"):
            assert time.monotonic() < end, "it holds its place for ever"
            time.sleep(0.01)
        assert sum(next(stream).table == "t" for _ in range(41)) == 40
        stream.close()


def test_streams_end_with_the_service_and_go_on_with_the_next(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        port = int(service.grpc_address.rpartition(":")[2])
        with Client(service.grpc_address, 30) as client:
            events = client.events(0)
            assert names(events, 1) == ["default"]
            service.stop()
            seen: list[str] = []
            reading = threading.Thread(target=lambda: seen.extend(names(events, 1)))
            reading.start()
            with running_service(tmp_path, grpc_port=port):
                make(client, "one")
                reading.join(30)
            assert seen == ["one"]


def test_a_stream_that_is_as_old_as_a_request_may_be_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    go_on = EventStream._go_on
    with running_service(tmp_path, request_s_max=1.0) as service, connected(service) as client:

        def counted(stream: EventStream) -> pb.WatchEventsRequest:
            asked.append(stream.upto)
            if len(asked) == 3:
                make(client, "one")
            return go_on(stream)

        monkeypatch.setattr(EventStream, "_go_on", counted)
        with client.events(0) as events:
            assert names(events, 2) == ["default", "one"]
    assert asked[:3] == [0, 1, 1]


def test_without_a_service_a_stream_fails_at_once() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(Unavailable, match="no Lakemark service answers"):
        client.events(0)
