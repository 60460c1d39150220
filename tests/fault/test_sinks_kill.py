"""Kill -9 of the process that runs a sink: every acknowledged change arrives, in order, however often it is killed."""

from __future__ import annotations

import random
from pathlib import Path

import grpc

from lakemark_proto.v1 import catalog_pb2, sinks_pb2
from lakemark_proto.v1.catalog_pb2_grpc import CatalogServiceStub
from lakemark_proto.v1.events_pb2 import DATABASE_CREATED, EventFilter
from lakemark_proto.v1.sinks_pb2_grpc import SinkServiceStub
from tests.fault.killable import WAIT_S, Killable
from tests.stores import store_url
from tests.webhooks import SECRET, WebhookReceiver

KILLS = 3
DATABASES_A_LIFE = 25


def test_every_event_arrives_in_order_however_often_the_runner_is_killed(tmp_path: Path) -> None:
    chance = random.Random(18)
    service = Killable(
        store_url(tmp_path),
        str(tmp_path / "warehouse"),
        webhook_networks=["127.0.0.0/8"],
        webhook_plain_http=True,
        sink_look_s=0.05,
        sink_lease_s=0.5,
    )
    created: list[str] = []
    with WebhookReceiver() as receiver:
        service.start()
        try:
            _create_sink(service.address(), receiver.url)
            for life in range(KILLS + 1):
                arrived = len(receiver.requests)
                with grpc.insecure_channel(service.address()) as channel:
                    catalog = CatalogServiceStub(channel)
                    for number in range(chance.randint(5, DATABASES_A_LIFE)):
                        name = f"d{life}_{number:02}"
                        _create(catalog, name)
                        created.append(name)
                if life < KILLS:
                    receiver.wait_for(lambda arrived=arrived: len(receiver.requests) > arrived)  # type: ignore[misc]
                    service.kill()
                    service.start()
            receiver.wait_for(lambda: created[-1] in _names(receiver))
        finally:
            service.end()
        offsets = [event["data"]["offset"] for event in receiver.delivered]
        names = _names(receiver)
    # The receiver of docs/sinks.md: what it has seen it drops.
    last, new = 0, []
    for offset, name in zip(offsets, names, strict=True):
        if offset > last:
            last = offset
            new.append(name)
    assert new == created, "each once, in order"


def _names(receiver: WebhookReceiver) -> list[str]:
    return [event["data"]["database"] for event in receiver.delivered]


def _create(catalog: CatalogServiceStub, name: str) -> None:
    request = catalog_pb2.CreateDatabaseRequest(database=catalog_pb2.Database(name=name), request_id=name)
    catalog.CreateDatabase(request, timeout=WAIT_S)


def _create_sink(address: str, url: str) -> None:
    with grpc.insecure_channel(address) as channel:
        request = sinks_pb2.CreateSinkRequest(
            name="hook",
            webhook=sinks_pb2.WebhookSink(url=url, timeout_ms=250),
            secrets=sinks_pb2.SinkSecrets(signing_secrets=[SECRET]),
            filter=EventFilter(kinds=[DATABASE_CREATED]),
        )
        SinkServiceStub(channel).CreateSink(request, timeout=WAIT_S)
