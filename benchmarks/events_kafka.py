"""How fast events reach a real Kafka broker: the ``kafka`` part of ``scripts/bench events``."""

from __future__ import annotations

import time
from typing import Final

from tests.kafka_broker import KafkaBroker, TopicReader

from benchmarks.service import Service
from lakemark import connect

TOPIC: Final = "events"
SINK: Final = "bench"
LOOK_S: Final = 0.05
WAIT_S: Final = 120.0


def rate(service: Service) -> dict[str, float]:
    """``kafka_per_s``: all events of the log, from the resumption of a paused sink until the broker has all of them."""
    with KafkaBroker() as broker, connect(service.grpc_address) as client:
        broker.make_topic(TOPIC)
        client.sinks.create_kafka(SINK, broker.address, TOPIC, after=0, paused=True)
        end = client.event_log().last
        client.sinks.resume(SINK)
        began = time.perf_counter()
        while client.sinks.get(SINK).offset < end:
            if time.perf_counter() > began + WAIT_S:
                raise AssertionError(f"the sink has come to {client.sinks.get(SINK)} of {end}")
            time.sleep(LOOK_S)
        seconds = time.perf_counter() - began
        client.sinks.drop(SINK)
        assert len(TopicReader(broker.address, TOPIC).read(end)) >= end
    return {"kafka_events": end, "kafka_per_s": round(end / seconds)}
