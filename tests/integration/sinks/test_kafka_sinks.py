"""Kafka through the whole service, with a real broker: order, headers, a broker that is away, and wrong topics."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lakemark import Client
from lakemark.client.sinks import Sink
from lakemark.errors import FailedPrecondition, InvalidArgument
from lakemark_proto.v1.events_pb2 import COMMITTED, Event
from tests.kafka_broker import KafkaBroker

WAIT_S = 60.0
PARTITIONS = 3


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


def _make_topic(broker: KafkaBroker, name: str, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(name, PARTITIONS, 1, config=settings)])[name].result(WAIT_S)


class _Reader:
    """Reads a topic from its beginning, and drops repeats as docs/sinks.md says."""

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": broker.address, "group.id": "none", "enable.auto.commit": False}
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self._last: dict[tuple[bytes, int], int] = {}
        self.partitions: dict[bytes, set[int]] = {}
        self.repeats = 0

    def read(self, count: int) -> list[Any]:
        """So many messages that were not seen before."""
        new: list[Any] = []
        until_s = time.monotonic() + WAIT_S
        while len(new) < count:
            assert time.monotonic() < until_s, f"{len(new)} of {count} messages arrived"
            message = self._consumer.poll(0.2)
            if message is None or message.error():
                continue
            key, headers = message.key(), dict(message.headers())
            self.partitions.setdefault(key, set()).add(message.partition())
            offset, epoch = int(headers["lakemark-offset"]), int(headers["lakemark-epoch"])
            if "lakemark-resent" not in headers:
                if offset <= self._last.get((key, epoch), 0):
                    self.repeats += 1
                    continue
                self._last[key, epoch] = offset
            new.append(message)
        return new

    def close(self) -> None:
        self._consumer.close()


def _until(client: Client, name: str, words: str) -> Sink:
    until_s = time.monotonic() + WAIT_S
    while words not in (sink := client.sinks.get(name)).last_error:
        assert time.monotonic() < until_s, sink.last_error
        time.sleep(0.05)
    return sink


def test_events_of_a_table_are_in_one_partition_and_in_order(client: Client, broker: KafkaBroker) -> None:
    _make_topic(broker, "events")
    sink = client.sinks.create_kafka("k", broker.address, "events", after=0)
    assert (sink.kind, sink.receiver["topic"]) == ("kafka", "events")
    ids = {}
    for name in ("a", "b", "c"):
        ids[name] = client.tables.create(f"default.{name}", {"id": "bigint"}).table_id
    for number in range(5):
        for name in ids:
            with client.begin(f"default.{name}") as writer:
                writer.write(pa.table({"id": [number]}))
                writer.commit()
    client.tables.rename("default.a", "default.z")
    last = client.event_log().last
    reader = _Reader(broker, "events")
    messages = reader.read(last)
    events = [json.loads(message.value()) for message in messages]
    assert sorted(event["data"]["offset"] for event in events) == list(range(1, last + 1))
    for table_id in ids.values():
        key = f"table:{table_id}".encode()
        offsets = [
            event["data"]["offset"] for message, event in zip(messages, events, strict=True) if message.key() == key
        ]
        assert len(offsets) >= 6
        assert offsets == sorted(offsets)
        assert len(reader.partitions[key]) == 1
    assert dict(messages[0].headers())["content-type"] == b"application/cloudevents+json"
    assert messages[0].timestamp()[1] == events[0]["data"]["time_ms"]
    reader.close()


def test_values_may_be_protobuf(client: Client, broker: KafkaBroker) -> None:
    _make_topic(broker, "binary")
    client.sinks.create_kafka("k", broker.address, "binary", format="protobuf", kinds=["committed"])
    client.tables.create("default.t", {"id": "bigint"})
    with client.begin("default.t") as writer:
        writer.write(pa.table({"id": [1]}))
        writer.commit()
    reader = _Reader(broker, "binary")
    (message,) = reader.read(1)
    event = Event.FromString(message.value())
    assert (event.kind, event.table, event.commit.added_rows) == (COMMITTED, "t", 1)
    assert dict(message.headers())["content-type"] == b"application/protobuf"
    reader.close()


def test_a_topic_that_is_not_there_is_told_until_it_is(client: Client, broker: KafkaBroker) -> None:
    client.sinks.create_kafka("k", broker.address, "later", after=0, kinds=["database_created"])
    client.databases.create("a")
    sink = _until(client, "k", "later")
    assert (sink.state, sink.delivered) == ("failing", 0)
    _make_topic(broker, "later")
    reader = _Reader(broker, "later")
    assert [json.loads(message.value())["data"]["database"] for message in reader.read(2)] == ["default", "a"]
    reader.close()


def test_an_event_that_is_too_large_for_the_topic_becomes_a_dead_letter(client: Client, broker: KafkaBroker) -> None:
    _make_topic(broker, "small", **{"max.message.bytes": "2000"})
    client.sinks.create_kafka("k", broker.address, "small", kinds=["database_created"])
    client.databases.create("a")
    client.databases.create("large", description="".join(f"{number:x} " for number in range(2_000)))
    client.databases.create("b")
    reader = _Reader(broker, "small")
    assert [json.loads(message.value())["data"]["database"] for message in reader.read(2)] == ["a", "b"]
    (letter,) = client.sinks.dead_letters("k")
    assert letter.event.database == "large"
    assert "takes no record of this size" in letter.reason
    reader.close()


def test_a_broker_that_is_killed_is_told_and_nothing_is_lost(client: Client, broker: KafkaBroker) -> None:
    _make_topic(broker, "away")
    client.sinks.create_kafka("k", broker.address, "away", kinds=["database_created"])
    client.databases.create("d0")
    reader = _Reader(broker, "away")
    assert len(reader.read(1)) == 1
    broker.kill()
    names = [f"d{number}" for number in range(1, 20)]
    for name in names:
        client.databases.create(name)
    sink = _until(client, "k", "no broker of")
    assert sink.state == "failing"
    assert sink.lag_events >= len(names)
    broker.start()
    read = [json.loads(message.value())["data"]["database"] for message in reader.read(len(names))]
    assert sorted(read) == sorted(names)
    reader.close()


def test_what_is_wrong_with_a_sink_to_kafka_is_told(client: Client) -> None:
    create = client.sinks.create_kafka
    for servers in ("", "host", "host:port", "a:1;b:2", "a:1,b"):
        with pytest.raises(InvalidArgument, match="list of brokers"):
            create("k", servers, "t")
    with pytest.raises(InvalidArgument, match="topic of Kafka"):
        create("k", "a:1", "no topic")
    for name in ("plugin.library.paths", "ssl.ca.location", "ssl.key.location", "enable.idempotence"):
        with pytest.raises(InvalidArgument, match="no property that a sink can set"):
            create("k", "a:1", "t", properties={name: "x"})
    with pytest.raises(InvalidArgument, match=r"sasl\.password is a secret"):
        create("k", "a:1", "t", properties={"sasl.password": "hidden"})
    with pytest.raises(FailedPrecondition, match="refuses a property") as refused:
        create("k", "a:1", "t", properties={"security.protocol": "nothing"})
    assert "hidden" not in refused.value.message
    made = create(
        "k", "127.0.0.1:1", "t", properties={"sasl.username": "me"}, secret_properties={"sasl.password": "hidden"}
    )
    assert made.receiver["secret_properties"] == ["sasl.password"]
    assert "hidden" not in repr((made, [event.cloud_event() for event in client.events(0, follow=False)]))
