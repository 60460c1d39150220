"""The HTTP port that Prometheus scrapes: ``/metrics``, and ``/healthz`` for whoever only asks whether all is well."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from lakemark_core.errors import LakemarkError
from lakemark_server.host.ports import cannot_listen
from lakemark_server.metrics.instruments import Counter, Gauge, Histogram
from lakemark_server.metrics.process import COUNTERS, GAUGES, HISTOGRAMS

REQUEST_S_MAX: Final = 10.0
"""For a request to arrive, and for its answer to be taken."""

_TOTAL: Final = "_total"  # which the format adds to the names of counters

_log = structlog.get_logger(__name__)


def counter_family(counter: Counter) -> Metric:
    family = CounterMetricFamily(counter.name.removesuffix(_TOTAL), counter.help, labels=counter.labels)
    for labels, count in counter.samples():
        family.add_metric(labels, count)
    return family


def gauge_family(gauge: Gauge) -> Metric:
    return GaugeMetricFamily(gauge.name, gauge.help, value=gauge.value)


def histogram_family(histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(histogram.name, histogram.help, labels=histogram.labels)
    names = [*map(str, histogram.bounds), "+Inf"]
    for labels, counts, sum_s in histogram.buckets():
        below, buckets = 0, []
        for name, count in zip(names, counts, strict=True):
            below += count
            buckets.append((name, below))
        family.add_metric(labels, buckets, sum_s)
    return family


def of_process() -> Iterator[Metric]:
    """What the instruments of this process have counted."""
    yield from map(counter_family, COUNTERS)
    yield from map(gauge_family, GAUGES)
    yield from map(histogram_family, HISTOGRAMS)


class _Families(Collector):
    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        yield from of_process()
        yield from self._families()


class ScrapeServer:
    """Listens from ``start`` to ``stop``; ``port`` is the port that was taken, even if any free one was asked for.

    ``families``: what there is beside the instruments of the process. ``check``: raises LakemarkError while the service
    cannot work. One scrape runs at a time. Raises Unavailable if the port is taken.
    """

    def __init__(
        self, host: str, port: int, families: Callable[[], Iterable[Metric]], check: Callable[[], object]
    ) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Families(families))
        try:
            self._server = _Server((host, port), registry, check)
        except OSError as error:
            raise cannot_listen("metrics", host, port, error) from error
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], registry: CollectorRegistry, check: Callable[[], object]) -> None:
        self.registry, self.check = registry, check
        self.scraping = threading.Lock()
        super().__init__(address, _Handler)

    def handle_error(self, *_: object) -> None:
        """A scraper that goes away is no news."""


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_S_MAX
    server: _Server

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._metrics()
        elif path == "/healthz":
            self._health()
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"ask for /metrics or /healthz\n")

    def _metrics(self) -> None:
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        with self.server.scraping:
            try:
                body = encode(self.server.registry)
            except LakemarkError as error:
                _log.warning("metrics cannot be read", reason=error.message)
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error.message}\n".encode())
                return
        self._answer(HTTPStatus.OK, body, content_type)

    def _health(self) -> None:
        try:
            self.server.check()
        except LakemarkError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error.message}\n".encode())
        else:
            self._answer(HTTPStatus.OK, b"ok\n")

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Scrapes are not logged."""
