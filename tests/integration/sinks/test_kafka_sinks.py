"""Kafka through the whole service: order, headers, a broker that is away, and wrong topics."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from lakemark import Client
from lakemark.client.sinks import Sink
from lakemark.errors import FailedPrecondition, InvalidArgument
from lakemark_proto.v1.events_pb2 import COMMITTED, Event
from tests.kafka_broker import WAIT_S, KafkaBroker, MockKafka, TopicReader

REAL = pytest.mark.slow
"""A JVM takes some seconds to start; scripts/test-slow has the time."""


@pytest.fixture(scope="module")
def real_broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


@pytest.fixture(params=["librdkafka's", pytest.param("a real", marks=REAL)])
def broker(request: pytest.FixtureRequest) -> Iterator[KafkaBroker | MockKafka]:
    if request.param == "a real":
        yield request.getfixturevalue("real_broker")
        return
    mock = MockKafka()
    yield mock
    mock.kill()


def _until(client: Client, name: str, words: str) -> Sink:
    until_s = time.monotonic() + WAIT_S
    while words not in (sink := client.sinks.get(name)).last_error:
        assert time.monotonic() < until_s, sink.last_error
        time.sleep(0.05)
    return sink


def test_events_of_a_table_are_in_one_partition_and_in_order(client: Client, broker: KafkaBroker | MockKafka) -> None:
    broker.make_topic("events")
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
    reader = TopicReader(broker.address, "events")
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


def test_values_may_be_protobuf(client: Client, broker: KafkaBroker | MockKafka) -> None:
    broker.make_topic("binary")
    client.sinks.create_kafka("k", broker.address, "binary", format="protobuf", kinds=["committed"])
    client.tables.create("default.t", {"id": "bigint"})
    with client.begin("default.t") as writer:
        writer.write(pa.table({"id": [1]}))
        writer.commit()
    reader = TopicReader(broker.address, "binary")
    (message,) = reader.read(1)
    event = Event.FromString(message.value())
    assert (event.kind, event.table, event.commit.added_rows) == (COMMITTED, "t", 1)
    assert dict(message.headers())["content-type"] == b"application/protobuf"
    reader.close()


@REAL
def test_a_topic_that_is_not_there_is_told_until_it_is(client: Client, real_broker: KafkaBroker) -> None:
    client.sinks.create_kafka("k", real_broker.address, "later", after=0, kinds=["database_created"])
    client.databases.create("a")
    sink = _until(client, "k", "later")
    assert (sink.state, sink.delivered) == ("failing", 0)
    real_broker.make_topic("later")
    reader = TopicReader(real_broker.address, "later")
    told = [json.loads(message.value())["data"]["database"] for message in reader.read(2)]
    assert sorted(told) == ["a", "default"]  # in partitions of their own
    reader.close()


@REAL
def test_an_event_that_is_too_large_for_the_topic_becomes_a_dead_letter(
    client: Client, real_broker: KafkaBroker
) -> None:
    real_broker.make_topic("small", **{"max.message.bytes": "2000"})
    client.sinks.create_kafka("k", real_broker.address, "small", kinds=["database_created"])
    client.databases.create("a")
    client.databases.create("large", description="".join(f"{number:x} " for number in range(2_000)))
    client.databases.create("b")
    reader = TopicReader(real_broker.address, "small")
    told = {json.loads(message.value())["data"]["database"] for message in reader.read(2)}
    assert told == {"a", "b"}
    (letter,) = client.sinks.dead_letters("k")
    assert letter.event.database == "large"
    assert "takes no record of this size" in letter.reason
    reader.close()


@REAL
def test_a_broker_that_is_killed_is_told_and_nothing_is_lost(client: Client, real_broker: KafkaBroker) -> None:
    real_broker.make_topic("away")
    client.sinks.create_kafka("k", real_broker.address, "away", kinds=["database_created"])
    client.databases.create("d0")
    reader = TopicReader(real_broker.address, "away")
    assert len(reader.read(1)) == 1
    real_broker.kill()
    names = [f"d{number}" for number in range(1, 20)]
    for name in names:
        client.databases.create(name)
    sink = _until(client, "k", "no broker of")
    assert sink.state == "failing"
    assert sink.lag_events >= len(names)
    real_broker.start()
    read = [json.loads(message.value())["data"]["database"] for message in reader.read(len(names))]
    assert sorted(read) == sorted(names)
    reader.close()


def test_a_broker_that_went_away_is_told(client: Client) -> None:
    mock = MockKafka()
    mock.make_topic("away")
    client.sinks.create_kafka("k", mock.address, "away", kinds=["database_created"])
    client.databases.create("a")
    reader = TopicReader(mock.address, "away")
    assert len(reader.read(1)) == 1
    reader.close()
    mock.kill()
    client.databases.create("b")
    sink = _until(client, "k", f"no broker of {mock.address} has confirmed within 5 s")
    assert (sink.state, sink.delivered, sink.dead_letters) == ("failing", 1, 0)
    assert client.sinks.drop("k"), "a broker that is away does not hold up the end of its sink"


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
