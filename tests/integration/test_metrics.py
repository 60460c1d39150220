"""The port that Prometheus scrapes: what is counted there after some work, and what it says when all is not well."""

from __future__ import annotations

import contextlib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lakemark import Client
from lakemark.errors import TableNotFound
from lakemark_core.errors import Unavailable
from lakemark_hms.outside import Metastore
from lakemark_server.process import Service
from tests.integration.grpc_server import connected, running_service
from tests.integration.listener.conftest import until
from tests.webhooks import SECRET, WebhookReceiver

SETTINGS = {
    "metrics_port": 0,
    "hms_enabled": True,
    "hms_port": 0,
    "webhook_networks": ["127.0.0.0/8"],
    "webhook_plain_http": True,
    "sink_look_s": 0.02,
    "sweep_interval_s": 0.05,
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running_service(tmp_path, **SETTINGS) as running:
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with connected(service) as made:
        yield made


def answer(service: Service, path: str = "/metrics") -> tuple[int, str]:
    try:
        url = service.metrics_url.removesuffix("/metrics") + path
        with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - our own URL
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with contextlib.closing(error):
            return error.code, error.read().decode()


class Scraped:
    """Samples by name and labels."""

    def __init__(self, service: Service) -> None:
        status, text = answer(service)
        assert status == 200, text
        self.families = list(text_string_to_metric_families(text))
        self._samples = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in self.families
            for sample in family.samples
        }

    def __call__(self, sample: str, /, **labels: str) -> float:
        """0 if there is none yet."""
        return self._samples.get((sample, *sorted(labels.items())), 0.0)


def test_what_is_done_is_counted(service: Service, client: Client) -> None:
    before = Scraped(service)
    client.tables.create("default.t", {"id": "bigint"})
    for _ in range(3):
        with client.begin("default.t") as writer:
            writer.commit()
    with pytest.raises(TableNotFound):
        client.tables.get("default.missing")
    with Metastore(service.hms_uri) as metastore:
        metastore.call("get_all_databases")
    after = Scraped(service)

    def more(sample: str, /, **labels: str) -> float:
        return after(sample, **labels) - before(sample, **labels)

    assert more("lakemark_commits_total") == 3
    assert more("lakemark_events_told_total", kind="committed") == 3
    assert more("lakemark_events_told_total", kind="table_created") == 1
    assert more("lakemark_request_seconds_count", protocol="grpc", method="CreateTable") == 1
    assert more("lakemark_request_seconds_bucket", protocol="grpc", method="CreateTable", le="60.0") == 1
    assert 0 < more("lakemark_request_seconds_sum", protocol="grpc", method="CreateTable") < 60
    assert more("lakemark_request_seconds_count", protocol="hms", method="get_all_databases") == 1
    assert more("lakemark_request_errors_total", protocol="grpc", method="GetTable", code="table_not_found") == 1
    assert more("lakemark_lane_requests_total", protocol="hms", lane="main") >= 1
    assert more("lakemark_lane_requests_total", protocol="grpc", lane="loop") >= 3
    assert more("lakemark_store_seconds_count", operation="commit") >= 4
    assert more("lakemark_store_seconds_count", operation="read") >= 1
    assert after("lakemark_event_log_last", catalog="hive") == client.event_log().last
    until(lambda: Scraped(service)("lakemark_sweeps_total", outcome="done") > before("lakemark_sweeps_total"))
    until(lambda: Scraped(service)("lakemark_store_transactions_open") == 0)


def test_how_far_consumers_and_sinks_are_behind(service: Service, client: Client) -> None:
    for number in range(5):
        client.databases.create(f"d{number}")
    client.consumers.create("slow", 0)
    client.consumers.create("done", client.event_log().last)
    with WebhookReceiver() as receiver:
        client.sinks.create_webhook("hook", receiver.url, SECRET, after=0, kinds=["database_created"])
        until(lambda: Scraped(service)("lakemark_sink_delivered_total", catalog="hive", name="hook") >= 6)
    told = Scraped(service)
    last = client.event_log().last
    assert told("lakemark_consumer_lag_events", catalog="hive", name="slow") == last
    assert told("lakemark_consumer_lag_seconds", catalog="hive", name="slow") > 0
    assert told("lakemark_consumer_lag_events", catalog="hive", name="done") == last - 6
    until(lambda: Scraped(service)("lakemark_consumer_lag_events", catalog="hive", name="sink:hook") == 0)
    assert told("lakemark_sink_dead_letters", catalog="hive", name="hook") == 0
    assert told("lakemark_sink_failing", catalog="hive", name="hook") == 0


def test_labels_name_no_tables(service: Service, client: Client) -> None:
    """Their number has no bound, and Prometheus keeps each combination of labels for ever."""
    client.tables.create("default.peculiar", {"id": "bigint"})
    client.tables.get("default.peculiar")
    assert "peculiar" not in answer(service)[1]
    names = {name for family in Scraped(service).families for sample in family.samples for name in sample.labels}
    bounded = "protocol method code lane operation kind outcome catalog name state le"
    assert names <= set(bounded.split())


def test_health_and_what_is_not_served(service: Service) -> None:
    assert answer(service, "/healthz") == (200, "ok\n")
    assert answer(service, "/")[0] == 404
    service.store.close()
    for path in ("/healthz", "/metrics"):
        status, text = answer(service, path)
        assert (status, text) == (503, "the store is closed\n")


def test_a_port_that_is_taken_is_told(service: Service, tmp_path: Path) -> None:
    port = int(service.metrics_url.rpartition(":")[2].partition("/")[0])
    wanted = rf"metrics cannot listen on 127.0.0.1:{port}.*--metrics-port"
    with pytest.raises(Unavailable, match=wanted), running_service(tmp_path / "second", metrics_port=port):
        pass
